"""GPTs exported to transformers and imported from there give the same text, tokenizers included."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from encoder_runs import LINES, write_model
from qkv.base.errors import CheckpointError, ConfigError
from qkv.inference.text_generator import TextGenerator, load_text_generator
from qkv.interop.export import export
from qkv.interop.huggingface.runs import import_huggingface
from qkv.models.gpt import Gpt, GptConfig
from qkv.parts.heads import ModelWithHeads
from qkv.text.pretrained_tokenizer import load_pretrained_tokenizer
from qkv.text.tokenizer import TokenizerConfig, train_tokenizer

transformers = pytest.importorskip("transformers")

PROMPTS = ["The quick brown", "Paris is the capital", "Le café", "a"]


@torch.no_grad()
def randomised(model: Any) -> Any:
    torch.manual_seed(7)
    for name, parameter in model.named_parameters():
        norm = parameter.dim() == 1 and ("ln" in name or "norm" in name)
        nn.init.normal_(parameter, 1.0 if norm and "weight" in name else 0.0, 0.4 if parameter.dim() > 1 else 0.1)
    return model.eval()


def byte_level() -> Library:
    """Return a tokenizer made like GPT-2's."""
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    library.train_from_iterator(LINES * 9, trainer)
    return library


def with_word_ends() -> Library:
    """Return a tokenizer made like the first GPT's."""
    library = Library(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    library.normalizer = normalizers.BertNormalizer()
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.BPEDecoder(suffix="</w>")
    trainer = trainers.BpeTrainer(vocab_size=200, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False)
    library.train_from_iterator(LINES * 9, trainer)
    return library


KINDS: dict[str, Any] = {
    "gpt2": ("GPT2", byte_level, {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}),
    "openai-gpt": ("OpenAIGPT", with_word_ends, {"unk_token": "<unk>"}),
}
both = pytest.mark.parametrize("kind", KINDS)


def write_theirs(folder: Path, kind: str, more_words: int = 0) -> Any:
    """Write a transformers checkpoint with its tokenizer, and return the model."""
    name, make, names = KINDS[kind]
    library = make()
    shape = {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 50, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    config = getattr(transformers, f"{name}Config")(vocab_size=library.get_vocab_size() + more_words, **shape)
    model = randomised(getattr(transformers, f"{name}LMHeadModel")(config))
    model.save_pretrained(folder)
    library.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return model


def their_texts(folder: Path, prompts: list[str], **options: Any) -> list[str]:
    """Return the continuation that transformers' model and tokenizer give, without the prompt."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    texts = []
    for prompt in prompts:
        inputs = tokenizer(prompt, return_tensors="pt")
        made = model.generate(inputs["input_ids"], attention_mask=inputs["attention_mask"], do_sample=False, **options)
        before = tokenizer.decode(inputs["input_ids"][0], skip_special_tokens=True)
        texts.append(tokenizer.decode(made[0], skip_special_tokens=True)[len(before) :])
    return texts


def our_texts(generator: TextGenerator, prompts: list[str], **options: Any) -> list[str]:
    return [one.text for (one,) in generator.generate(prompts, **options)]


@both
def test_a_checkpoint_of_theirs_as_a_run_and_back(kind: str, tmp_path: Path) -> None:
    write_theirs(tmp_path / "hf", kind)
    run = import_huggingface(tmp_path / "hf", tmp_path / "run")
    assert run.recipe.objective.kind == "causal" and run.recipe.model.norm == ("pre" if kind == "gpt2" else "post")
    wanted = their_texts(tmp_path / "hf", PROMPTS, max_new_tokens=20)
    assert our_texts(load_text_generator(tmp_path / "run", "cpu"), PROMPTS, max_new_tokens=20) == wanted
    assert len(set(wanted)) == len(PROMPTS) and all(map(len, wanted))
    export(tmp_path / "run", "hf", tmp_path / "back")
    assert their_texts(tmp_path / "back", PROMPTS, max_new_tokens=20) == wanted


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_run_of_ours_in_transformers_and_back(norm: Any, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(TokenizerConfig(kind="byte-bpe", vocab=340), LINES * 9)
    c = GptConfig(width=32, feedforward=128, heads=4, layers=2, max_positions=50, norm=norm)
    model = randomised(ModelWithHeads(Gpt(c, len(tokenizer)), ()))
    with torch.no_grad():
        unused = [tokenizer.pad, tokenizer.unk, tokenizer.bos]  # qkv never generates them
        model.encoder.embedding.token_embedding.weight[unused] *= 0.01
    run = write_model(tmp_path / "run", model, c.model_dump(mode="json"), tokenizer, objective="causal")
    wanted = our_texts(load_text_generator(run, "cpu"), PROMPTS, max_new_tokens=20, repetition_penalty=1.2)
    export(run, "hf", tmp_path / "hf")
    assert their_texts(tmp_path / "hf", PROMPTS, max_new_tokens=20, repetition_penalty=1.2) == wanted
    assert len(set(wanted)) == len(PROMPTS) and all(map(len, wanted))
    import_huggingface(tmp_path / "hf", tmp_path / "again")
    assert our_texts(load_text_generator(tmp_path / "again", "cpu"), PROMPTS, max_new_tokens=20, repetition_penalty=1.2) == wanted


@both
def test_a_tokenizer_in_two_files(kind: str, tmp_path: Path) -> None:
    name, make, _ = KINDS[kind]
    make().model.save(str(tmp_path))  # vocab.json and merges.txt
    theirs = getattr(transformers, f"{name}Tokenizer").from_pretrained(tmp_path)
    tokenizer = load_pretrained_tokenizer(tmp_path, causal=True)
    for line in [*LINES, "Über  cafés, 100 %", "ﬁ \t x"]:
        ids = theirs(line)["input_ids"]
        assert tokenizer.encode(line) == ids
        assert tokenizer.decode(ids) == theirs.decode(ids, clean_up_tokenization_spaces=False)
    (tmp_path / "merges.txt").write_text("#version: 0.2\nzz yy\n")
    with pytest.raises(CheckpointError, match=r"vocab\.json and merges\.txt are damaged, or do not belong together"):
        load_pretrained_tokenizer(tmp_path, causal=True)


def test_words_that_no_tokenizer_spells_are_not_said(tmp_path: Path) -> None:
    write_theirs(tmp_path / "hf", "gpt2", more_words=300)
    import_huggingface(tmp_path / "hf", tmp_path / "run")
    generator = load_text_generator(tmp_path / "run", "cpu")
    for (one,) in generator.generate(PROMPTS, max_new_tokens=30):
        assert one.ids and max(one.ids) < len(generator.tokenizer)


def test_what_cannot_be_imported_is_refused(tmp_path: Path) -> None:
    write_theirs(tmp_path / "hf", "gpt2")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    (tmp_path / "hf" / "config.json").write_text(json.dumps(config | {"activation_function": "mish"}))
    with pytest.raises(
        ConfigError, match=r"hf: activation_function='mish' in config\.json is an activation that qkv does not have"
    ):
        import_huggingface(tmp_path / "hf", tmp_path / "run")
    (tmp_path / "hf" / "config.json").write_text(json.dumps(config | {"n_positions": 20}))
    with pytest.raises(CheckpointError, match=r"encoder\.embedding\.positions\.table\.weight have the shape"):
        import_huggingface(tmp_path / "hf", tmp_path / "run")
    assert not (tmp_path / "run").exists()

"""T5s exported to transformers and imported from there give the same text, tokenizers and sentinels included."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers, processors, trainers
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from encoder_runs import LINES
from qkv.base.errors import CheckpointError, ConfigError
from qkv.folder.networks import read_translator_run
from qkv.inference.load import load_translator
from qkv.interop.export import export
from qkv.interop.huggingface.runs import import_huggingface

transformers = pytest.importorskip("transformers")

TEXTS = ["translate English to French: The quick brown fox", "Paris is the capital of France.", "the lazy dog"]
VERSIONS: dict[str, dict[str, Any]] = {
    "1.0": {"feed_forward_proj": "relu", "tie_word_embeddings": True},
    "1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
}


def like_theirs() -> Library:
    """Return a tokenizer like T5's: sentinels have the last ids, the first sentinel the highest."""
    library = Library(models.Unigram())
    library.pre_tokenizer, library.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    library.train_from_iterator(LINES * 9, trainer)
    library.add_special_tokens([f"<extra_id_{number}>" for number in reversed(range(20))])
    library.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    return library


@torch.no_grad()
def write_theirs(folder: Path, version: str, unspelled: float = 0.01) -> None:
    """Write a transformers checkpoint with its tokenizer; the embedding is larger than the vocabulary."""
    library = like_theirs()
    torch.manual_seed(3)
    config = transformers.T5Config(
        vocab_size=library.get_vocab_size() + 4, d_model=32, d_kv=8, d_ff=40, num_layers=2, num_heads=4, decoder_start_token_id=0,
        **VERSIONS[version],
    )  # fmt: skip
    model = transformers.T5ForConditionalGeneration(config)
    if version == "1.1":
        model.lm_head.weight = nn.Parameter(torch.empty_like(model.shared.weight))
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, 1.0 if "norm" in name else 0.0, 0.7 if name in ("shared.weight", "lm_head.weight") else 0.3)
    said = model.lm_head.weight
    said[[0, 1, 2, *range(len(said) - 24, len(said))]] *= 0.01  # makes these tokens unlikely
    said[-4:] *= 100 * unspelled
    model.save_pretrained(folder)
    library.save(str(folder / "tokenizer.json"))
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **names}))


def their_texts(folder: Path, **options: Any) -> list[str]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    made = [model.generate(**_read(tokenizer, text), max_new_tokens=20, do_sample=False, **options) for text in TEXTS]
    return [tokenizer.decode(ids[0], skip_special_tokens=True) for ids in made]


def _read(tokenizer: Any, text: str) -> dict[str, Any]:
    inputs = tokenizer(text, return_tensors="pt")
    return {name: inputs[name] for name in ("input_ids", "attention_mask")}


def our_texts(run: Path, **options: Any) -> list[str]:
    way: dict[str, Any] = {"beam": 1, "max_ratio": 0, "max_extra": 20, "precision": "float32", **options}
    return load_translator(run, "cpu").translate(TEXTS, **way)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_checkpoint_of_theirs_as_a_run_and_back(version: str, tmp_path: Path) -> None:
    write_theirs(tmp_path / "hf", version)
    import_huggingface(tmp_path / "hf", tmp_path / "run")
    run = read_translator_run(tmp_path / "run")
    assert run.config.tied == ("all" if version == "1.0" else "inputs")
    assert (
        run.tokenizer.pieces(run.tokenizer.sentinels[:2]) == ["<extra_id_0>", "<extra_id_1>"]
        and len(run.tokenizer.sentinels) == 20
    )
    wanted = their_texts(tmp_path / "hf")
    assert our_texts(tmp_path / "run") == wanted
    assert len({*wanted}) > 1 and all(map(len, wanted))
    assert our_texts(tmp_path / "run", beam=3, length_penalty=0.0) == their_texts(
        tmp_path / "hf", num_beams=3, length_penalty=0.0, early_stopping="never"
    )
    export(tmp_path / "run", "hf", tmp_path / "back")
    assert their_texts(tmp_path / "back") == wanted
    import_huggingface(tmp_path / "back", tmp_path / "again")
    assert our_texts(tmp_path / "again") == wanted


def test_words_that_no_tokenizer_spells_are_not_said(tmp_path: Path) -> None:
    write_theirs(tmp_path / "hf", "1.1", unspelled=1000.0)
    import_huggingface(tmp_path / "hf", tmp_path / "run")
    translator = load_translator(tmp_path / "run", "cpu")
    for beam in (1, 3):
        for output in translator.n_best(TEXTS, beam=beam, max_ratio=0, max_extra=8):
            ((_, ids),) = output[0].pieces
            assert ids and max(ids) < len(translator.tokenizers.target)


def test_what_cannot_be_written_or_read_is_refused(tmp_path: Path) -> None:
    write_theirs(tmp_path / "hf", "1.0")
    import_huggingface(tmp_path / "hf", tmp_path / "run")
    with pytest.raises(ConfigError, match="run: onnx has no mapping for models of kind t5; use hf or qkv itself"):
        export(tmp_path / "run", "onnx", tmp_path / "onnx")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    (tmp_path / "hf" / "config.json").write_text(json.dumps(config | {"d_ff": 39}))
    with pytest.raises(CheckpointError, match=r"hf: the weights for encoder\.0\.feedforward\.up\.weight have the shape"):
        import_huggingface(tmp_path / "hf", tmp_path / "other")

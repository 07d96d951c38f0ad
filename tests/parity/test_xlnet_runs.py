"""XLNets exported to transformers and imported from there give the same outputs, tokenizers included."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from encoder_runs import LINES, SHAPE, TEXTS, own_tokenizer, randomised, write_model
from qkv.base.errors import CheckpointError
from qkv.inference.text_encoder import load_text_encoder
from qkv.interop.export import export
from qkv.interop.huggingface.runs import import_huggingface
from qkv.models.xlnet import Xlnet, XlnetConfig
from qkv.parts.heads import ModelWithHeads
from qkv.text.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")

PAIRS = [("The quick fox", "jumps over Paris."), ("Rome", "a"), ("设置", "the café")]
PARTS = {"return_token_type_ids": True}  # which transformers' tokenizer leaves out by default
FINETUNED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # heads and labels
    "classification": (("pooler", "classes"), ("no", "yes", "perhaps")),
    "regression": (("pooler", "classes"), ()),
    "tagging": (("tags",), ("O", "B-X", "I-X")),
    "answering": (("span",), ()),
}


def write_run(folder: Path, objective: str, tokenizer: Tokenizer | None = None) -> Path:
    """Write an XLNet with the heads of an objective."""
    tokenizer = tokenizer or own_tokenizer("unigram")
    heads, labels = FINETUNED.get(objective, (("language_model",), ()))
    c = XlnetConfig(**SHAPE)
    model = randomised(ModelWithHeads(Xlnet(c, len(tokenizer)), heads, len(labels) or 1))
    return write_model(folder, model, c.model_dump(mode="json"), tokenizer, labels, objective)


def their_tokenizer() -> Any:
    """Return a small tokenizer of XLNet's kind."""
    special = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)] + list("TPRLI.,▁")
    words = ["▁the", "▁fox", "▁capital", "▁Paris", "▁over", "ed", "er"]
    pieces = [(piece, 0.0) for piece in special] + [(piece, -5.0) for piece in letters] + [(word, -2.0) for word in words]
    return transformers.XLNetTokenizer(vocab=pieces)


def write_theirs(folder: Path, end: str, **options: Any) -> Any:
    """Write a transformers checkpoint with its tokenizer, and return the model."""
    tokenizer = their_tokenizer()
    config = transformers.XLNetConfig(vocab_size=len(tokenizer) + 3, d_model=24, n_head=2, n_layer=2, d_inner=40, **options)
    model = randomised(getattr(transformers, f"XLNet{end}")(config))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def embedded(folder: Path, texts: list[str]) -> np.ndarray:
    """Return transformers' mean over tokens."""
    tokenizer, model = transformers.AutoTokenizer.from_pretrained(folder), transformers.AutoModel.from_pretrained(folder).eval()
    inputs = tokenizer(texts, padding=True, return_tensors="pt", **PARTS)
    with torch.no_grad():
        hidden = model(**inputs).last_hidden_state
    keep = inputs["attention_mask"][..., None]
    return ((hidden * keep).sum(1) / keep.sum(1)).numpy()


def test_vectors_of_a_run_of_ours(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "permutation")
    folder = export(run, "hf", tmp_path / "hf")
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["XLNetLMHeadModel"]
    reader = load_text_encoder(run, "cpu")
    np.testing.assert_allclose(reader.embed(TEXTS), embedded(folder, TEXTS), atol=1e-5)
    again = import_huggingface(folder, tmp_path / "again")
    assert again.recipe.objective.kind == "permutation"
    np.testing.assert_allclose(load_text_encoder(tmp_path / "again", "cpu").embed(TEXTS), reader.embed(TEXTS), atol=1e-6)


@torch.no_grad()
def test_classes_of_pairs_are_theirs(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "classification")
    folder = export(run, "hf", tmp_path / "hf")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(*map(list, zip(*PAIRS, strict=True)), padding=True, return_tensors="pt")
    chances, classes = model(**inputs).logits.softmax(-1).max(-1)
    found = load_text_encoder(run, "cpu").predict(PAIRS)
    assert [one.label for one in found] == [model.config.id2label[number] for number in classes.tolist()]
    assert [one.probability for one in found] == pytest.approx(chances.tolist(), abs=1e-5)


@pytest.mark.parametrize("objective", FINETUNED)
def test_a_fine_tuned_model_goes_there_and_back(objective: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", objective)
    again = import_huggingface(export(run, "hf", tmp_path / "hf"), tmp_path / "again")
    assert again.recipe.objective.kind == objective
    examples: list[Any] = [LINES[0].split(), ["Paris"]] if objective == "tagging" else [("Which fox?", text) for text in LINES]
    first, second = (load_text_encoder(folder, "cpu").predict(examples) for folder in (run, tmp_path / "again"))
    if objective in ("classification", "answering"):
        assert [one[0] for one in first] == [one[0] for one in second]
        assert [one[1] for one in first] == pytest.approx([one[1] for one in second], abs=1e-5)
    else:
        assert first == (second if objective == "tagging" else pytest.approx(second, abs=1e-5))


def test_a_checkpoint_of_theirs_with_its_tokenizer(tmp_path: Path) -> None:
    write_theirs(tmp_path / "theirs", "LMHeadModel")
    run = import_huggingface(tmp_path / "theirs", tmp_path / "run")
    tokenizer = run.tokenizers.source
    assert tokenizer.pieces([tokenizer.bos, tokenizer.eos, tokenizer.pad]) == ["<cls>", "<sep>", "<pad>"]
    texts = ["the fox over Paris", "Paris, the capital.", "a"]
    np.testing.assert_allclose(
        load_text_encoder(tmp_path / "run", "cpu").embed(texts), embedded(tmp_path / "theirs", texts), atol=1e-5
    )
    back = export(tmp_path / "run", "hf", tmp_path / "back")
    np.testing.assert_allclose(embedded(back, texts), embedded(tmp_path / "theirs", texts), atol=1e-5)
    tokenizers = [transformers.AutoTokenizer.from_pretrained(folder) for folder in (tmp_path / "theirs", back)]
    one, other = (tokenizer(*map(list, zip(*PAIRS, strict=True)), padding=True) for tokenizer in tokenizers)
    assert one["input_ids"] == other["input_ids"]


@torch.no_grad()
def test_a_classifier_of_theirs(tmp_path: Path) -> None:
    model = write_theirs(tmp_path / "theirs", "ForSequenceClassification", num_labels=3)
    import_huggingface(tmp_path / "theirs", tmp_path / "run")
    found = load_text_encoder(tmp_path / "run", "cpu").predict([("the fox", "over Paris"), ("a", "the capital")])
    inputs = their_tokenizer()(["the fox", "a"], ["over Paris", "the capital"], padding=True, return_tensors="pt", **PARTS)
    chances = model(**inputs).logits.softmax(-1).max(-1).values
    assert [one.probability for one in found] == pytest.approx(chances.tolist(), abs=1e-5)


def test_without_a_tokenizer(tmp_path: Path) -> None:
    write_theirs(tmp_path / "theirs", "Model")
    (tmp_path / "theirs" / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match="save the tokenizer beside the model"):
        import_huggingface(tmp_path / "theirs", tmp_path / "run")

"""Training warns of a decoder that does not use its source, and is silent where it does."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from qkv.jobs.train import train
from qkv.models.t5 import T5
from qkv.models.transformer import Transformer
from qkv.parts.encoder_decoder import EncoderDecoder
from qkv.recipes import parse_recipe
from qkv.training.log import read_metrics

WORDS = ["alpha", "beta", "gamma", "delta", "echo", "fox", "golf", "hotel", "india", "julia", "kilo", "lima", "mike", "north"]
SHAPE = {"width": 32, "feedforward": 64, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}
TRAINING = {
    "steps": 120, "batch_tokens": 512, "learning_rate": 0.005, "warmup": 20, "validate_every": 60, "save_every": 120,
    "averaging": "none", "device": "cpu", "precision": "float32",
}  # fmt: skip
TRANSLATORS: dict[str, dict[str, Any]] = {
    "transformer": SHAPE,
    "rnn": {"width": 32, "embedding_width": 16, "layers": 1, "dropout": 0.0},
}


def copying(folder: Path, kind: str) -> dict[str, Any]:
    """Write pairs of equal texts; return the recipe of a translator."""
    rng = random.Random(1)
    for name, count in (("train", 2000), ("dev", 60)):
        texts = [" ".join(rng.choices(WORDS, k=4)) for _ in range(count)]
        (folder / f"{name}.tsv").write_text("".join(f"{text}\t{text}\n" for text in texts))
    return {
        "data": {"train": str(folder / "train.tsv"), "dev": str(folder / "dev.tsv"), "check": {"identical": "keep"}},
        "tokenizer": {"shared": {"kind": "words", "vocab": 60}}, "model": {"kind": kind, **TRANSLATORS[kind]},
        "objective": {"smoothing": 0.0}, "training": TRAINING, "score_dev": 1,
    }  # fmt: skip


def repeating(folder: Path) -> dict[str, Any]:
    """Write texts of one word each, over and over, so that what is dropped stands in the source; return the recipe of a T5."""
    rng = random.Random(1)
    (folder / "text.txt").write_text("\n\n".join(" ".join([rng.choice(WORDS)] * rng.randint(8, 16)) for _ in range(2000)))
    return {
        "data": {"text": str(folder / "text.txt"), "length": 16}, "tokenizer": {"kind": "words", "vocab": 60, "sentinels": 6},
        "model": {"kind": "t5", "head_width": 16, **SHAPE}, "objective": {"kind": "spans"}, "training": TRAINING,
    }  # fmt: skip


def trained(recipe: dict[str, Any], run: Path) -> tuple[list[float], str]:
    """Train; return the gain of each validation, and all warnings."""
    train(parse_recipe(recipe, "recipe"), run)
    lines = read_metrics(run)
    return [line["dev_source_gain"] for line in lines if "dev_loss" in line], str([line.get("warnings") for line in lines])


@pytest.mark.parametrize("kind", TRANSLATORS)
def test_a_translator_that_copies_uses_its_source(kind: str, tmp_path: Path) -> None:
    gains, warnings = trained(copying(tmp_path, kind), tmp_path / "run")
    assert len(gains) == 2 and gains[-1] > 0.5 and "does not use the source" not in warnings


def test_a_t5_that_restores_text_uses_its_source(tmp_path: Path) -> None:
    gains, warnings = trained(repeating(tmp_path), tmp_path / "run")
    assert gains[-1] > 0.5 and "does not use the source" not in warnings


@pytest.mark.parametrize("model", [Transformer, T5])
def test_an_encoder_without_output_is_warned_of(
    model: type[EncoderDecoder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = EncoderDecoder.encode
    monkeypatch.setattr(model, "encode", lambda self, source: torch.zeros_like(encode(self, source)))
    recipe = copying(tmp_path, "transformer") if model is Transformer else repeating(tmp_path)
    gains, warnings = trained(recipe, tmp_path / "run")
    assert gains == [pytest.approx(0, abs=1e-4)] * 2 and "the decoder does not use the source" in warnings

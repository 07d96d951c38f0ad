"""A T5's encoder alone: equal to that in the T5, and fine-tuned as a classifier and a tagger."""

from pathlib import Path
from typing import Any

import pytest
import torch

import qkv
from encoder_recipes import finetuning_values, write_examples, write_text
from qkv.base.errors import ConfigError
from qkv.base.rows import padded_rows
from qkv.folder.networks import read_translator_run
from qkv.inference.text_encoder import TextEncoder
from qkv.interop.export import export
from qkv.models.t5 import T5, T5Config, T5Encoder, encoder_weights
from qkv.recipes import parse_recipe
from qkv.training.checkpoints import load_weights

SHAPE: dict[str, Any] = {
    "width": 16, "feedforward": 24, "heads": 3, "head_width": 4, "encoder_layers": 2, "decoder_layers": 1,
    "buckets": 8, "max_distance": 9, "epsilon": 1e-4,
}  # fmt: skip


@pytest.fixture(scope="module")
def t5(folder: Path) -> Path:
    """A run of a few steps."""
    values = {
        "data": {"text": str(write_text(folder / "text.txt")), "length": 16}, "tokenizer": {"vocab": 100, "sentinels": 8},
        "model": {"kind": "t5", **SHAPE}, "objective": {"kind": "spans"},
        "training": {"steps": 2, "batch_tokens": 128, "device": "cpu", "precision": "float32", "averaging": "none"},
    }  # fmt: skip
    return qkv.train(parse_recipe(values, "recipe"), folder / "run")


def recipe_of(kind: str, folder: Path, t5: Path, **model: Any) -> Any:
    values = finetuning_values(kind, write_examples(folder, kind, count=24), t5)
    values["training"]["epochs"] = 1
    return parse_recipe({**values, **({"model": {"kind": "t5", **model}} if model else {})}, "recipe")


@pytest.mark.parametrize("activation", ["relu", "geglu"])
@torch.no_grad()
def test_it_knows_what_the_encoder_in_the_t5_knows(activation: str) -> None:
    torch.manual_seed(1)
    whole = T5(T5Config(**SHAPE, activation=activation), 31, 31).eval()  # type: ignore[arg-type]
    for parameter in whole.parameters():
        parameter.normal_(0.5, 0.3)
    encoder = T5Encoder(whole.config, 31).eval()
    encoder.load_state_dict(encoder_weights(dict(whole.named_parameters())))
    keep = torch.arange(12) < torch.tensor([12, 5])[:, None]
    rows = padded_rows(torch.randint(1, 31, (2, 12)), keep)
    torch.testing.assert_close(encoder(rows), whole.encode(rows))


@pytest.mark.parametrize("kind", ["classification", "tagging"])
def test_a_run_starts_from_a_t5(kind: str, t5: Path, folder: Path) -> None:
    recipe = recipe_of(kind, folder, t5, **({"dropout": 0.2} if kind == "tagging" else {}))
    recipe = recipe.model_copy(update={"training": recipe.training.model_copy(update={"learning_rate": 1e-9})})
    run = qkv.train(recipe, folder / f"{kind}")
    before, after = encoder_weights(read_translator_run(t5).weights), load_weights(run / "model.safetensors")
    for name, weight in before.items():  # which hardly anything was learned beyond
        torch.testing.assert_close(after[f"encoder.{name}"], weight, rtol=0, atol=1e-6)
    reader = qkv.load(run, "cpu")
    assert isinstance(reader, TextEncoder) and reader.recipe.model.dropout == (0.2 if kind == "tagging" else 0.1)
    assert len(reader.predict([["the", "old"], ["tree"]] if kind == "tagging" else ["the old tree", "a house"])) == 2
    with pytest.raises(ConfigError, match="no token of this t5 represents a whole text; take the mean"):
        reader.embed(["the old tree"], pooling="cls")
    with pytest.raises(ConfigError, match=r"\(t5, trained for (classification|tagging)\), not a translator"):
        export(run, "hf", folder / "hf")


def test_what_cannot_be_is_refused(t5: Path, folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.encoder_layers 5: not what .* has; leave model out"):
        qkv.train(recipe_of("classification", folder, t5, encoder_layers=5), folder / "other")
    with pytest.raises(ConfigError, match=r"unknown key 'model.attention'"):
        recipe_of("classification", folder, t5, attention="window")
    values = {"data": {"text": "x"}, "model": {"kind": "t5"}, "tokenizer": {}, "objective": {"kind": "masked"}}
    with pytest.raises(ConfigError, match=r"model\.kind 't5' is not one of bert, albert, ernie"):
        parse_recipe({**values, "training": {"steps": 1}}, "recipe")

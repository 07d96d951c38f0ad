"""A loaded ELMo: vectors of any layer and of their mix, unseen words; features of a tagger and a classifier."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import qkv
from encoder_recipes import finetuning_values, pretraining_values, write_examples, write_text
from qkv.base.errors import ConfigError
from qkv.inference.text_encoder import TextEncoder, load_text_encoder
from qkv.recipes import parse_recipe
from qkv.training.checkpoints import load_weights

TEXTS = ["The old tree grows.", "The zzz tree grows.", "The yyy tree grows."]


@pytest.fixture(scope="module")
def elmo(folder: Path) -> Path:
    """A run of a few steps."""
    values = pretraining_values("bidirectional", write_text(folder / "text.txt"))
    values["training"] |= {"steps": 4, "validate_every": 4, "save_every": 4}
    return qkv.train(parse_recipe(values, "recipe"), folder / "run")


def recipe_of(kind: str, folder: Path, elmo: Path, **model: Any) -> Any:
    values = finetuning_values(kind, write_examples(folder, kind, count=24), elmo)
    values["training"]["epochs"] = 1
    return parse_recipe({**values, "model": {"kind": "elmo", **model}}, "recipe")


def test_every_layer_and_their_mix(elmo: Path) -> None:
    reader = qkv.load(elmo, "cpu")
    assert isinstance(reader, TextEncoder)
    layers = [reader.embed(TEXTS, layer=number) for number in range(3)]
    assert layers[0].shape == (3, 16)
    np.testing.assert_array_equal(layers[2], reader.embed(TEXTS))
    np.testing.assert_allclose(reader.embed(TEXTS, layer="mix"), np.mean(layers, 0), atol=1e-5)  # until it is fine-tuned


def test_unseen_words_differ_by_their_letters(elmo: Path) -> None:
    reader = load_text_encoder(elmo, "cpu")
    _, one, other = reader.embed(TEXTS)
    assert np.abs(one - other).max() > 1e-3
    np.testing.assert_allclose(reader.embed(TEXTS[:0:-1])[1], one, atol=1e-5)  # whatever number they had


def test_no_token_stands_for_a_text(elmo: Path) -> None:
    with pytest.raises(ConfigError, match="no token of this elmo represents a whole text; take the mean"):
        load_text_encoder(elmo, "cpu").embed(TEXTS, pooling="cls")


def test_the_mix_is_an_elmos(elmo: Path) -> None:
    reader = load_text_encoder(elmo, "cpu")
    del reader.model.encoder.mix  # as in any other encoder
    with pytest.raises(ConfigError, match="layer mix is for an elmo"):
        reader.embed(TEXTS, layer="mix")


def test_a_frozen_one_under_a_tagger_learns_its_mix_alone(elmo: Path, folder: Path) -> None:
    run = qkv.train(recipe_of("tagging", folder, elmo, frozen=True), folder / "tagger")
    before, after = (load_weights(path / "model.safetensors") for path in (elmo, run))
    shared = [name for name in after if name.startswith("encoder.")]
    changed = {name for name in shared if not torch.equal(before[name], after[name])}
    assert changed == {"encoder.mix.scores", "encoder.mix.gamma"} and len(shared) > 10
    tags = load_text_encoder(run, "cpu").predict([["The", "zzz", "tree", "grows"]])
    assert [len(one) for one in tags] == [4]


def test_all_of_it_can_be_finetuned_for_texts(elmo: Path, folder: Path) -> None:
    run = qkv.train(recipe_of("classification", folder, elmo), folder / "classifier")
    before, after = (load_weights(path / "model.safetensors") for path in (elmo, run))
    assert not torch.equal(
        before["encoder.forward_layers.0.cells.weight_ih_l0"], after["encoder.forward_layers.0.cells.weight_ih_l0"]
    )
    assert torch.equal(before["encoder.embedding.token_embedding.weight"], after["encoder.embedding.token_embedding.weight"])
    assert len(load_text_encoder(run, "cpu").predict(["The old zzz grows.", "The red ship floats."])) == 2


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"tokenizer": {"kind": "bpe"}},
            "reads whole words, and tokenizer.kind bpe gives pieces; set tokenizer.kind=words",
        ),
        (
            {"objective": {"kind": "causal"}},
            "model.kind 'elmo' is not one of gpt for objective.kind causal",
        ),
        ({"model": {"kind": "elmo", "frozen": True}}, "model.frozen=true leaves nothing to be pretrained; leave it out"),
    ],
)
def test_recipes_that_cannot_be(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as found:
        parse_recipe({**pretraining_values("bidirectional", tmp_path / "text.txt"), **change}, "recipe")
    assert told in str(found.value) and "\n" not in str(found.value)

"""A model before and after changes: output, probabilities and attention side by side, as plain values."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from inspected_models import ENCODERS, TEXT, TRANSLATORS, TREE, generator, reader, translator
from qkv.base.errors import ConfigError
from qkv.lens.changes import FixedWeight, SoftmaxTemperature, WithoutHead, WithoutLayer, changing
from qkv.lens.comparison import changed
from qkv.lens.view import MAX_WEIGHTS
from qkv.lens.word_edits import DeleteWord, MoveWord, ReplaceWord, differences, edit_words

FIRST_HEAD = WithoutHead("encoder.0.self", 0)


@pytest.mark.parametrize("name", [*TRANSLATORS, *(f"encoder {name}" for name in ENCODERS), "gpt"])
def test_every_kind_of_model(name: str, tmp_path: Path) -> None:
    text: Any = "The [MASK] brown fox." if name.startswith("encoder") else TREE if name == "structural" else TEXT
    model: Any
    if name == "gpt":
        model, first = generator(tmp_path), "decoder.0.self"
    elif name.startswith("encoder"):
        model, first = reader(name.removeprefix("encoder "), tmp_path), "encoder.0.self"
    else:
        model = translator(name)
        first = "decoder.0.cross" if name in ("rnn", "rnn, unfed", "convolution", "linformer") else "encoder.0.self"
    edits = [] if name == "structural" else [ReplaceWord(2, "lazy dog")]
    found = changed(model, text, [SoftmaxTemperature(2.0), WithoutHead(first, 0), *edits])
    values = json.loads(json.dumps(found.json(), allow_nan=False))
    assert found.texts[1] == (text if name == "structural" else str(text).replace("brown", "lazy dog"))
    assert values["before"]["output"] == model.inspect(text).output
    assert [one["name"] for one in values["moved"]] == [one.name for one in model.inspect(text).maps()]
    if name != "encoder xlnet":
        assert values["tokens"] and all(one["top_before"][0][1] >= one["before"] for one in values["tokens"])
        assert any(one["before"] != one["after"] for one in values["tokens"])
    assert first in [one["name"] for one in values["after"]["maps"]]
    assert "\n" not in repr(found)


@torch.no_grad()
def test_probabilities_and_maps_are_the_changed_models_own() -> None:
    model = translator("transformer")
    found = changed(model, TEXT, [FIRST_HEAD])
    before = model.inspect(TEXT)
    with changing(before, [FIRST_HEAD]):
        wanted, maps = before.logits().softmax(-1), {one.name: one.weights for one in model.inspect(TEXT).maps()}  # type: ignore[union-attr]
    assert [one.after for one in found.tokens] == pytest.approx([float(wanted[row, token]) for row, token in before.scored()])
    for one in found.after.maps:
        torch.testing.assert_close(one.weights, maps[one.name])
    assert not found.after.maps[0].weights[0].any() and found.moved[0].heads == pytest.approx([1.0, 0.0])


def test_a_target_is_scored_and_nothing_is_decoded() -> None:
    found = changed(translator("t5"), TEXT, [WithoutLayer("encoder.1")], target="a dog", maps=["decoder.0.cross"])
    assert found.before.output == found.after.output == "a dog"
    assert [one.name for one in found.after.maps] == ["decoder.0.cross"]


def test_the_labels_of_a_finetuned_model(tmp_path: Path) -> None:
    model = reader("bert", tmp_path, ("pooler", "classes"), ("no", "yes"), "classification")
    found = changed(model, "Paris is a city.", [SoftmaxTemperature(5.0), DeleteWord(2)])
    assert [label for label, _, _ in found.labels] == ["no", "yes"]
    for side in (1, 2):
        assert sum(one[side] for one in found.labels) == pytest.approx(1)
    assert found.labels[0][1] != found.labels[0][2]


def test_maps_that_do_not_fit_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_WEIGHTS > 0
    monkeypatch.setattr("qkv.lens.comparison.MAX_WEIGHTS", 3000)
    found = changed(translator("transformer"), TEXT, [SoftmaxTemperature(0.1)])
    assert found.left_out and found.after.maps
    assert 2 * sum(one.weights.numel() for one in found.after.maps) <= 3000


@pytest.mark.parametrize(
    ("edits", "wanted"),
    [
        ([ReplaceWord(1, "woman")], "A woman, old, sings."),
        ([DeleteWord(0)], "man, old, sings."),
        ([DeleteWord(2)], "A man old, sings."),
        ([MoveWord(3, 0)], "old A man,, sings."),
        ([MoveWord(0, 1)], "man A, old, sings."),
        ([DeleteWord(0), ReplaceWord(0, "men")], "men, old, sings."),
    ],
)
def test_edits_of_words(edits: Any, wanted: str) -> None:
    assert edit_words("A man, old, sings.", edits) == wanted


def test_edits_of_texts_without_spaces_and_of_masks() -> None:
    assert edit_words("我喜欢猫", [MoveWord(3, 0), ReplaceWord(1, "你")]) == "猫你喜欢"
    assert edit_words("The [MASK] sat.", [DeleteWord(0)]) == "[MASK] sat."
    assert differences("a big dog", "a dog sits") == [("a", "a"), ("big", ""), ("dog", "dog"), ("", "sits")]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ([DeleteWord(10)], "no word 11; its words are 1:The 2:quick .* 10:\\."),
        ([MoveWord(0, 99)], "no word 100"),
        ([FixedWeight("decoder.0.cross", 99, 0, 0.5)], r"decoder\.0\.cross has no query 100; its query tokens are 1 to "),
        ([FixedWeight("decoder.0.self", 0, 1, 0.5)], "token 1 cannot see token 2"),
        ([FixedWeight("encoder.0.self", 0, key, 0.6) for key in (1, 2)], r"token 1 in encoder\.0\.self sum to 1\.2"),
    ],
)
def test_mistakes(changes: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        changed(translator("transformer"), TEXT, changes)


def test_words_of_trees_stay() -> None:
    with pytest.raises(ConfigError, match="texts with trees"):
        changed(translator("structural"), TREE, [DeleteWord(0)])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no attention 'x'; it has"):
        changed(translator("transformer"), TEXT, [FIRST_HEAD], maps=["x"])

"""What a model loses without each head: the score's own drop, kept in the run's folder for these texts and weights."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from inspected_models import generator, reader, translator
from qkv.base.errors import DataError
from qkv.inference import head_effects as module
from qkv.inference.head_effects import head_effects, known_effects
from qkv.inference.text_generator import load_text_generator
from qkv.lens.changes import WithoutHead, changing
from qkv.lens.head_effects import FILE
from qkv.lens.view import look

TEXTS = ["The quick brown fox.", "A lazy dog sleeps."]
PAIRS = [("The quick fox.", "A dog"), ("A lazy dog sleeps.", "The fox jumps.")]


def test_the_drop_is_that_of_the_score_and_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = generator(tmp_path)
    effects = head_effects(model, TEXTS)
    tokens = sum(len(model.tokenizer.encode(text)) for text in TEXTS)
    assert effects.score == pytest.approx(sum(model.score(TEXTS)) / tokens)
    with changing(model.inspect("a", ""), [WithoutHead("decoder.1.self", 1)]):
        without = sum(model.score(TEXTS)) / tokens
    assert effects.drops["decoder.1.self"][1] == pytest.approx(effects.score - without)
    assert {name: len(heads) for name, heads in effects.drops.items()} == {f"decoder.{n}.self": 2 for n in range(3)}
    monkeypatch.setattr(module, "drops_without_each_head", None)
    assert head_effects(model, TEXTS) == effects
    fresh = load_text_generator(model.run.folder, "cpu")
    view = look(fresh, TEXTS[0])
    assert view.effects == effects
    for pattern in view.json()["patterns"]:
        assert pattern["drop"] == round(effects.drops[pattern["map"]][pattern["head"]], 4)
    file = model.run.folder / FILE
    file.write_text(json.dumps({**json.loads(file.read_text()), "weights": "others"}))
    assert known_effects(model.run.folder) is None
    file.write_text("{")
    assert known_effects(model.run.folder) is None
    with pytest.raises(DataError, match="no texts to score"):
        head_effects(model, [])


@torch.no_grad()
@pytest.mark.parametrize("name", ["transformer", "unilm", "rnn"])
def test_translators_are_scored_with_changes(name: str) -> None:
    model: Any = translator(name)
    _, inspector, score = module._scoring(model, PAIRS)
    tokens = sum(len(model.tokenizers.target.encode(target)) + 1 for _, target in PAIRS)
    assert score([]) == pytest.approx(sum(model.score(PAIRS)) / tokens, abs=1e-4)
    assert all(score([WithoutHead(one.name, 0)]) != score([]) for one in inspector.attentions())


def test_a_finetuned_model_is_scored_by_its_metric(tmp_path: Path) -> None:
    from qkv.text.examples import TextExample

    model = reader("bert", tmp_path, ("pooler", "classes"), ("no", "yes"), "classification")
    examples = [
        TextExample(text, None, label, "dev", n) for n, (text, label) in enumerate(zip(TEXTS, ["no", "yes"], strict=True))
    ]
    effects = head_effects(model, examples)
    assert effects.figure == "accuracy" and 0 <= effects.score <= 1

"""Changes to a running model: they do what they say, in full passes and in cached decoding, and leave nothing behind."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from inspected_models import ENCODERS, TEXT, TRANSLATORS, TREE, generator, reader, translator
from qkv.base.errors import ConfigError
from qkv.lens.changes import FixedWeight, SoftmaxTemperature, WithoutHead, WithoutLayer, changing

CLOSE: dict[str, float] = {"rtol": 0, "atol": 1e-5}
EVERY = [*TRANSLATORS, *(f"encoder {name}" for name in ENCODERS), "gpt"]
HEAD, QUERY, KEY, VALUE, TEMPERATURE = 0, 3, 1, 0.7, 0.5


def inspected(name: str, folder: Path, target: str | None = "a quick dog jumps") -> Any:
    if name == "gpt":
        return generator(folder).inspect(TEXT, target)
    if name.startswith("encoder"):
        return reader(name.removeprefix("encoder "), folder, heads=()).inspect(TEXT)
    return translator(name).inspect(TREE if name == "structural" else TEXT, target)


def states(inspector: Any) -> torch.Tensor:
    """Return logits, or the hidden states of an encoder without a head."""
    logits = inspector.logits()
    return inspector.network(inspector.rows, inspector.segment) if logits is None else logits


@torch.no_grad()
@pytest.mark.parametrize("name", EVERY)
def test_weights_change_as_asked_and_only_inside(name: str, tmp_path: Path) -> None:
    inspector = inspected(name, tmp_path)
    before, plain = states(inspector), {one.name: one.weights for one in inspector.maps()}
    assert [one.name for one in inspector.attentions()] == list(plain)
    for attention in inspector.attentions():
        old = plain[attention.name]
        row = old[HEAD, QUERY]

        def weights(change: Any, attention: Any = attention) -> torch.Tensor:
            with changing(inspector, [change]):
                assert not torch.equal(states(inspector), before)
                return {one.name: one.weights for one in inspector.maps()}[attention.name]

        off = weights(WithoutHead(attention.name, HEAD))
        assert not off[HEAD].any()
        torch.testing.assert_close(off[1:], old[1:], **CLOSE)
        fixed = weights(FixedWeight(attention.name, QUERY, KEY, VALUE, HEAD))[HEAD, QUERY]
        unilm = name == "unilm" and attention.part != "encoder"  # one softmax over source and target
        assert float(fixed[KEY]) == pytest.approx(VALUE, abs=1e-6)
        if not unilm:
            assert float(fixed.sum()) == pytest.approx(1, abs=1e-5)
            expected = row.index_fill(0, torch.tensor([KEY]), 0)
            torch.testing.assert_close(
                fixed.index_fill(0, torch.tensor([KEY]), 0), expected / expected.sum() * (1 - VALUE), **CLOSE
            )
            sharp = weights(SoftmaxTemperature(TEMPERATURE, attention.name, HEAD))[HEAD]
            torch.testing.assert_close(sharp, old[HEAD] ** 2 / (old[HEAD] ** 2).sum(-1, keepdim=True), **CLOSE)
    torch.testing.assert_close(states(inspector), before, rtol=0, atol=0)


@torch.no_grad()
@pytest.mark.parametrize("name", [*TRANSLATORS, "gpt"])
def test_decoding_with_caches_follows_the_changes(name: str, tmp_path: Path) -> None:
    """Each token that greedy search writes inside is the likeliest of a whole pass inside, set weights of one position too."""
    model: Any = generator(tmp_path) if name == "gpt" else translator(name)
    text = TREE if name == "structural" else TEXT
    inspector = model.inspect(text, "a quick dog jumps")
    attentions = [one.name for one in inspector.attentions()]
    layers = [found for found, _, _ in inspector.layers()]
    changes: list[Any] = [SoftmaxTemperature(3.0), WithoutHead(attentions[-1], 0)]
    changes += [FixedWeight(attention, position, 0, 0.95) for attention in attentions for position in (2, 4)]
    changes += [WithoutLayer(layers[-1])] if len(layers) > 1 else []
    empty = model.inspect(text, "")
    with changing(empty, changes):
        if name == "gpt":
            written = model.inspect(text)
        else:
            source = model.segmenter.cut(text)[0].ids
            ids = model.engine.decode([source], model.decoding(beam=1, min_length=6, max_length=7))[0][0].ids
            written = model.engine.inspect(name, model.tokenizers, source, ids, "")
        logits = written.logits()
        rows = written.scored()[:6]
        if name != "gpt":  # an end before the minimum length was not allowed
            logits[:, model.tokenizers.target.eos] = float("-inf")
        assert [int(logits[row].argmax()) for row, _ in rows] == [token for _, token in rows]
    assert not torch.allclose(written.logits(), logits)


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name in EVERY if not name.startswith("rnn")])
def test_a_layer_that_is_off_returns_its_input(name: str, tmp_path: Path) -> None:
    inspector = inspected(name, tmp_path)
    layers = list(dict.fromkeys(layer for layer, _, _ in inspector.layers()))
    if not name.startswith("encoder"):
        before = states(inspector)
        for layer in layers:
            with changing(inspector, [WithoutLayer(layer)]):
                assert not torch.allclose(states(inspector), before)
        return
    each = list(inspector.network.each_layer(inspector.rows, inspector.segment))
    for number in range(len(layers)):  # all after it are off
        with changing(inspector, [WithoutLayer(other) for other in layers[number:]]):
            torch.testing.assert_close(states(inspector), each[number], **CLOSE)


@torch.no_grad()
def test_other_threads_do_not_see_a_change(tmp_path: Path) -> None:
    inspector = inspected("transformer", tmp_path)
    before = inspector.logits()

    def elsewhere() -> torch.Tensor:
        with torch.no_grad():
            return inspector.logits()

    with ThreadPoolExecutor(1) as pool, changing(inspector, [WithoutLayer("decoder.0"), SoftmaxTemperature(0.1)]):
        torch.testing.assert_close(pool.submit(elsewhere).result(), before, rtol=0, atol=0)


@torch.no_grad()
def test_a_weight_of_one_leaves_nothing_for_the_others_and_zero_can_be_made_up(tmp_path: Path) -> None:
    inspector = inspected("transformer", tmp_path)
    for value, others in ((1.0, 0.0), (0.0, 1.0)):
        with changing(inspector, [SoftmaxTemperature(1e-6, "encoder.0.self"), FixedWeight("encoder.0.self", 1, 2, value)]):
            row = inspector.maps()[0].weights[:, 1]
        assert row.isfinite().all() and torch.allclose(row[:, 2], torch.tensor(value))
        torch.testing.assert_close(row.sum(-1) - row[:, 2], torch.full((2,), others), **CLOSE)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (WithoutHead("decoder.8.cross"), r"no attention 'decoder\.8\.cross'; it has encoder\.0\.self.*cross\.1 to cross\.3"),
        (WithoutHead("encoder.0.self", 2), r"encoder\.0\.self has no head 2; it has 2, from 0 to 1, as options 1 to 2"),
        (WithoutLayer("encoder.5"), r"no layer 'encoder\.5'; its layers are encoder\.0, .* encoder\.1 to encoder\.2"),
        (SoftmaxTemperature(0.0), "temperature of 0 is not above 0"),
        (SoftmaxTemperature(float("nan")), "temperature of nan is not above 0"),
        (FixedWeight("encoder.0.self", 0, 0, 1.5), "weight of 1.5 is not between 0 and 1"),
    ],
)
def test_what_a_model_does_not_have_is_refused(change: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says), changing(inspected("transformer", tmp_path), [change]):
        pass

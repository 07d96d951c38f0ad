"""Patching: the batched grids are those of one cell at a time, written down by hand for each kind of network."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import qkv
from inspected_models import generator, reader, translator
from qkv.base.errors import ConfigError, DataError
from qkv.base.rows import padded_rows
from qkv.lens import patching

CLOSE: dict[str, float] = {"rtol": 0, "atol": 1e-4}
TEXTS = ("The quick brown fox", "The quick brown dog")
MASKED = ("The quick [MASK] fox over", "The quick [MASK] dog over")


class Place(NamedTuple):
    """A module whose output (a layer), or whose input (heads), is replaced."""

    module: nn.Module
    call: int = 0  # which of its calls
    heads: int = 0
    length: int = 0  # tokens of its text


def replaced(place: Place, take: Callable[[Tensor], Tensor | None], run: Callable[[], Tensor]) -> Tensor:
    """Run with the values at a place replaced by what `take` returns."""
    calls = 0

    def hook(_: nn.Module, inputs: Any, output: Any = None) -> Any:
        nonlocal calls
        calls += 1
        return take(inputs[0] if place.heads else output) if calls == place.call + 1 else None

    register = place.module.register_forward_pre_hook if place.heads else place.module.register_forward_hook
    handle = register(hook)
    try:
        return run()
    finally:
        handle.remove()


def by_hand(place: Place, runs: tuple[Callable[[], Tensor], Callable[[], Tensor]], answer: int, instead: int) -> list[float]:
    """Return the shares that each head or each position restores, one pass each; runs return logits (V,)."""
    clean, other = runs
    kept: list[Tensor] = []
    after = replaced(place, lambda values: kept.append(values.clone()), clean)
    before = other()

    def put(index: Any) -> Callable[[Tensor], Tensor]:
        def change(values: Tensor) -> Tensor:
            values = values.clone()
            values[index] = kept[0][index]
            return values

        return change

    width = kept[0].size(-1) // max(place.heads, 1)
    indices: list[Any] = [(0, slice(None), slice(n * width, (n + 1) * width)) for n in range(place.heads)]
    if not place.heads:
        streams = range(0, kept[0].size(1), place.length)  # an XLNet has two side by side
        indices = [(0, [first + n for first in streams]) for n in range(place.length)]
    found = [replaced(place, put(index), other) for index in indices]
    low, high = (float(one[answer] - one[instead]) for one in (before, after))
    return [(float(one[answer] - one[instead]) - low) / (high - low) for one in found]


def compare(view: patching.PatchView, places: dict[str, Place], runs: Any) -> None:
    rows = {row.site.name: row.values for row in (*view.heads, *view.states)}
    assert rows.keys() == places.keys()
    assert any(0.01 < abs(value) < 0.99 for values in rows.values() for value in values.tolist())
    for name, place in places.items():
        hand = torch.tensor(by_hand(place, runs, view.answer, view.instead))
        torch.testing.assert_close(rows[name], hand, **CLOSE, msg=lambda text, name=name: f"{name}: {text}")


def stack_places(layers: list[nn.Module], attentions: list[Any], length: int, part: str) -> dict[str, Place]:
    places = {}
    for n, (layer, attention) in enumerate(zip(layers, attentions, strict=True)):
        shared = layers[:n].count(layer)
        places[f"{part}.{n}"] = Place(layer, shared, length=length)
        places[f"{part}.{n}.self"] = Place(attention.out, attentions[:n].count(attention), heads=2)
    return places


@torch.no_grad()
@pytest.mark.parametrize("name", ["bert", "albert", "xlnet"])
def test_grids_of_encoders(name: str, tmp_path: Path) -> None:
    head = "language_model" if name == "xlnet" else "masked"
    loaded = reader(name, tmp_path, (head,))
    view = qkv.patch(loaded, *MASKED)
    network: Any = loaded.model.encoder
    length = len(view.json()["source"])

    def run(text: str) -> Tensor:
        ids = torch.tensor([loaded.masked(text)])
        rows = padded_rows(ids, torch.ones_like(ids, dtype=torch.bool))
        return loaded.model.heads[head](network.states_at_masked(rows, ids == loaded.mask_id))[0]

    if name == "albert":
        layers = [network.feedforward_blocks[0]] * 3
        attentions = [network.attention_blocks[0].attention] * 3
    else:
        layers, attentions = list(network.layers), [layer.attention for layer in network.layers]
    places = stack_places(layers, attentions, length, "encoder")
    compare(view, places, tuple(lambda text=text: run(text) for text in MASKED))


@torch.no_grad()
def test_grids_of_a_gpt(tmp_path: Path) -> None:
    loaded = generator(tmp_path)
    texts = ("The fox jumps over", "The dog jumps over")
    view = qkv.patch(loaded, *texts)
    gpt: Any = loaded.causal_lm.gpt

    def run(text: str) -> Tensor:
        ids = torch.tensor([loaded.prompt(text)])
        return gpt.logits(gpt(padded_rows(ids, torch.ones_like(ids, dtype=torch.bool))))[0, -1]

    places = stack_places(list(gpt.layers), [one.attention for one in gpt.layers], len(view.json()["source"]), "decoder")
    compare(view, places, tuple(lambda text=text: run(text) for text in texts))
    first = view.json()["differs"][0]
    assert first > 0 and all(not any(row["values"][:first]) for row in view.json()["states"])  # the past is the same


@torch.no_grad()
@pytest.mark.parametrize("name", ["transformer", "t5", "convolution", "unilm"])
def test_grids_of_translators(name: str) -> None:
    loaded = translator(name)
    view = qkv.patch(loaded, *TEXTS)
    network: Any = loaded.engine.model  # type: ignore[attr-defined]
    read = view.contrast.clean.texts["read"].ids

    def run(text: str) -> Tensor:
        source = torch.tensor([loaded.segmenter.cut(text)[0].ids])
        target = torch.tensor([read[source.size(1) :] if name == "unilm" else read])
        rows = [padded_rows(ids, torch.ones_like(ids, dtype=torch.bool)) for ids in (source, target)]
        hidden = network(*rows)[0, -1:]
        return (network.heads["masked"](hidden) if name == "unilm" else network.logits(hidden))[0]

    if name == "unilm":
        layers = list(network.encoder.layers)
        places = stack_places(layers, [layer.attention for layer in layers], len(read), "encoder")
    else:
        length = len(view.json()["source"])
        places = {f"encoder.{n}": Place(layer, length=length) for n, layer in enumerate(network.encoder)}
        places |= {f"decoder.{n}": Place(layer, length=len(read)) for n, layer in enumerate(network.decoder)}
        if name == "convolution":
            places |= {f"decoder.{n}.cross": Place(one.cross.context, heads=1) for n, one in enumerate(network.decoder)}
        else:
            places |= {f"encoder.{n}.self": Place(one.attention.out, heads=2) for n, one in enumerate(network.encoder)}
            places |= {f"decoder.{n}.self": Place(one.attention.out, heads=2) for n, one in enumerate(network.decoder)}
            places |= {f"decoder.{n}.cross": Place(one.cross.out, heads=2) for n, one in enumerate(network.decoder)}
    compare(view, places, tuple(lambda text=text: run(text) for text in TEXTS))
    assert float(view.states[-1].values[-1]) == pytest.approx(1, abs=1e-4)  # nothing is computed after it
    if name != "convolution":
        assert {row.site.part for row in qkv.patch(loaded, *TEXTS, position=2).heads} == {"encoder"}


def test_translations_give_the_answer_or_it_is_given() -> None:
    loaded = translator("transformer")
    first, second = ([*loaded.n_best([text])[0][0].pieces[0][1]] for text in TEXTS)
    view = qkv.patch(loaded, *TEXTS)
    at = next(n for n, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1])
    assert (view.answer, view.instead) == (first[at], second[at]) and view.contrast.clean.positions[0] == at
    given = qkv.patch(loaded, *TEXTS, answer="fox", instead="dog", target="the lazy fox jumps")
    clean = given.contrast.clean
    assert clean.tokenizer.decode(clean.texts["read"].ids[1:]) == "the lazy"
    assert clean.tokenizer.pieces([given.answer])[0] in "▁fox" and given.answer != given.instead
    assert qkv.patch(loaded, *TEXTS, answer="fox", target="the lazy fox jumps").answer == given.answer
    same = qkv.patch(loaded, *TEXTS, target="the lazy fox jumps")
    assert same.differences["clean"] > same.differences["corrupted"]
    assert repr(same).startswith("PatchView(transformer: 'The quick brown fox' / 'The quick brown dog', ")


def test_passes_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = translator("transformer")
    one = qkv.patch(loaded, *TEXTS)
    monkeypatch.setattr(patching, "PASS_TOKENS", 40)
    for row, other in zip([*one.heads, *one.states], [*(again := qkv.patch(loaded, *TEXTS)).heads, *again.states], strict=True):
        torch.testing.assert_close(row.values, other.values, **CLOSE)
    assert not any("forward" in vars(module) for module in loaded.engine.model.modules())  # type: ignore[attr-defined]
    monkeypatch.setattr(patching, "MAX_TOKENS", 100)
    with pytest.raises(DataError, match="more than 100 tokens to compute; shorten the texts"):
        qkv.patch(loaded, *TEXTS)


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    loaded, gpt, bert = translator("transformer"), generator(tmp_path), reader("bert", tmp_path)
    wrong: list[tuple[Any, tuple[str, ...], dict[str, Any], str]] = [
        (loaded, ("The quick fox", "The quick lazy fox"), {}, r"have \d and \d tokens, and differ in “” / “lazy”"),
        (loaded, ("The fox", "The fox"), {}, "both texts are the same"),
        (loaded, TEXTS, {"answer": "Wiese"}, "which has no word “Wiese”"),
        (loaded, TEXTS, {"instead": "fox"}, "the alternative needs an answer"),
        (loaded, TEXTS, {"position": 99}, "no position 100"),
        (translator("convolution"), TEXTS, {"position": 1}, "no heads of this model are over the text"),
        (translator("rnn"), TEXTS, {}, "do not add to one state of each token"),
        (gpt, TEXTS, {"target": "dog"}, "target is for translators"),
        (gpt, TEXTS, {"answer": "fox", "instead": "fox"}, "begin with the same token"),
        (bert, TEXTS, {}, r"there is no \[MASK\]"),
        (bert, ("[MASK] [MASK] fox", "[MASK] [MASK] dog"), {}, r"exactly one \[MASK\]"),
        (bert, ("The [MASK] fox fox", "The fox [MASK] dog"), {}, r"\[MASK\] is not at the same position"),
        (bert, MASKED, {"answer": "Donaudampfschiff"}, r"is more than one token of this model"),
    ]
    for run, texts, options, said in wrong:
        with pytest.raises((ConfigError, DataError), match=said) as raised:
            qkv.patch(run, *texts, **options)
        assert "\n" not in str(raised.value) and not re.search(r"tensor|<qkv", str(raised.value))
    with pytest.raises(ConfigError, match="patch takes a second text, got int"):
        qkv.patch(loaded, "a", 3)  # type: ignore[arg-type]

"""ELMo: what each direction sees, word embeddings from characters, the weighted sum of layers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.base.characters import PADDING, character_ids
from qkv.base.config import parse
from qkv.base.errors import ConfigError, DataError
from qkv.base.rows import Rows, padded_rows
from qkv.models.elmo import SIZES, Elmo, ElmoConfig, ScalarMix
from qkv.parts import characters
from qkv.parts.characters import CharacterEmbedding
from qkv.training.captured import recordable

WORDS = ["a", "cat", "cats", "sat", "on", "the", "matter", "Über", "猫", "unbelievable"]
SHAPE: dict[str, Any] = {
    "width": 12,
    "lstm_width": 10,
    "character_width": 5,
    "filters": ((1, 3), (2, 4), (4, 6)),
    "max_characters": 10,
}
VOCAB = 4 + len(WORDS)


def make(**options: Any) -> Elmo:
    torch.manual_seed(1)
    elmo = Elmo(ElmoConfig(**{**SHAPE, **options}), VOCAB).eval()
    elmo.embedding.token_embedding.set_vocabulary(character_ids([0, 1, 2, 3, *WORDS], elmo.config.max_characters))
    return elmo


def rows_of(*texts: list[int]) -> Rows:
    """Build rows of one text each, padded with arbitrary tokens."""
    width = max(map(len, texts)) + 2
    keep = torch.tensor([[position < len(text) for position in range(width)] for text in texts])
    return padded_rows(torch.tensor([text + [9] * (width - len(text)) for text in texts]), keep)


def last_ways(elmo: Elmo, rows: Rows) -> tuple[Tensor, Tensor]:
    *_, both = elmo.both_directions(rows)
    return both


def test_right_to_left_is_left_to_right_on_the_turned_text() -> None:
    elmo, other = make(), make()
    with torch.no_grad():
        for parameter in elmo.parameters():
            if parameter.is_floating_point():
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    swapped = {
        name.replace("forward_layers", "x").replace("backward_layers", "forward_layers").replace("x.", "backward_layers."): value
        for name, value in elmo.state_dict().items()
        if "ward" in name
    }
    other.load_state_dict({**elmo.state_dict(), **swapped})
    text = [2, 5, 8, 6, 4, 3]
    ahead, back = last_ways(elmo, rows_of(text, [2, 3]))
    other_ahead, other_back = last_ways(other, rows_of(text[::-1], [3, 2]))
    torch.testing.assert_close(back[0, :6], other_ahead[0, :6].flip(0))
    torch.testing.assert_close(ahead[0, :6], other_back[0, :6].flip(0))
    torch.testing.assert_close(back[1, :2], other_ahead[1, :2].flip(0))
    assert not torch.allclose(ahead[0, :6], other_ahead[0, :6], atol=1e-3)


def test_a_new_model_distinguishes_positions() -> None:
    """With torch's own initialisation the second layer's states would hardly differ between positions."""
    torch.manual_seed(1)
    elmo = Elmo(ElmoConfig(**SIZES["mini"]), VOCAB)
    elmo.embedding.token_embedding.set_vocabulary(character_ids([0, 1, 2, 3, *WORDS], elmo.config.max_characters))
    for layer in elmo.each_layer(rows_of([4 + number for number in range(10)])):
        assert layer[0, :10].std(0).square().mean().sqrt() > 0.1


@pytest.mark.parametrize("changed", range(6))
def test_a_direction_sees_only_what_it_has_read(changed: int) -> None:
    elmo, text = make(), [2, 5, 8, 6, 4, 3]
    other = [9 if position == changed else word for position, word in enumerate(text)]
    for layer in zip(elmo.both_directions(rows_of(text)), elmo.both_directions(rows_of(other)), strict=True):
        (ahead, back), (other_ahead, other_back) = layer
        torch.testing.assert_close(ahead[0, :changed], other_ahead[0, :changed])
        torch.testing.assert_close(back[0, changed + 1 : 6], other_back[0, changed + 1 : 6])
    for one, two in ((ahead[0, changed:6], other_ahead[0, changed:6]), (back[0, : changed + 1], other_back[0, : changed + 1])):
        assert bool(((one - two).abs().amax(-1) > 1e-5).all())


def test_what_stands_beside_a_text_changes_nothing() -> None:
    elmo, text = make(), [2, 5, 8, 3]
    single = elmo(rows_of(text))[0, :4]
    beside = elmo(rows_of([2, 7, 7, 7, 10, 11, 12, 3], text))[1, :4]
    torch.testing.assert_close(beside, single)


def test_rows_with_several_texts_are_refused() -> None:
    rows = rows_of([2, 5, 8, 3])
    with pytest.raises(DataError, match="several texts"):
        make()(rows._replace(text=torch.tensor([[1, 1, 2, 2, 0, 0]])))


def by_hand(words: CharacterEmbedding, symbols: Tensor) -> Tensor:
    """Compute one word's vector by loops over windows, filters and characters. (C,) -> (D,)."""
    letters = [words.character_embedding.weight[s] for s in symbols.tolist() if s != PADDING]
    nothing = torch.zeros_like(letters[0])
    values = []
    for convolution in words.filters:
        (wide,) = convolution.kernel_size
        for weight, bias in zip(convolution.weight, convolution.bias, strict=True):
            sums = []
            for begin in range(len(letters)):
                window = [letters[begin + k] if begin + k < len(letters) else nothing for k in range(wide)]
                sums.append(bias + sum((weight[:, k] * letter).sum() for k, letter in enumerate(window)))
            values.append(max(sums).clamp(min=0))
    x = torch.stack(values)
    for highway in words.highway_layers:
        gate = torch.sigmoid(highway.gate.weight @ x + highway.gate.bias)
        changed = (highway.transform.weight @ x + highway.transform.bias).clamp(min=0)
        x = torch.stack([g * c + (1 - g) * v for g, c, v in zip(gate, changed, x, strict=True)])
    return words.projection.weight @ x + words.projection.bias


@torch.no_grad()
def test_character_convolutions_equal_loops() -> None:
    words: Any = make().embedding
    symbols = words.token_embedding(torch.arange(VOCAB))
    expected = torch.stack([by_hand(words, one) for one in symbols])
    torch.testing.assert_close(words.embed_characters(symbols), expected)  # at the table's full width
    ids = torch.tensor([[4, 4, 13, 0], [12, 2, 7, 4]])
    torch.testing.assert_close(words(ids), expected[ids])  # each different word once


@pytest.mark.parametrize("lengths", [range(1, 41), [3, 3, 3], [30, 2], [7, 10, 14, 20], [8], [48, 21, 20]])
def test_words_are_embedded_in_groups_of_similar_length(lengths: Sequence[int]) -> None:
    torch.manual_seed(1)
    words = CharacterEmbedding(len(lengths), 50, 5, ((1, 3), (2, 4), (4, 6)), 1, 8, "relu")
    words.token_embedding.set_vocabulary(character_ids(["a" * length + "b" for length in lengths], 50))
    ids = torch.randperm(len(lengths)).repeat(2, 1)
    found, wanted = words(ids), words.embed_characters(words.token_embedding(ids[0])).expand(2, -1, -1)
    torch.testing.assert_close(found, wanted)
    learned = [parameter for parameter in words.parameters() if parameter.requires_grad]
    upstream = torch.randn_like(found)
    for one, other in zip(*(torch.autograd.grad(out, learned, upstream) for out in (found, wanted)), strict=True):
        torch.testing.assert_close(one, other)


def test_the_maximum_over_a_word_has_the_gradient_of_amax(monkeypatch: pytest.MonkeyPatch) -> None:
    words, found, in_bf16 = make().embedding, [], []
    ids = torch.tensor([[4, 9, 13, 0], [11, 2, 7, 4]])
    learned = [parameter for parameter in words.parameters() if parameter.requires_grad]
    for maximum in (characters._MaxOverTime.apply, characters._max_over_time):
        monkeypatch.setattr(characters._MaxOverTime, "apply", maximum)
        out = words(ids)
        found.append((out, *torch.autograd.grad(out.square().sum(), learned)))
        with torch.autocast("cpu", torch.bfloat16):
            in_bf16.append(words(ids))
    torch.testing.assert_close(*found)
    assert in_bf16[0].dtype == torch.bfloat16 and torch.equal(*in_bf16)  # gradients differ: roundings are often equal


def test_the_first_of_equal_values_gets_the_gradient() -> None:
    windows = torch.tensor([[[1.0], [3.0], [3.0], [9.0]]], requires_grad=True)
    padding = torch.tensor([[[False], [False], [False], [True]]])
    largest = characters._MaxOverTime.apply(windows, torch.tensor([[2.0]]), torch.tensor([1.0]), padding)
    assert largest.tolist() == [[7.0]]
    largest.sum().backward()
    assert windows.grad is not None and windows.grad.flatten().tolist() == [0, 2, 0, 0]


def test_lengths_of_words_follow_a_change_of_the_vocabulary() -> None:
    words, ids = make().embedding, torch.arange(VOCAB)[None]
    words(ids)
    words.token_embedding.set_vocabulary(character_ids(["a" * (1 + n % 9) for n in range(VOCAB)], 10))
    torch.testing.assert_close(words(ids)[0], words.embed_characters(words.token_embedding(ids[0])))


def test_words_beyond_a_group_are_not_computed_at_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    words, computed, multiply = make().embedding, [], F.linear

    def linear(x: Tensor, *weights: Tensor) -> Tensor:
        computed.append(x.shape[:-1])
        return multiply(x, *weights)

    monkeypatch.setattr(F, "linear", linear)
    words(torch.tensor([[4, 5, 13, 8, 13]]))  # "a", "cat", "unbelievable" cut to 8 letters, "on"
    assert computed[:2] == [(3, 5), (1, 10)]


@torch.no_grad()
def test_unseen_words_are_embedded_by_their_characters() -> None:
    words: Any = make().embedding
    words.token_embedding.set_unseen(character_ids(["dog", "cat"], 10))
    seen, unseen, dog = words(torch.tensor([[5, VOCAB + 1, VOCAB]]))[0]
    torch.testing.assert_close(seen, unseen)
    assert not torch.allclose(seen, dog, atol=1e-3)
    assert "unseen" not in "".join(words.state_dict())


def test_spelling() -> None:
    long, short, control, letters = character_ids(["unbelievable", "ü", 2, "<s>"], 6)
    assert long.tolist() == [1, *(3 + byte for byte in b"unbe"), 2]
    assert short.tolist() == [1, 3 + 0xC3, 3 + 0xBC, 2, 0, 0]
    assert control.tolist()[:3] == [1, 3 + 256 + 2, 2] and not np.array_equal(control, letters)


def test_the_mix_is_equation_1() -> None:
    torch.manual_seed(2)
    layers, mix = [torch.randn(2, 3, 4) for _ in range(3)], ScalarMix(3)
    torch.testing.assert_close(mix(layers), sum(layers) / 3)
    with torch.no_grad():
        mix.scores.copy_(torch.tensor([0.5, -1.0, 2.0]))
        mix.gamma.fill_(1.7)
    shares = F.softmax(torch.tensor([0.5, -1.0, 2.0]), 0)
    expected = 1.7 * sum(share * layer for share, layer in zip(shares, layers, strict=True))
    torch.testing.assert_close(mix(layers), expected)


def test_each_layer_begins_with_the_word_embeddings() -> None:
    elmo, rows = make(), rows_of([2, 5, 8, 6, 3])
    layers = [*elmo.each_layer(rows)]
    assert [tuple(layer.shape) for layer in layers] == [(1, 7, 12)] * 3
    torch.testing.assert_close(layers[0][..., :6], layers[0][..., 6:])
    torch.testing.assert_close(elmo(rows), sum(layers) / 3)
    raw = elmo.forward_layers[1](layers[1][..., :6])
    torch.testing.assert_close(layers[2][..., :6], raw + layers[1][..., :6])  # the residual


def test_a_frozen_elmo_trains_only_its_scalar_mix() -> None:
    elmo, rows = make(frozen=True, dropout=0.5).train(), rows_of([2, 5, 8, 6, 3])
    assert torch.equal(elmo(rows), elmo(rows))
    elmo(rows).sum().backward()
    assert {name for name, p in elmo.named_parameters() if p.grad is not None} == {"mix.scores", "mix.gamma"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 13}, "width 13 is odd"),
        ({"attention": "window"}, "unknown key 'attention'"),
        ({"filters": []}, "pairs of a width"),
        ({"filters": [[0, 3]]}, "pairs of a width"),
        ({"max_characters": 2}, "greater than 2"),
        ({"positions": "learned"}, "positions"),
        ({"heads": 2}, "heads"),
    ],
)
def test_bad_shapes(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as found:
        parse(ElmoConfig, {"kind": "elmo", **options}, "model")
    assert "\n" not in str(found.value)


def test_its_updates_are_not_recorded_as_a_graph() -> None:
    """The number of different words decides what is computed."""
    assert not recordable(make()) and recordable(nn.Sequential(nn.Linear(2, 2)))

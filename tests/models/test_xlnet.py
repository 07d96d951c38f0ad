"""XLNet: the masks of both streams, separate texts of a row, the summary token last, the memory."""

from itertools import permutations
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from qkv.base.config import parse
from qkv.base.errors import ConfigError
from qkv.base.rows import Rows, padded_rows
from qkv.lens.capture import capture
from qkv.models.xlnet import Xlnet, XlnetConfig
from qkv.parts.two_stream import pick_distances, relative_shift, restore_order, stream_masks, with_summary_last

VOCAB = 30
SHAPE: dict[str, Any] = {"width": 16, "feedforward": 24, "heads": 2, "layers": 2, "dropout": 0.0}


def make(**options: Any) -> Xlnet:
    torch.manual_seed(3)
    xlnet = Xlnet(XlnetConfig(**{**SHAPE, **options}), VOCAB).eval()
    with torch.no_grad():
        for parameter in xlnet.parameters():
            parameter += 0.3 * torch.randn_like(parameter)  # so that every weight matters
    return xlnet


def row_of(*lengths: int, width: int, seed: int = 1) -> Rows:
    """Build one row of texts side by side."""
    ids = torch.randint(1, VOCAB, (1, width), generator=torch.Generator().manual_seed(seed))
    text, position = torch.zeros_like(ids), torch.zeros_like(ids)
    at = 0
    for number, length in enumerate(lengths):
        text[0, at : at + length], position[0, at : at + length] = number + 1, torch.arange(length)
        at += length
    return Rows(ids, text, position)


def changed(rows: Rows, position: int) -> Rows:
    ids = rows.ids.clone()
    ids[0, position] = (ids[0, position] + 1) % VOCAB
    return rows._replace(ids=ids)


def test_a_position_attends_exactly_to_earlier_ones_in_every_order() -> None:
    text, segment, where = torch.ones(1, 4).long(), torch.zeros(1, 4).long(), torch.arange(4)[None]
    for order in permutations(range(4)):  # order[n] is the position with rank n
        rank = torch.tensor([[order.index(position) for position in range(4)]])
        both, query = stream_masks(text, segment, rank, where, None)
        assert torch.equal(both.mask[:, :, 4:], query.mask)
        for turn, position in enumerate(order):
            seen = {key for key in range(4) if both.mask[0, 0, position, key]}
            assert seen == set(order[: turn + 1])
            assert {key for key in range(4) if query.mask[0, 0, position, key]} == set(order[:turn])


@torch.no_grad()
def test_streams_depend_only_on_visible_tokens() -> None:
    """Through two layers: changing a token does not change the query stream at its position."""
    xlnet, rows, segment = make(), row_of(6, width=6), torch.zeros(1, 6).long()
    where = torch.arange(6)[None]
    rank = torch.tensor([[3, 0, 5, 1, 4, 2]])
    before = xlnet.both_streams(rows, segment, rank, where)
    for position in range(6):
        after = xlnet.both_streams(changed(rows, position), segment, rank, where)
        for stream, limit in ((0, rank[0, position]), (1, rank[0, position] + 1)):
            old, new = before[stream], after[stream]
            assert isinstance(old, Tensor) and isinstance(new, Tensor)
            noticed = (old - new).abs().amax(-1)[0] > 1e-6
            first = int(rank[0].min()) if stream else -1  # the first in the order sees nothing, and gets the mean of all
            expected = (rank[0] >= limit) | (rank[0] == first) if stream else rank[0] >= limit
            assert noticed.tolist() == expected.tolist()


@torch.no_grad()
def test_masked_positions_are_predicted_from_all_others_alone() -> None:
    """Check masked positions of two texts in a row: each is predicted from its own text, in the order of positions."""
    xlnet, rows, hidden = make(), row_of(5, 4, width=10), torch.zeros(1, 10).bool()
    hidden[0, [2, 4, 6]] = True
    found = xlnet.states_at_masked(rows, hidden)
    assert len(found) == 3
    for position in range(9):
        moved = (xlnet.states_at_masked(changed(rows, position), hidden) - found).abs().amax(-1) > 1e-5
        assert moved.tolist() == [not hidden[0, position] and (position < 5) == first for first in (True, True, False)]
    turned, segment, source = with_summary_last(rows, None)
    where = hidden.gather(1, source).nonzero()[:, 1][None]
    rank = torch.zeros_like(turned.ids).scatter(1, where, 1)
    torch.testing.assert_close(found, xlnet.query_stream(turned, segment, rank, where)[0][0])


def test_no_gradient_comes_from_a_token_that_is_guessed() -> None:
    xlnet, rows = make(), row_of(5, width=5)
    rows = rows._replace(ids=torch.tensor([[1, 2, 3, 4, 5]]))
    where, rank = torch.tensor([[2]]), torch.tensor([[0, 0, 1, 0, 0]])
    found = xlnet.both_streams(rows, torch.zeros(1, 5).long(), rank, where)
    assert found.query is not None
    found.query.square().sum().backward(retain_graph=True)
    gradient = xlnet.embedding.token_embedding.weight.grad
    assert gradient is not None
    assert not gradient[3].any() and gradient[[1, 2, 4, 5]].any(1).all()
    xlnet.zero_grad()
    found.content[:, 2].square().sum().backward()
    assert xlnet.embedding.token_embedding.weight.grad is not None and xlnet.embedding.token_embedding.weight.grad[3].any()


@torch.no_grad()
def test_texts_of_a_row_are_read_as_if_alone() -> None:
    xlnet, together = make(), row_of(5, 3, 6, width=17)
    segment = torch.tensor([[0, 0, 0, 1, 1, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0]])
    rank = torch.tensor([[0, 2, 0, 1, 0, 0, 1, 0, 3, 0, 2, 0, 0, 1, 0, 0, 0]])
    where = torch.tensor([[1, 3, 6, 8, 10, 13]])
    found, whole = xlnet.both_streams(together, segment, rank, where), xlnet(together, segment)
    assert found.query is not None
    for start, length, guessed in ((0, 5, [0, 1]), (5, 3, [2]), (8, 6, [3, 4, 5])):
        here = slice(start, start + length)
        single = padded_rows(together.ids[:, here], torch.ones(1, length).bool())
        own = xlnet.both_streams(single, segment[:, here], rank[:, here], where[:, guessed] - start)
        assert own.query is not None
        torch.testing.assert_close(found.content[:, here], own.content)
        torch.testing.assert_close(found.query[:, guessed], own.query)
        torch.testing.assert_close(whole[:, here], xlnet(single, segment[:, here]))


def test_the_first_token_becomes_the_last_of_its_text_and_comes_back() -> None:
    rows = row_of(4, 1, 3, width=10)._replace(ids=torch.arange(10)[None])
    turned, segment, source = with_summary_last(rows, torch.tensor([[0, 0, 1, 1, 0, 0, 0, 1, 0, 0]]))
    assert turned.ids.tolist() == [[1, 2, 3, 0, 4, 6, 7, 5, 8, 9]]
    assert segment.tolist() == [[0, 1, 1, 2, 2, 0, 1, 2, 0, 0]]
    back = restore_order(turned.ids[..., None].float(), source)
    assert back[0, :, 0].tolist() == list(range(10))


@torch.no_grad()
def test_layers_end_with_what_the_model_gives() -> None:
    xlnet, rows = make(layers=3), row_of(5, 3, width=9)
    layers = list(xlnet.each_layer(rows))
    assert len(layers) == 4
    torch.testing.assert_close(layers[0][rows.text > 0], xlnet.embedding.token_embedding(rows.ids)[rows.text > 0])
    torch.testing.assert_close(layers[-1], xlnet(rows))


@torch.no_grad()
def test_a_memory_is_what_layers_were_given_before() -> None:
    """With one layer, a row in two halves equals the whole row with a causal order."""
    xlnet, rows, segment = make(layers=1), row_of(8, width=8), torch.zeros(1, 8).long()
    halves = [Rows(*(values[:, half] for values in rows[:3])) for half in (slice(4), slice(4, 8))]
    rank = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1]])
    whole = xlnet.both_streams(rows, segment, rank)
    first = xlnet.both_streams(halves[0], segment[:, :4], keep=10)
    assert first.memory is not None and first.memory.text.shape == (1, 4)
    second = xlnet.both_streams(halves[1], segment[:, 4:], memory=first.memory, keep=6)
    torch.testing.assert_close(torch.cat([first.content, second.content], 1), whole.content)
    assert second.memory is not None and second.memory.states[0].shape == (1, 6, 16)


def test_nothing_is_learned_through_a_memory() -> None:
    xlnet, rows, segment = make(), row_of(4, width=4), torch.zeros(1, 4).long()
    rows = rows._replace(ids=torch.tensor([[1, 2, 3, 4]]))
    memory = xlnet.both_streams(rows, segment, keep=4).memory
    later = rows._replace(ids=torch.tensor([[5, 6, 7, 8]]))
    xlnet.both_streams(later, segment, memory=memory).content.square().sum().backward()
    gradient = xlnet.embedding.token_embedding.weight.grad
    assert gradient is not None and not gradient[1:5].any() and gradient[5:9].any(1).all()


def test_scores_of_distances() -> None:
    asked, seen = 3, 5
    distance = torch.arange(seen, -asked, -1).float().expand(1, 2, asked, -1)  # a different number for each distance
    wanted = (torch.arange(asked)[:, None] + seen - asked - torch.arange(seen)).float()
    assert torch.equal(relative_shift(distance, seen)[0, 0], wanted)
    where = torch.tensor([[2, 0]])
    assert torch.equal(pick_distances(distance[:, :, :2], where, seen)[0, 1], wanted[[2, 0]])


@torch.no_grad()
def test_weights_can_be_captured() -> None:
    xlnet, rows = make(), row_of(5, width=6)
    with capture(xlnet) as seen:
        xlnet(rows)
    assert list(seen) == ["layers.0.attention", "layers.1.attention"]
    assert all(weights.shape == (1, 2, 6, 6) for weights in seen.values())
    torch.testing.assert_close(seen["layers.0.attention"][:, :, :5].sum(-1), torch.ones(1, 2, 5))


@torch.no_grad()
def test_in_bf16_it_is_nearly_the_same() -> None:
    xlnet, rows = make(), row_of(5, 4, width=10)
    plain = xlnet(rows)
    with torch.autocast("cpu", torch.bfloat16):
        low = xlnet(rows)
    assert torch.isfinite(low).all() and float((plain - low)[rows.text > 0].abs().mean()) < 0.05


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 15, "heads": 3}, "width: input should be a multiple of 2, got 15"),
        ({"attention": "window"}, "this model has full attention, not window; leave model.attention out"),
        ({"positions": "learned"}, "positions: input should be 'none', got 'learned'"),
        ({"segments": 3}, "segments: input should be 2, got 3"),
    ],
)
def test_invalid_shapes_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, ValidationError)) as refused:
        parse(XlnetConfig, {**SHAPE, "kind": "xlnet", **options}, "model")
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_heads_that_do_not_divide_the_width() -> None:
    with pytest.raises(ConfigError, match="width 16 does not split into 3 heads"):
        Xlnet(XlnetConfig(**{**SHAPE, "heads": 3}), VOCAB)

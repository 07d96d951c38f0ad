"""UniLM: one network, and the attention masks of its four modes."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from qkv.base.rows import Rows, padded_rows
from qkv.models.unilm import Unilm, UnilmConfig
from qkv.parts.modes import LEFT_TO_RIGHT, RIGHT_TO_LEFT, SOURCE, TARGET

VOCAB = 30
SCHEMES = ["learned", "none", "relative", "rotary", "alibi"]


def make(**options: Any) -> Unilm:
    torch.manual_seed(1)
    shape = {"width": 32, "feedforward": 48, "heads": 4, "layers": 3, "max_positions": 40, **options}
    unilm = Unilm(UnilmConfig(**shape), VOCAB).eval()
    with torch.no_grad():
        for parameter in unilm.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return unilm


def random_ids(*shape: int) -> Tensor:
    return torch.randint(0, VOCAB, shape, generator=torch.Generator().manual_seed(2))


def in_one_row(ids: Tensor, *lengths: int) -> Rows:
    text = torch.cat([torch.full((n,), number) for number, n in enumerate(lengths, 1)])
    return Rows(ids, text[None], torch.cat([torch.arange(n) for n in lengths])[None])


def single_row(ids: Tensor) -> Rows:
    return padded_rows(ids, torch.ones_like(ids).bool())


@torch.no_grad()
def test_right_to_left_is_left_to_right_on_reversed_text() -> None:
    unilm, ids = make(positions="alibi"), random_ids(2, 9)  # it depends only on the distance of two positions
    unilm.embedding.segment_embedding.weight[RIGHT_TO_LEFT] = unilm.embedding.segment_embedding.weight[LEFT_TO_RIGHT]
    left = unilm(single_row(ids.flip(1)), torch.full_like(ids, LEFT_TO_RIGHT))
    right = unilm(single_row(ids), torch.full_like(ids, RIGHT_TO_LEFT))
    torch.testing.assert_close(right, left.flip(1), rtol=0, atol=1e-5)
    assert not torch.allclose(right, left, atol=1e-2)


@pytest.mark.parametrize("positions", SCHEMES)
@torch.no_grad()
def test_texts_of_all_ways_in_one_row_are_what_they_are_alone(positions: str) -> None:
    unilm, ids = make(positions=positions), random_ids(1, 25)
    lengths = (6, 5, 4, 7)
    segment = torch.tensor(
        [[0] * 3 + [1] * 3 + [LEFT_TO_RIGHT] * 5 + [RIGHT_TO_LEFT] * 4 + [SOURCE] * 3 + [TARGET] * 4 + [0] * 3]
    )
    rows = in_one_row(ids[:, :22], *lengths)
    rows = Rows(ids, *(torch.cat([part, torch.zeros(1, 3).long()], 1) for part in rows[1:3]))
    together = unilm(rows, segment)
    assert together.isfinite().all()
    at = 0
    for length in lengths:
        here = slice(at, at + length)
        torch.testing.assert_close(together[:, here], unilm(single_row(ids[:, here]), segment[:, here]), rtol=0, atol=1e-5)
        at += length


def test_the_gradient_of_a_position() -> None:
    """Through all layers, no target position depends on a later one."""
    unilm, ids = make(), random_ids(1, 8)
    segment = torch.tensor([[SOURCE] * 4 + [TARGET] * 4])
    vectors = unilm.embedding.token_embedding(ids).detach().requires_grad_()
    unilm.embedding.token_embedding.register_forward_hook(lambda *_: vectors)
    known = unilm(single_row(ids), segment)
    for position in range(8):
        (seen,) = torch.autograd.grad(known[0, position].square().sum(), vectors, retain_graph=True)
        assert (seen[0].abs().sum(-1) > 0).tolist() == [True] * max(4, position + 1) + [False] * (8 - max(4, position + 1))


@torch.no_grad()
def test_without_segments_it_is_a_bert() -> None:
    unilm, rows = make(), in_one_row(random_ids(1, 12), 5, 7)
    torch.testing.assert_close(unilm(rows), unilm(rows, torch.zeros_like(rows.ids)), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"segments": 2}, "6"),
        ({"attention": "window"}, "this model has full attention, not window"),
        ({"positions": "normalised"}, "learned"),
    ],
)
def test_invalid_shapes_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        UnilmConfig(**wrong)

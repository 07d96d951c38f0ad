"""The loss in pieces against torch's own."""

import pytest
import torch
import torch.nn.functional as F

from qkv.parts import loss
from qkv.parts.loss import SKIP, cross_entropy_sum


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("piece", [1, 7, 64])
def test_pieces_give_the_loss_and_gradient_of_the_whole(smoothing: float, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    words, tokens = 23, 40
    monkeypatch.setattr(loss, "SCORES", {"cpu": piece * words})
    hidden = torch.randn(tokens, 8, requires_grad=True)
    weight = torch.randn(words, 8, requires_grad=True)
    answer = torch.randint(0, words, (tokens,))
    answer[::5] = SKIP
    want = F.cross_entropy(hidden @ weight.T, answer, ignore_index=SKIP, reduction="sum", label_smoothing=smoothing)
    wanted = torch.autograd.grad(want / 3, (hidden, weight))
    got = cross_entropy_sum(hidden, weight, answer, smoothing)
    torch.testing.assert_close(got, want)
    for found, right in zip(torch.autograd.grad(got / 3, (hidden, weight)), wanted, strict=True):
        torch.testing.assert_close(found, right)


def test_in_bf16_it_is_the_same_to_rounding() -> None:
    hidden, weight = torch.randn(30, 16, requires_grad=True), torch.randn(50, 16, requires_grad=True)
    answer = torch.randint(0, 50, (30,))
    exact = cross_entropy_sum(hidden, weight, answer, 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        rough = cross_entropy_sum(hidden, weight, answer, 0.1)
    torch.testing.assert_close(rough, exact, rtol=2e-2, atol=0.1)
    grads = [torch.autograd.grad(value, (hidden, weight)) for value in (rough, exact)]
    for found, right in zip(*grads, strict=True):
        torch.testing.assert_close(found, right, rtol=0.05, atol=0.05)


def test_tokens_without_an_answer_change_nothing() -> None:
    hidden, weight = torch.randn(6, 4, requires_grad=True), torch.randn(9, 4)
    answer = torch.tensor([1, SKIP, 2, SKIP, 3, SKIP])
    (grad,) = torch.autograd.grad(cross_entropy_sum(hidden, weight, answer), hidden)
    assert not grad[1::2].any() and grad[::2].any()


def test_what_stands_at_a_place_without_an_answer_does_not_matter() -> None:
    hidden, weight = torch.randn(3, 4), torch.randn(9, 4, requires_grad=True)
    hidden[1] = torch.nan
    loss_there = cross_entropy_sum(hidden, weight, torch.tensor([1, SKIP, 2]))
    assert loss_there.isfinite()

"""The loss in pieces against torch's own."""

import pytest
import torch
import torch.nn.functional as F

from qkv.base.rows import IGNORE_INDEX
from qkv.parts import loss
from qkv.parts.loss import cross_entropies, cross_entropy_sum


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("piece", [1, 7, 64])
@pytest.mark.parametrize("biased", [False, True])
def test_pieces_give_the_loss_and_gradient_of_the_whole(
    smoothing: float, piece: int, biased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, tokens = 23, 40
    monkeypatch.setattr(loss, "PIECE", {"cpu": piece * words})
    hidden = torch.randn(tokens, 8, requires_grad=True)
    weight = torch.randn(words, 8, requires_grad=True)
    bias = torch.randn(words, requires_grad=True) if biased else None
    inputs = (hidden, weight) if bias is None else (hidden, weight, bias)
    answer = torch.randint(0, words, (tokens,))
    answer[::5] = IGNORE_INDEX
    scores = F.linear(hidden, weight, bias)
    want = F.cross_entropy(scores, answer, ignore_index=IGNORE_INDEX, reduction="sum", label_smoothing=smoothing)
    wanted = torch.autograd.grad(want / 3, inputs)
    got = cross_entropy_sum(hidden, weight, answer, smoothing, bias)
    torch.testing.assert_close(got, want)
    for found, right in zip(torch.autograd.grad(got / 3, inputs), wanted, strict=True):
        torch.testing.assert_close(found, right)


def test_the_loss_of_each_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "PIECE", {"cpu": 4 * 9})
    hidden, weight = torch.randn(10, 4, requires_grad=True), torch.randn(9, 4)
    answer = torch.randint(0, 9, (10,))
    answer[3] = IGNORE_INDEX
    total, each = cross_entropies(hidden, weight, answer)
    torch.testing.assert_close(each, F.cross_entropy(F.linear(hidden, weight), answer, reduction="none").detach())
    assert not each.requires_grad and total.requires_grad
    torch.testing.assert_close(each.sum(), total.detach())
    total.backward()
    assert hidden.grad is not None and hidden.grad[:3].any()


def test_in_bf16_it_is_the_same_to_rounding() -> None:
    hidden, weight, bias = (torch.randn(size, requires_grad=True) for size in ((30, 16), (50, 16), (50,)))
    answer = torch.randint(0, 50, (30,))
    exact = cross_entropy_sum(hidden, weight, answer, 0.1, bias)
    with torch.autocast("cpu", torch.bfloat16):
        rough = cross_entropy_sum(hidden, weight, answer, 0.1, bias)
    torch.testing.assert_close(rough, exact, rtol=2e-2, atol=0.1)
    grads = [torch.autograd.grad(value, (hidden, weight, bias)) for value in (rough, exact)]
    for found, right in zip(*grads, strict=True):
        assert found.dtype == right.dtype
        torch.testing.assert_close(found, right, rtol=0.05, atol=0.1)


def test_tokens_without_an_answer_change_nothing() -> None:
    hidden, weight = torch.randn(6, 4, requires_grad=True), torch.randn(9, 4)
    answer = torch.tensor([1, IGNORE_INDEX, 2, IGNORE_INDEX, 3, IGNORE_INDEX])
    (grad,) = torch.autograd.grad(cross_entropy_sum(hidden, weight, answer), hidden)
    assert not grad[1::2].any() and grad[::2].any()


def test_what_stands_at_a_place_without_an_answer_does_not_matter() -> None:
    hidden, weight = torch.randn(3, 4), torch.randn(9, 4, requires_grad=True)
    hidden[1] = torch.nan
    loss_there = cross_entropy_sum(hidden, weight, torch.tensor([1, IGNORE_INDEX, 2]))
    assert loss_there.isfinite()


def test_a_bias_that_is_not_learned_gets_no_gradient() -> None:
    hidden, weight, bias = torch.randn(6, 4, requires_grad=True), torch.randn(9, 4), torch.randn(9)
    cross_entropy_sum(hidden, weight, torch.arange(6), bias=bias).backward()
    assert hidden.grad is not None and hidden.grad.any() and bias.grad is None


def test_gradients_are_scaled_as_exactly_as_they_are() -> None:
    gradient, scale = torch.randn(50, 8).bfloat16(), torch.tensor(1 / 3001)
    assert loss.scaled(gradient, scale).equal((gradient.float() * scale).bfloat16())
    assert not loss.scaled(gradient, scale).equal(gradient * scale.bfloat16()), "here the scale was rounded"

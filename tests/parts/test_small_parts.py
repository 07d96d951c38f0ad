"""Dropout, the feed-forward network and the residual connection against what the papers say."""

import math

import pytest
import torch
from torch import Tensor

from qkv.parts.dropout import dropout
from qkv.parts.feedforward import FeedForward
from qkv.parts.residual import Residual


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_zeroes_at_its_rate_and_scales_up_the_rest(rate: float, dtype: torch.dtype) -> None:
    found = dropout(torch.ones(100, 2000, dtype=dtype), rate, training=True)
    assert found.dtype == dtype
    dropped = found == 0
    assert float(dropped.float().mean()) == pytest.approx(rate, abs=0.005)  # deviation at most 0.0011
    assert torch.equal(found[~dropped].unique(), torch.tensor([1 / (1 - rate)], dtype=dtype))


def test_each_of_the_numbers_drawn_together_is_fair_and_by_itself() -> None:
    dropped = (dropout(torch.ones(400_000), 0.3, training=True) == 0).float().view(-1, 4)
    assert dropped.mean(0) == pytest.approx(torch.full((4,), 0.3), abs=0.01)
    together = dropped.T.corrcoef().fill_diagonal_(0).abs().max()
    assert float(together) < 0.02


@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 7), (2, 3, 5), (0, 4)])
def test_dropout_takes_any_shape(shape: tuple[int, ...]) -> None:
    assert dropout(torch.ones(shape), 0.5, training=True).shape == shape


def test_dropout_takes_what_does_not_lie_in_order() -> None:
    x = torch.arange(1.0, 13).view(3, 4).T
    found = dropout(x, 0.5, training=True)
    assert torch.equal(found, torch.where(found == 0, 0, x * 2))


def test_dropout_draws_anew_each_time_and_repeats_itself_from_a_seed() -> None:
    x = torch.ones(1000)
    first, second = dropout(x, 0.5, training=True), dropout(x, 0.5, training=True)
    torch.manual_seed(0)
    again = dropout(x, 0.5, training=True)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def test_dropout_rests_when_not_training() -> None:
    x = torch.randn(10)
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0, training=True) is x


def test_the_gradient_passes_where_the_value_did() -> None:
    x = torch.ones(1000, requires_grad=True)
    found = dropout(x, 0.4, training=True)
    found.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, found.detach())


def erf_gelu(x: float) -> float:
    return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))


@torch.no_grad()
@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
def test_the_feed_forward_network_is_the_papers(activation: str) -> None:
    module, rows = FeedForward(3, 5, activation), torch.randn(20, 3) * 3
    for x, found in zip(rows, module(rows), strict=True):
        inside = (module.up.weight @ x + module.up.bias).tolist()
        if activation == "swiglu":
            middle = [g / (1 + math.exp(-g)) * u for g, u in zip(inside[:5], inside[5:], strict=True)]
        else:
            middle = [max(0.0, u) if activation == "relu" else erf_gelu(u) for u in inside]
        wanted = module.down.weight @ torch.tensor(middle) + module.down.bias
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


def double(x: Tensor) -> Tensor:
    return 2 * x


@torch.no_grad()
def test_the_norm_stands_after_the_sum_or_before_the_sublayer() -> None:
    x = torch.randn(2, 3, 8)
    post, pre = Residual(8, "post", dropout=0.5).eval(), Residual(8, "pre", dropout=0.5).eval()
    torch.testing.assert_close(post(x, double), post.norm(3 * x))
    torch.testing.assert_close(pre(x, double), x + 2 * pre.norm(x))


@torch.no_grad()
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_only_the_sublayers_output_is_dropped(norm: str) -> None:
    residual, x = Residual(4, norm, dropout=0.5).train(), torch.randn(200, 50, 4)
    torch.manual_seed(5)
    found = residual(x, lambda y: torch.ones_like(y))
    torch.manual_seed(5)
    change = dropout(torch.ones_like(x), 0.5, training=True)
    torch.testing.assert_close(found, x + change if norm == "pre" else residual.norm(x + change))

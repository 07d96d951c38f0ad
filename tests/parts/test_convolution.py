"""Parts of convolutional models against torch's own, against loops, and by their definitions."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.parts import kernels
from qkv.parts.convolution import (
    SQRT_HALF,
    GatedConvolution,
    RowWindows,
    SourceAttention,
    SourceMemory,
    StepWindows,
    WeightNormLinear,
    scale_gradient,
)
from qkv.parts.dot_product import recording

CLOSE = {"rtol": 0, "atol": 1e-5}
TEXT = torch.tensor([[1, 1, 1, 2, 2, 3, 0, 0], [1, 1, 1, 1, 1, 1, 1, 2]])


def with_biases(module: nn.Module) -> nn.Module:
    """Biases begin as zeros, and lengths as those of the directions, which would hide a mistake about them."""
    for name, parameter in module.named_parameters():
        if name.endswith(("bias", "length")):
            nn.init.normal_(parameter)
    return module


# Normed layers


def test_a_normed_layer_is_torchs() -> None:
    ours = with_biases(WeightNormLinear(6, 5, std=0.4))
    x = torch.randn(3, 4, 6)
    theirs = torch._weight_norm(ours.direction, ours.length[:, None], dim=0)
    torch.testing.assert_close(ours(x), F.linear(x, theirs, ours.bias), **CLOSE)


@torch.no_grad()
def test_a_normed_layer_begins_with_the_size_that_was_asked_for() -> None:
    layer = WeightNormLinear(200, 300, std=0.3)
    assert float(layer.weight.std()) == pytest.approx(0.3, rel=0.02)
    torch.testing.assert_close(layer.weight, layer.direction, **CLOSE)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [(1,), (3, 2)])
def test_a_frozen_layer_gives_the_same(bias: bool, rows: tuple[int, ...]) -> None:
    layer = with_biases(WeightNormLinear(6, 5, std=0.4, bias=bias))
    x = torch.randn(*rows, 6)
    wanted, weight = layer(x).detach(), layer.weight.detach()
    layer.freeze()
    torch.testing.assert_close(layer(x), wanted, **CLOSE)
    torch.testing.assert_close(layer.weight, weight, **CLOSE)


@pytest.mark.skipif(not kernels.TRITON or torch.cuda.is_available(), reason="this is for Triton's interpreter")
def test_gradients_through_the_kernel_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = with_biases(WeightNormLinear(6, 5, std=0.4)), torch.randn(3, 4, 6, requires_grad=True)
    found = []
    for usable in (False, True):
        monkeypatch.setattr(kernels, "usable", lambda x, usable=usable: usable)
        found.append(torch.autograd.grad(layer(x).pow(2).sum(), [x, *layer.parameters()]))
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)


# Windows


@pytest.mark.parametrize("window", [1, 2, 3, 5, 11])
def test_windows_hold_neighbours_of_the_same_text_and_zeros(window: int) -> None:
    for before in {0, window // 2, window - 1}:
        x = torch.randn(2, 8, 3)
        found = RowWindows(TEXT, window, before, x.dtype)(x).unflatten(-1, (window, 3))
        for row in range(2):
            for position in range(8):
                for k in range(window):
                    there = position + k - before
                    inside = 0 <= there < 8 and TEXT[row, there] == TEXT[row, position]
                    wanted = x[row, there] if inside else torch.zeros(3)
                    assert torch.equal(found[row, position, k], wanted)


def conv1d(convolution: GatedConvolution, x: Tensor, window: int, before: int) -> Tensor:
    """The same for one text by torch.nn.Conv1d. x (T, D) -> (T, D)."""
    width = x.size(-1)
    theirs = nn.Conv1d(width, 2 * width, window)
    theirs.weight = nn.Parameter(convolution.linear.weight.unflatten(1, (window, width)).transpose(1, 2).detach())
    theirs.bias = convolution.linear.bias
    return F.glu(theirs(F.pad(x.T, (before, window - 1 - before))), dim=0).T


@torch.no_grad()
@pytest.mark.parametrize(("window", "before"), [(1, 0), (3, 1), (3, 2), (5, 2), (4, 3)])
def test_a_gated_convolution_of_packed_rows_is_torchs_of_each_text(window: int, before: int) -> None:
    ours = with_biases(GatedConvolution(4, window, rate=0.0))
    x = torch.randn(2, 8, 4)
    found = ours(x, RowWindows(TEXT, window, before, x.dtype))
    for row in range(2):
        for text in range(1, int(TEXT[row].max()) + 1):
            here = TEXT[row] == text
            torch.testing.assert_close(found[row, here], conv1d(ours, x[row, here], window, before), **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("window", [1, 2, 3, 6])
def test_recent_inputs_are_the_windows_of_the_past(window: int) -> None:
    x = torch.randn(6, 5, 3)  # hypotheses, places, width
    wanted = RowWindows(torch.ones(6, 5), window, window - 1, x.dtype)(x)
    history = torch.zeros(6, window - 1, 3)
    for position in range(5):
        found = StepWindows(history)(x[:, position].view(2, 3, 3))
        assert torch.equal(found.flatten(0, 1), wanted[:, position])


@torch.no_grad()
def test_gates_keep_the_size_of_what_passes() -> None:
    """Section 3.5: with its first weights, a layer gives about the variance that it gets."""
    convolution = GatedConvolution(128, 3, rate=0.0)
    x = torch.randn(4, 64, 128)
    found = convolution(x, RowWindows(torch.ones(4, 64), 3, 1, x.dtype))
    assert 0.8 < float(found.std()) < 1.5


# Attention


def packed_source(text: Tensor, width: int) -> SourceMemory:
    may = (TEXT[:, None, :, None] == text[:, None, None, :]) | (TEXT == 0)[:, None, :, None]
    scale = may[:, 0].sum(-1, keepdim=True).sqrt()
    return SourceMemory(torch.randn(2, 1, text.size(1), width), torch.randn(2, 1, text.size(1), width), may, scale)


@torch.no_grad()
def test_attention_is_the_loop_over_pairs() -> None:
    text = torch.tensor([[1, 1, 2, 3, 3, 3, 3], [1, 2, 2, 2, 0, 0, 0]])
    attention, source = with_biases(SourceAttention(4, 6)), packed_source(text, 6)
    x, words = torch.randn(2, 8, 4), torch.randn(2, 8, 6)
    with recording() as weights:
        openly = attention(x, words, source)
    found = attention(x, words, source)
    torch.testing.assert_close(openly, found, **CLOSE)
    assert len(weights) == 1 and weights[0].shape == (2, 1, 8, 7)
    for row in range(2):
        for position in range(8):
            if TEXT[row, position] == 0:
                continue
            seen = [s for s in range(7) if text[row, s] == TEXT[row, position]]
            query = (attention.query(x[row, position]) + words[row, position]) * SQRT_HALF
            scores = torch.tensor([math.exp(float(query @ source.keys[row, 0, s])) for s in seen])
            shares = scores / scores.sum()
            torch.testing.assert_close(weights[0][row, 0, position, seen], shares, **CLOSE)
            context = sum(share * source.values[row, 0, s] for share, s in zip(shares, seen, strict=True))
            wanted = (x[row, position] + attention.context(context * math.sqrt(len(seen)))) * SQRT_HALF
            torch.testing.assert_close(found[row, position], wanted, **CLOSE)


def test_a_gradient_is_scaled_and_the_value_is_not() -> None:
    x = torch.randn(3, requires_grad=True)
    y = scale_gradient(x, 0.25)
    assert torch.equal(x, y)
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.full((3,), 0.25))

"""Attention against a loop over all pairs; the engines against each other; what may not be seen has no effect."""

import contextlib
import math
import threading

import pytest
import torch
from torch import Tensor

from qkv.parts.attention import CrossAttention, SelfAttention, init_attention
from qkv.parts.cache import KVCache, LayerCache
from qkv.parts.context import AttentionContext, DecodeStepContext
from qkv.parts.dot_product import attend, recording
from qkv.parts.masks import DenseMask, causal, same_text

CLOSE = {"rtol": 0, "atol": 1e-5}


def by_loops(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """softmax(q k' / sqrt(K)) v for one place after the other, in double precision and plain Python."""
    out = torch.zeros(*q.shape[:3], v.size(-1), dtype=torch.float64)
    for b in range(q.size(0)):
        for h in range(q.size(1)):
            for i in range(q.size(2)):
                keys = [j for j in range(k.size(2)) if mask[b, 0, i, j]]
                dot = [sum(float(x) * float(y) for x, y in zip(q[b, h, i], k[b, h, j], strict=True)) for j in keys]
                power = [math.exp(d / math.sqrt(q.size(-1))) for d in dot]
                for j, p in zip(keys, power, strict=True):
                    out[b, h, i] += p / sum(power) * v[b, h, j].double()
    return out.float()


def heads(batch: int, count: int, length: int, width: int) -> Tensor:
    return torch.randn(batch, count, length, width)


MASKS = {
    "causal": causal().dense(2, 4, 4),
    "texts": same_text(torch.tensor([[1, 1, 2, 0], [1, 2, 2, 2]]), torch.tensor([[1, 2, 2, 0], [1, 1, 2, 2]])).dense(2, 4, 4),
    "all": torch.ones(2, 1, 4, 4, dtype=torch.bool),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("openly", [False, True])
def test_attention_is_the_formula(mask: Tensor, openly: bool) -> None:
    q, k, v = heads(2, 3, 4, 5), heads(2, 3, 4, 5), heads(2, 3, 4, 5)
    if openly:
        with recording():
            found = attend(q, k, v, mask)
    else:
        found = attend(q, k, v, mask)
    torch.testing.assert_close(found, by_loops(q, k, v, mask), **CLOSE)


@pytest.mark.parametrize("case", range(12))
def test_the_engines_agree(case: int) -> None:
    torch.manual_seed(case)
    b, h, t, s, width = (int(n) for n in torch.randint(1, 9, (5,)))
    q, k, v = heads(b, h, t, width) * 3, heads(b, h, s, width) * 3, heads(b, h, s, width)
    mask = torch.rand(b, 1, t, s) < 0.6
    mask[..., 0] |= ~mask.any(-1)  # everybody sees somebody
    mask = None if case % 4 == 0 else mask
    fused = attend(q, k, v, mask)
    with recording() as weights:
        openly = attend(q, k, v, mask)
    torch.testing.assert_close(fused, openly, **CLOSE)
    assert weights[0].shape == (b, h, t, s)


def test_the_engines_agree_on_gradients() -> None:
    mask = causal().dense(2, 6, 6)
    inputs = [heads(2, 3, 6, 4).requires_grad_() for _ in range(3)]
    fused = torch.autograd.grad(attend(*inputs, mask).square().sum(), inputs)
    with recording():
        openly = torch.autograd.grad(attend(*inputs, mask).square().sum(), inputs)
    for one, two in zip(fused, openly, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_bf16_is_close_to_float32() -> None:
    q, k, v = heads(2, 3, 16, 8), heads(2, 3, 16, 8), heads(2, 3, 16, 8)
    mask = causal().dense(2, 16, 16)
    half = attend(q.bfloat16(), k.bfloat16(), v.bfloat16(), mask)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), attend(q, k, v, mask), rtol=0, atol=0.05)


@pytest.mark.parametrize("openly", [False, True])
def test_what_may_not_be_seen_has_no_effect_at_all(openly: bool) -> None:
    q, k, v = heads(1, 2, 4, 4), heads(1, 2, 6, 4), heads(1, 2, 6, 4)
    mask = torch.tensor([1, 1, 0, 1, 0, 0]).bool().expand(1, 1, 4, 6)
    with recording() if openly else contextlib.nullcontext():
        before = attend(q, k, v, mask)
        k[:, :, ~mask[0, 0, 0]] = 1e4
        v[:, :, ~mask[0, 0, 0]] = -1e4
        assert torch.equal(attend(q, k, v, mask), before)


@pytest.mark.parametrize("openly", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_place_that_may_see_nothing_gives_a_number_still(openly: bool, dtype: torch.dtype) -> None:
    inputs = [heads(1, 2, 3, 4).to(dtype).requires_grad_() for _ in range(3)]
    mask = torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1]]).bool()[None, None]
    with recording() if openly else contextlib.nullcontext():
        found = attend(*inputs, mask)
    assert found.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(found.square().sum(), inputs))


# Recording


def test_recordings_end_and_may_lie_inside_each_other() -> None:
    q = heads(1, 1, 3, 2)
    with recording() as outer:
        with recording() as early:
            pass
        attend(q, q, q, None)
        with recording() as inner:
            attend(q, q, q, None)
        with recording() as second:
            attend(q, q, q, None)
            attend(q, q, q, None)
            attend(q, q, q, None)
        attend(q, q, q, None)
    attend(q, q, q, None)
    assert [len(seen) for seen in (outer, early, inner, second)] == [6, 0, 1, 3]


def test_recordings_side_by_side_hold_the_same() -> None:
    q = heads(1, 1, 3, 2)
    with recording() as one, recording() as two:
        attend(q, q, q, None)
    assert torch.equal(one[0], two[0])


def test_a_recording_is_of_its_own_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    q, fused = heads(1, 1, 3, 2), []
    usual = torch.nn.functional.scaled_dot_product_attention

    def noted(*given: Tensor, **options: Tensor) -> Tensor:
        fused.append(threading.get_ident())
        return usual(*given, **options)

    monkeypatch.setattr("torch.nn.functional.scaled_dot_product_attention", noted)
    with recording() as seen:
        other = threading.Thread(target=attend, args=(q, q, q, None))
        other.start()
        other.join()
        assert seen == []  # and the other thread kept its fast engine
        assert fused == [other.ident]
        attend(q, q, q, None)
    assert len(seen) == 1 and len(fused) == 1


def test_a_recording_ends_with_an_error() -> None:
    q = heads(1, 1, 3, 2)
    with pytest.raises(ValueError, match="x"), recording() as seen:
        raise ValueError("x")
    attend(q, q, q, None)
    assert seen == []


# The modules


def seeing(mask: Tensor | None) -> AttentionContext:
    return AttentionContext(DenseMask(mask))


def self_attention_by_loops(module: SelfAttention, x: Tensor, mask: Tensor) -> Tensor:
    """Head by head, as in the paper: project, attend, lay side by side, project."""
    width, size = x.size(-1), x.size(-1) // module.heads
    weights, biases = module.qkv.weight.split(width), module.qkv.bias.split(width)
    sides = [x @ weight.T + bias for weight, bias in zip(weights, biases, strict=True)]
    found = [by_loops(*(side[:, None, :, h : h + size] for side in sides), mask) for h in range(0, width, size)]
    return torch.cat(found, -1)[:, 0] @ module.out.weight.T + module.out.bias


@torch.no_grad()
@pytest.mark.parametrize("count", [1, 2, 4])
def test_self_attention_is_the_papers(count: int) -> None:
    module, x = SelfAttention(8, count), torch.randn(2, 4, 8)
    mask = MASKS["causal"]
    torch.testing.assert_close(module(x, seeing(mask)), self_attention_by_loops(module, x, mask), **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("count", [1, 2, 4])
def test_cross_attention_is_the_papers(count: int) -> None:
    module, x, memory = CrossAttention(8, count), torch.randn(2, 4, 8), torch.randn(2, 4, 8)
    mask, size = MASKS["texts"], 8 // count
    keys, values = (memory @ w.T + b for w, b in zip(module.kv.weight.split(8), module.kv.bias.split(8), strict=True))
    queries = module.q(x)
    found = [by_loops(*(side[:, None, :, h : h + size] for side in (queries, keys, values)), mask) for h in range(0, 8, size)]
    wanted = module.out(torch.cat(found, -1)[:, 0])
    torch.testing.assert_close(module(x, module.project_memory(memory, DenseMask(mask)), DenseMask(mask)), wanted, **CLOSE)


@torch.no_grad()
def test_a_future_word_cannot_change_the_past() -> None:
    module, x = SelfAttention(8, 2), torch.randn(1, 6, 8)
    mask = causal().dense(1, 6, 6)
    before = module(x, seeing(mask))
    for changed in range(6):
        other = x.clone()
        other[0, changed] += 100.0
        after = module(other, seeing(mask))
        assert torch.equal(after[0, :changed], before[0, :changed])
        assert not torch.isclose(after[0, changed:], before[0, changed:]).all(-1).any()  # and does change what follows


@torch.no_grad()
def test_padding_changes_nothing() -> None:
    module, x = SelfAttention(8, 2), torch.randn(1, 4, 8)
    alone = module(x, seeing(None))
    wide = torch.cat([x, torch.randn(1, 3, 8) * 100], 1)
    text = torch.tensor([[1, 1, 1, 1, 0, 0, 0]])
    padded = module(wide, seeing(same_text(text, text).dense(1, 7, 7)))
    torch.testing.assert_close(padded[:, :4], alone, **CLOSE)
    assert padded.isfinite().all()


@torch.no_grad()
def test_a_cache_gives_what_a_whole_pass_gives() -> None:
    module, x = SelfAttention(8, 2), torch.randn(2, 5, 8)
    whole = module(x, seeing(causal().dense(2, 5, 5)))
    past, found = KVCache(5), []
    cache = LayerCache(past)
    for position in range(5):
        past.advance(2, x.device)
        found.append(module(x[:, position : position + 1], DecodeStepContext(DenseMask(None)), cache))
    torch.testing.assert_close(torch.cat(found, 1), whole, **CLOSE)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ValueError, match="width 10 does not split into 4 heads"):
        SelfAttention(10, 4)


@torch.no_grad()
def test_stacked_projections_start_as_the_matrices_they_are() -> None:
    module = SelfAttention(64, 4)
    init_attention(module)
    limit = math.sqrt(6 / (64 + 64))
    for block in (*module.qkv.weight.chunk(3), module.out.weight):
        assert block.abs().max() <= limit
        assert abs(float(block.std()) - limit / math.sqrt(3)) < 0.05 * limit
    assert not module.qkv.bias.any()

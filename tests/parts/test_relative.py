"""Schemes that act inside attention: against their papers' formulas, pair by pair; the engines against each other."""

import cmath
import contextlib
import math

import pytest
import torch
from torch import Tensor

from qkv.parts.attention import SelfAttention
from qkv.parts.cache import KVCache, LayerCache
from qkv.parts.dot_product import recording
from qkv.parts.masks import DenseMask, PackedMask
from qkv.parts.relative import (
    AlibiBias,
    NoBias,
    PositionScheme,
    RotaryPositions,
    ShawRelative,
    make_position_scheme,
    slopes,
)

CLOSE = {"rtol": 0, "atol": 1e-5}
WIDTH, HEADS, DISTANCE = 16, 4, 2
TEXT = torch.tensor([[1, 1, 1, 1, 1, 2, 2, 2, 0], [1, 2, 2, 2, 2, 2, 2, 2, 2]])
PLACE = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 0], [0, 0, 1, 2, 3, 4, 5, 6, 7]])
ALL = DenseMask(None)
KINDS = ["relative", "rotary", "alibi", "sinusoidal"]
every_kind = pytest.mark.parametrize("kind", KINDS)


def make(kind: str) -> tuple[SelfAttention, PositionScheme]:
    torch.manual_seed(3)
    scheme = make_position_scheme(kind, WIDTH, HEADS, DISTANCE)
    return SelfAttention(WIDTH, HEADS, scheme), scheme


def dense(causal: bool) -> DenseMask:
    return DenseMask(PackedMask(TEXT, TEXT, causal).dense())


def heads_of(module: SelfAttention, x: Tensor) -> Tensor:
    """Queries, keys and values. (T, D) -> (3, H, T, K)."""
    return module.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(1, 2, 0, 3)


def softmax(scores: list[float]) -> list[float]:
    powers = [math.exp(score) for score in scores]
    return [power / sum(powers) for power in powers]


# Shaw et al. 2018


def shaw_by_loops(module: SelfAttention, x: Tensor, position: Tensor, mask: Tensor) -> Tensor:
    """Equations 3 and 4 for one row, one pair of places after the other. (T, D) -> (T, D)."""
    assert module.relative is not None
    (vectors,) = module.relative
    queries, keys, values = heads_of(module, x)
    out = torch.zeros(HEADS, len(x), WIDTH // HEADS)
    for h in range(HEADS):
        for i in range(len(x)):
            seen = [j for j in range(len(x)) if mask[i, j]]
            number = {j: max(-DISTANCE, min(DISTANCE, int(position[j] - position[i]))) + DISTANCE for j in seen}
            scores = [float(queries[h, i] @ (keys[h, j] + vectors.keys[number[j]])) / 2 for j in seen]  # sqrt(K) = 2
            for j, weight in zip(seen, softmax(scores), strict=True):
                out[h, i] += weight * (values[h, j] + vectors.values[number[j]])
    return module.out(out.transpose(0, 1).flatten(1))


@torch.no_grad()
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("openly", [False, True])
def test_shaws_vectors_are_added_to_keys_and_values_of_every_pair(causal: bool, openly: bool) -> None:
    (module, scheme), x = make("relative"), torch.randn(2, 9, WIDTH)
    rule = PackedMask(TEXT, TEXT, causal)
    with recording() if openly else contextlib.nullcontext():
        found = module(x, scheme.context(rule, PLACE, PLACE, x))
    for row, mask in enumerate(rule.dense()[:, 0]):
        wanted = shaw_by_loops(module, x[row], PLACE[row], mask)
        torch.testing.assert_close(found[row][TEXT[row] > 0], wanted[TEXT[row] > 0], **CLOSE)


@torch.no_grad()
def test_beyond_the_clipping_distance_all_distances_are_the_same() -> None:
    x, position = torch.randn(1, 3, WIDTH), torch.tensor([[0, 7, 9]])
    module, scheme = make("relative")
    other = torch.tensor([[0, 70, 900]])
    assert torch.equal(module(x, scheme.context(ALL, position, position, x)), module(x, scheme.context(ALL, other, other, x)))
    near = torch.tensor([[0, 7, 8]])
    assert not torch.allclose(
        module(x, scheme.context(ALL, position, position, x)), module(x, scheme.context(ALL, near, near, x))
    )


def test_a_layer_has_two_vectors_for_each_distance_for_all_heads() -> None:
    module, _ = make("relative")
    assert module.relative is not None
    (vectors,) = module.relative
    assert {name: tuple(p.shape) for name, p in vectors.named_parameters()} == {"keys": (5, 4), "values": (5, 4)}
    assert SelfAttention(WIDTH, HEADS).relative is None


# Su et al. 2021


def turned(vector: list[float], position: int) -> list[complex]:
    """Dimensions 2i and 2i + 1 as a complex number, times e^(i place theta)."""
    pairs = [complex(*vector[i : i + 2]) for i in range(0, len(vector), 2)]
    return [pair * cmath.exp(1j * position * 10000 ** (-2 * i / len(vector))) for i, pair in enumerate(pairs)]


def test_rotary_is_multiplication_by_complex_numbers() -> None:
    scheme, positions = RotaryPositions(6), torch.tensor([[0, 1, 5, 700]])
    qkv = torch.randn(1, 4, 3 * 12)
    found = scheme.context(ALL, positions, positions, qkv).rotate(qkv, 2).view(4, 3, 2, 6)
    assert torch.equal(found[:, 2], qkv.view(4, 3, 2, 6)[:, 2])  # values stay
    for row, position in enumerate(positions[0].tolist()):
        for part in (0, 1):
            for head in (0, 1):
                wanted = turned(qkv.view(4, 3, 2, 6)[row, part, head].tolist(), position)
                pairs = [number for pair in wanted for number in (pair.real, pair.imag)]
                assert found[row, part, head].tolist() == pytest.approx(pairs, abs=2e-4)


def test_turning_keeps_norms_and_scores_depend_on_differences_only() -> None:
    q, k = torch.randn(2, 8, dtype=torch.float64)
    qkv = torch.cat([q, k, torch.zeros(8)])[None, None].expand(1, 50, -1)

    def scores(positions: Tensor) -> Tensor:
        context = RotaryPositions(8).context(ALL, positions[None], positions[None], qkv)
        queries, keys, _ = context.rotate(qkv, 1)[0].split(8, -1)
        torch.testing.assert_close(queries.norm(dim=-1), q.norm().expand(50), rtol=0, atol=1e-6)
        return queries @ keys.T

    near, far = scores(torch.arange(50)), scores(torch.arange(50) + 300)
    torch.testing.assert_close(far, near, rtol=0, atol=1e-3)
    for offset in (0, 1, -7):
        torch.testing.assert_close(near.diagonal(offset), near.diagonal(offset)[:1].expand(50 - abs(offset)), rtol=0, atol=1e-4)
    assert (near[0] - near[0, 0]).abs()[1:].min() > 1e-6


# Press et al. 2022


@pytest.mark.parametrize(
    ("heads", "wanted"),
    [
        (1, [2**-8]),
        (8, [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]),
        (16, [2 ** (-i / 2) for i in range(1, 17)]),
        (6, [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]),
        (12, [*(2.0**-i for i in range(1, 9)), 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]),
    ],
)
def test_slopes_are_the_papers(heads: int, wanted: list[float]) -> None:
    assert slopes(heads).tolist() == pytest.approx(wanted, rel=1e-6)


def test_alibi_adds_minus_slope_times_distance_to_both_sides() -> None:
    rule = PackedMask(TEXT, TEXT, causal=False)
    bias = AlibiBias(HEADS).context(rule, PLACE, PLACE, torch.zeros(1)).mask.dense()
    assert bias is not None and bias.shape == (2, HEADS, 9, 9)
    mask = rule.dense()
    for b, i, j in ((0, 0, 4), (0, 4, 0), (0, 6, 7), (1, 3, 3), (1, 8, 1)):
        assert mask[b, 0, i, j]
        wanted = [-(2 ** (-2 * (h + 1))) * abs(int(PLACE[b, i] - PLACE[b, j])) for h in range(HEADS)]
        assert bias[b, :, i, j].tolist() == pytest.approx(wanted)
    assert (bias.masked_select(~mask) < -1e37).all() and bias.isfinite().all()


@torch.no_grad()
def test_alibi_lowers_scores_before_the_softmax() -> None:
    (module, scheme), x = make("alibi"), torch.randn(1, 5, WIDTH)
    position = torch.arange(5)[None]
    with recording() as weights:
        module(x, scheme.context(ALL, position, position, x))
    queries, keys, _ = heads_of(module, x[0])
    for h in range(HEADS):
        for i in range(5):
            scores = [float(queries[h, i] @ keys[h, j]) / 2 - abs(i - j) * 2 ** (-2 * (h + 1)) for j in range(5)]
            assert weights[0][0, h, i].tolist() == pytest.approx(softmax(scores), abs=1e-5)


# All of them


@every_kind
def test_the_engines_agree(kind: str) -> None:
    (module, scheme), x = make(kind), torch.randn(2, 9, WIDTH, requires_grad=True)
    sides = [x, *module.parameters()]
    found = []
    for openly in (False, True):
        with recording() if openly else contextlib.nullcontext():
            out = module(x, scheme.context(dense(causal=True), PLACE, PLACE, x))
        out = out * (TEXT > 0)[..., None]
        found.append([out, *torch.autograd.grad(out.square().sum(), sides)])
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


@torch.no_grad()
@every_kind
def test_a_text_among_others_finds_what_it_finds_alone(kind: str) -> None:
    (module, scheme), x = make(kind), torch.randn(2, 9, WIDTH)
    together = module(x, scheme.context(dense(causal=False), PLACE, PLACE, x))
    position = torch.arange(3)[None]
    alone = module(x[:1, 5:8], scheme.context(ALL, position, position, x))
    torch.testing.assert_close(together[:1, 5:8], alone, **CLOSE)


@torch.no_grad()
@every_kind
def test_a_cache_gives_what_a_whole_pass_gives(kind: str) -> None:
    (module, scheme), x, position = make(kind), torch.randn(2, 6, WIDTH), torch.arange(6).expand(2, 6)
    text = torch.ones_like(position)
    whole = module(x, scheme.context(DenseMask(PackedMask(text, text, True).dense()), position, position, x))
    past, found = KVCache(6), []
    cache = LayerCache(past)
    for number in range(6):
        past.advance(2, x.device)
        newest = x[:, number : number + 1]
        found.append(module(newest, scheme.decode_context(past, newest), cache))
    torch.testing.assert_close(torch.cat(found, 1), whole, **CLOSE)


@torch.no_grad()
@every_kind
def test_in_bf16_it_is_close_to_float32(kind: str) -> None:
    (module, scheme), x = make(kind), torch.randn(2, 9, WIDTH)
    rule = dense(causal=False)
    whole = module(x, scheme.context(rule, PLACE, PLACE, x))
    with torch.autocast("cpu", torch.bfloat16):
        half = module(x, scheme.context(rule, PLACE, PLACE, x))
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), whole, rtol=0, atol=0.03)


def test_kernels_that_know_no_distances_are_left_the_schemes_that_need_none() -> None:
    rule, x = PackedMask(TEXT, TEXT, False), torch.zeros(1)
    for scheme in (NoBias(), RotaryPositions(4), AlibiBias(2), ShawRelative(3)):
        mask = scheme.context(rule, PLACE, PLACE, x).mask
        assert (mask is rule) == scheme.fused == isinstance(scheme, NoBias | RotaryPositions)


def test_distances_may_be_measured_in_anything() -> None:
    """Steps in a tree, say, which no difference of places gives."""
    distance, x = torch.tensor([[[0, 5], [5, 0]]]), torch.zeros(1)
    assert ShawRelative(3).mask_by_distance(None, distance, x).indices[0].tolist() == [[[[3, 6], [6, 3]]]]
    bias = AlibiBias(1).mask_by_distance(None, distance, x).values
    assert bias is not None and bias[0, 0].tolist() == [[0, -5 / 256], [-5 / 256, 0]]

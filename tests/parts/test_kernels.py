"""The Triton kernels against the same in plain torch: on a GPU as they are, elsewhere through Triton's interpreter."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from interpreted_kernels import speed_up_interpreter
from qkv.base.draws import drawing, hashed, next_keys
from qkv.parts import sparse
from qkv.parts.draws import random_int64
from qkv.parts.dropout import kept
from qkv.parts.feedforward import GATED
from qkv.parts.masks import PackedMask, causal, same_text
from qkv.parts.patterns import Pattern
from qkv.parts.two_stream import Memory, RelativeAttention, encode_distances, stream_masks

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here", allow_module_level=True)

from qkv.parts.activations import ACTIVATIONS
from qkv.parts.kernels import (
    attention,
    block_sparse,
    decode_step,
    draw,
    dropout,
    embedding,
    gated,
    linear,
    loss,
    lstm,
    residual,
    two_stream,
)

GPU = torch.cuda.is_available()
if not GPU:
    speed_up_interpreter()
DEVICE = "cuda" if GPU else "cpu"
CLOSE = {"atol": 1e-4, "rtol": 1e-4}
MATRIX = torch.bfloat16 if GPU else torch.float32  # what attention multiplies; the interpreter has no bf16 to be close in
CLOSE_MATRIX = {"atol": 3e-2, "rtol": 3e-2} if GPU else CLOSE


def texts(rows: int, positions: int, seed: int) -> Tensor:
    """Numbers of texts as packed rows have them: 1, 1, 2, 2, 2, ..., then padding, every text present."""
    generator = torch.Generator().manual_seed(seed)
    made = torch.randint(1, 4, (rows, positions), generator=generator)
    made[:, :3] = torch.tensor([1, 2, 3])
    made = made.sort(1).values
    made[:, -3:] = 3
    made[1:, -2:] = 0
    return made.to(DEVICE)


def values(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE).requires_grad_()


def openly(q: Tensor, k: Tensor, v: Tensor, may: Tensor, heads: int) -> Tensor:
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=may).transpose(1, 2).flatten(-2)


def check_gradients(found: Tensor, wanted: Tensor, inputs: list[Tensor], real: Tensor, close: dict[str, float] = CLOSE) -> None:
    upstream = torch.randn_like(wanted) * real  # nothing reads what padding finds
    ours = torch.autograd.grad(found, inputs, upstream.to(found.dtype))
    theirs = torch.autograd.grad(wanted, inputs, upstream)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, **close)


@pytest.mark.parametrize("past_only", [True, False])
@pytest.mark.parametrize(
    ("positions", "heads", "each"), [(16, 2, 16), (40, 3, 24), (128, 1, 64), (130, 1, 16), (200, 2, 24), (300, 1, 80)]
)
def test_self_attention(positions: int, heads: int, each: int, past_only: bool) -> None:
    qkv, text = values(3, positions, 3 * heads * each, seed=1), texts(3, positions, seed=2)
    rule = same_text(text, text) & causal() if past_only else same_text(text, text)
    wanted = openly(*qkv.chunk(3, -1), rule.dense(3, positions, positions, text.device), heads)
    found = attention.attend_self(qkv.to(MATRIX), PackedMask(text, text, past_only), heads)
    torch.testing.assert_close(found[text > 0].float(), wanted[text > 0], **CLOSE_MATRIX)
    assert found.isfinite().all(), "padding too: what is not a number would spread through sums over all places"
    check_gradients(found, wanted, [qkv], (text > 0)[..., None], CLOSE_MATRIX)


@pytest.mark.parametrize("past_only", [True, False])
@pytest.mark.parametrize(
    ("positions", "heads", "each"), [(16, 2, 16), (40, 3, 24), (70, 2, 32), (128, 1, 64), (130, 2, 16), (200, 1, 80)]
)
def test_self_attention_with_a_bias_by_distance(positions: int, heads: int, each: int, past_only: bool) -> None:
    qkv, text = values(3, positions, 3 * heads * each, seed=1), texts(3, positions, seed=2)
    bias = values(heads, 2 * positions - 1, seed=3)
    mask = PackedMask(text, text, past_only).with_bias(bias)
    here = torch.arange(positions)
    assert mask.bias[0, :, :, :positions].equal(bias[:, (positions - 1 - here[:, None] + here).to(DEVICE)])
    wanted = openly(*qkv.chunk(3, -1), mask.dense(), heads)
    found = attention.attend_self(qkv.to(MATRIX), mask, heads, mask.bias)
    torch.testing.assert_close(found[text > 0].float(), wanted[text > 0], **CLOSE_MATRIX)
    assert found.isfinite().all(), "padding too"
    real = (text > 0)[..., None]
    upstream = torch.randn_like(wanted) * real
    (grad, grad_bias), (wanted_grad, wanted_bias) = (
        torch.autograd.grad(out, (qkv, bias), upstream.to(out.dtype)) for out in (found, wanted)
    )
    torch.testing.assert_close(grad, wanted_grad, **CLOSE_MATRIX)
    # A sum of up to 3 x T rounded gradients.
    torch.testing.assert_close(grad_bias, wanted_bias, **({"atol": 0.1, "rtol": 3e-2} if GPU else CLOSE))
    alone = attention.attend_self(qkv.to(MATRIX), mask, heads, mask.bias.detach())  # as ALiBi's, which is not learned
    torch.testing.assert_close(torch.autograd.grad(alone, qkv, upstream.to(alone.dtype))[0], grad)


def test_a_bias_of_rows_of_one_long_text() -> None:
    """Blocks that are gone through without asking who may look are biased too."""
    qkv, bias = values(2, 300, 3 * 64, seed=1), values(1, 599, seed=2)
    text = torch.ones(2, 300, dtype=torch.long, device=DEVICE)
    for past_only in (False, True):
        mask = PackedMask(text, text, past_only).with_bias(bias)
        wanted = openly(*qkv.chunk(3, -1), mask.dense(), 1)
        found = attention.attend_self(qkv.to(MATRIX), mask, 1, mask.bias)
        torch.testing.assert_close(found.float(), wanted, **CLOSE_MATRIX)
        check_gradients(found, wanted, [qkv, bias], torch.ones_like(wanted), {"atol": 0.1, "rtol": 3e-2} if GPU else CLOSE)


@pytest.mark.parametrize("past_only", [True, False])
@pytest.mark.parametrize(("positions", "each"), [(256, 64), (300, 24)])
def test_rows_of_one_long_text(positions: int, each: int, past_only: bool) -> None:
    """Which are gone through without asking who may look; the second row ends with padding and the third begins with it."""
    qkv, text = values(3, positions, 3 * each, seed=1), torch.ones(3, positions, dtype=torch.long, device=DEVICE)
    text[1, -70:] = 0
    text[2, :70] = 0
    rule = same_text(text, text) & causal() if past_only else same_text(text, text)
    wanted = openly(*qkv.chunk(3, -1), rule.dense(3, positions, positions, text.device), 1)
    found = attention.attend_self(qkv.to(MATRIX), PackedMask(text, text, past_only), 1)
    torch.testing.assert_close(found[text > 0].float(), wanted[text > 0], **CLOSE_MATRIX)
    check_gradients(found, wanted, [qkv], (text > 0)[..., None], CLOSE_MATRIX)


@pytest.mark.parametrize(("queries", "keys"), [(16, 16), (24, 50), (100, 7), (20, 150), (140, 129)])
def test_cross_attention(queries: int, keys: int) -> None:
    q, kv = values(3, queries, 32, seed=1), values(3, keys, 64, seed=2)
    of_query, of_key = texts(3, queries, seed=3), texts(3, keys, seed=4)
    wanted = openly(q, *kv.chunk(2, -1), same_text(of_query, of_key).dense(3, queries, keys, q.device), 2)
    found = attention.attend_cross(q.to(MATRIX), kv.to(MATRIX), PackedMask(of_query, of_key, False), 2)
    torch.testing.assert_close(found[of_query > 0].float(), wanted[of_query > 0], **CLOSE_MATRIX)
    check_gradients(found, wanted, [q, kv], (of_query > 0)[..., None], CLOSE_MATRIX)


@pytest.mark.parametrize("positions", [16, 130])
def test_a_text_without_source_is_no_nan(positions: int) -> None:
    q, kv = values(1, positions, 32, seed=1), values(1, 16, 64, seed=2)
    single, others = torch.full((1, positions), 2, device=DEVICE), torch.ones(1, 16, dtype=torch.long, device=DEVICE)
    found = attention.attend_cross(q.to(MATRIX), kv.to(MATRIX), PackedMask(single, others, False), 2)
    assert found.isfinite().all()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(found.sum(), (q, kv)))


@pytest.mark.parametrize(
    ("positions", "predicted", "memory"), [(16, 5, 0), (40, 9, 0), (24, 30, 16), (130, 20, 0), (100, 140, 40)]
)
def test_two_streams(positions: int, predicted: int, memory: int) -> None:
    """Both streams through the kernels against both with dense masks, in one row with several texts, ranks and segments."""
    heads, each, rows = 2, 16, 2
    layer, rng = RelativeAttention(heads * each, heads).to(DEVICE), torch.Generator().manual_seed(1)
    scale = 0.15 if GPU else 0.3  # bf16 rounds queries and keys, which shifts large scores by more than the tolerance
    with torch.no_grad():
        for name, weight in layer.named_parameters():
            weight.copy_(torch.randn(weight.shape, generator=rng) * (scale if name.endswith("weight") else 1.0))
    whole = texts(rows, memory + positions, seed=2)
    segments, ranks = (torch.randint(0, top, whole.shape, generator=rng).to(DEVICE) for top in (3, 6))
    before = Memory((), whole[:, :memory], segments[:, :memory]) if memory else None
    text, segment, rank = (values[:, memory:] for values in (whole, segments, ranks))
    where = torch.rand(rows, predicted, generator=rng).mul(positions).long().to(DEVICE)
    content = values(rows, memory + positions, heads * each, seed=3)
    inputs = [values(rows, positions, heads * each, seed=4), values(rows, predicted, heads * each, seed=5), content]
    distances = encode_distances(positions, memory + positions, heads * each, content.device)

    def attended(fused: bool) -> list[Tensor]:
        """The content stream by itself, both streams, the query stream by itself, and both streams packed with the keys."""
        distance = layer.distance(distances)
        alone, _ = stream_masks(text, segment, rank, None, before, fused)
        both, queries = stream_masks(text, segment, rank, where, before, fused)
        streams = [(inputs[0], alone, content), (torch.cat(inputs[:2], 1), both, content), (inputs[1], queries, content)]
        streams += [] if memory else [(torch.cat(inputs[:2], 1), both, None)]
        return [mask.attend(x, source, distance, layer) for x, mask, source in streams]

    with torch.autocast("cuda", torch.bfloat16, enabled=GPU):
        found = attended(True)
    wanted = attended(False)

    sees = stream_masks(text, segment, rank, where, before)[1].mask.any(-1)[:, 0] & (text.gather(1, where) > 0)
    seen = [text > 0, torch.cat([text > 0, sees], 1), sees]
    seen += [] if memory else [seen[1]]
    weights = [p for name, p in layer.named_parameters() if name != "out.weight"]
    for ours, theirs, real in zip(found, wanted, seen, strict=True):
        assert ours.isfinite().all()
        torch.testing.assert_close(ours[real].float(), theirs[real], **CLOSE_MATRIX)
    real = torch.cat(seen, 1)[..., None]
    close = {"atol": 0.3, "rtol": 5e-2} if GPU else {"atol": 5e-4, "rtol": 1e-3}
    check_gradients(torch.cat(found, 1), torch.cat(wanted, 1), [*inputs, *weights], real, close)


@pytest.mark.parametrize("distances", [1, 15, 16, 33])
def test_the_vector_of_another_segment_comes_after_the_distances(distances: int) -> None:
    given, segment = values(distances, 4, seed=1), values(4, seed=2)
    made = two_stream.with_segment(given, segment)
    assert made[:distances].equal(given) and made[distances].equal(segment) and not made[distances + 1 :].any()
    assert len(made) % 16 == 0 and len(made) - distances <= 16


LISTED = [  # places, heads, head width, pattern: blocks of each size, each kind of sight by itself and together, both directions
    (5, 1, 16, Pattern(radius=3, global_tokens=1, random_blocks=1, block_size=16)),
    (70, 2, 24, Pattern(radius=9, block_size=16)),
    (100, 1, 16, Pattern(radius=3, random_blocks=2, block_size=16, seed=1)),
    (100, 1, 16, Pattern(radius=1, global_tokens=20, random_blocks=1, block_size=16)),
    (100, 1, 64, Pattern(radius=20, global_tokens=3, random_blocks=1, block_size=32)),
    (200, 1, 16, Pattern(radius=1, global_tokens=1, random_blocks=1, block_size=64)),
    (140, 1, 80, Pattern(radius=40, global_tokens=2, random_blocks=1, block_size=128)),
]


@pytest.mark.parametrize("one_text", [True, False])
@pytest.mark.parametrize(("positions", "heads", "each", "pattern"), LISTED)
def test_attention_by_lists(positions: int, heads: int, each: int, pattern: Pattern, one_text: bool) -> None:
    qkv, text = values(2, positions, 3 * heads * each, seed=1), texts(2, positions, seed=2)
    text = text.clamp(max=1) if one_text else text
    ready = sparse.block_sparse_mask(pattern, text)
    wanted = openly(*qkv.chunk(3, -1), pattern.rule(text).dense(2, positions, positions, text.device), heads)
    found = block_sparse.attend_block_sparse(qkv.to(MATRIX), ready, heads)
    torch.testing.assert_close(found[text > 0].float(), wanted[text > 0], **CLOSE_MATRIX)
    assert found.isfinite().all(), "padding too"
    check_gradients(found, wanted, [qkv], (text > 0)[..., None], CLOSE_MATRIX)


@torch.no_grad()
def test_lists_are_read_as_they_are_gathered() -> None:
    pattern, qkv, text = (
        Pattern(radius=9, global_tokens=2, random_blocks=1, block_size=16),
        values(2, 90, 48, seed=1),
        texts(2, 90, seed=2),
    )
    ready = sparse.block_sparse_mask(pattern, text)
    real = (text > 0)[..., None]
    gathered = sparse.attend_block_sparse(qkv, ready, 1) * real  # in float32, which is not for the kernel
    torch.testing.assert_close(
        block_sparse.attend_block_sparse(qkv.to(MATRIX), ready, 1).float() * real, gathered, **CLOSE_MATRIX
    )


@torch.no_grad()
@pytest.mark.skipif(not GPU, reason="only what runs on a GPU can be recorded")
def test_lists_can_be_recorded() -> None:
    pattern, qkv = Pattern(radius=9, global_tokens=2, random_blocks=1, block_size=16), values(2, 200, 96, seed=1).to(MATRIX)
    text, other = texts(2, 200, seed=2), texts(2, 200, seed=3)
    block_sparse.attend_block_sparse(qkv, sparse.block_sparse_mask(pattern, text), 2)  # builds the kernels
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = block_sparse.attend_block_sparse(qkv, sparse.block_sparse_mask(pattern, text), 2)
    text.copy_(other)
    graph.replay()
    torch.testing.assert_close(found, block_sparse.attend_block_sparse(qkv, sparse.block_sparse_mask(pattern, other), 2))


@pytest.mark.parametrize("width", [32, 48])
def test_residual_without_dropout(width: int) -> None:
    x, change, weight, bias = (
        values(2, 37, width, seed=1),
        values(2, 37, width, seed=2),
        values(width, seed=3),
        values(width, seed=4),
    )
    wanted = F.layer_norm(x + change, (width,), weight, bias, 1e-5)
    found = residual.add_and_norm(x, change, weight, bias, 0.0, 1e-5)
    torch.testing.assert_close(found, wanted, **CLOSE)
    check_gradients(found, wanted, [x, change, weight, bias], torch.ones_like(wanted))


@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize(("positions", "width"), [(37, 48), (300, 200)])
def test_residual_with_an_rms_norm(positions: int, width: int, goes_on: bool) -> None:
    x, change, weight = values(2, positions, width, seed=1), values(2, positions, width, seed=2), values(width, seed=3)
    wanted = F.rms_norm(x + change, (width,), weight, 1e-6)
    if goes_on:
        total, normed = residual.add_then_norm(x, change, weight, None, 0.0, 1e-6)
        torch.testing.assert_close(total, x + change)
        found, wanted = normed * 2 + total, wanted * 2 + x + change
    else:
        found = residual.add_and_norm(x, change, weight, None, 0.0, 1e-6)
    torch.testing.assert_close(found, wanted, **CLOSE)
    check_gradients(found, wanted, [x, change, weight], torch.ones_like(wanted))


def test_the_sum_goes_on_beside_its_norm() -> None:
    x, change, weight, bias = values(2, 37, 48, seed=1), values(2, 37, 48, seed=2), values(48, seed=3), values(48, seed=4)
    total, normed = residual.add_then_norm(x, change, weight, bias, 0.0, 1e-5)
    torch.testing.assert_close(total, x + change)
    wanted = F.layer_norm(x + change, (48,), weight, bias, 1e-5)
    torch.testing.assert_close(normed, wanted, **CLOSE)
    check_gradients(normed * 2 + total, wanted * 2 + x + change, [x, change, weight, bias], torch.ones_like(wanted))


ROWS = torch.tensor([7, 2], device=DEVICE)  # numbers of the two rows in their batch


def twice(compute: Callable[[], Tensor], plainly: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """Compute with the same draws by a kernel and in plain torch."""
    with drawing(3, ROWS):
        found = compute()
    with drawing(3, ROWS):
        return found, plainly()


def dropped(x: Tensor, rate: float) -> Tensor:
    return torch.where(kept(next_keys(x.device), x.numel(), rate).view(x.shape), x / (1 - rate), 0.0)


@pytest.mark.parametrize(("positions", "width"), [(37, 31), (600, 4)])  # odd rows, and more than a block
def test_dropout_is_that_of_plain_torch(positions: int, width: int) -> None:
    x = values(2, positions, width, seed=2)
    found, wanted = twice(lambda: dropout.dropout(x, next_keys(x.device), 0.3), lambda: dropped(x, 0.3))
    assert (found == 0).equal(wanted == 0)
    torch.testing.assert_close(found, wanted, **CLOSE)
    check_gradients(found, wanted, [x], torch.ones_like(wanted))


def test_random_bits_are_those_of_plain_torch() -> None:
    keys = torch.tensor([5, -3, 2**62 + 11], device=DEVICE)
    assert dropout.random_bits(keys, 1500).equal(hashed(keys, 1500))


@pytest.mark.parametrize("rms", [False, True])
def test_residual_with_dropout(rms: bool) -> None:
    x, change = values(2, 37, 48, seed=1), values(2, 37, 48, seed=2)
    weight, bias = values(48, seed=3), None if rms else values(48, seed=4)
    inputs = [x, change, weight, *([] if bias is None else [bias])]

    def plainly() -> Tensor:
        total = x + dropped(change, 0.25)
        return F.rms_norm(total, (48,), weight, 1e-5) if bias is None else F.layer_norm(total, (48,), weight, bias, 1e-5)

    found, wanted = twice(lambda: residual.add_and_norm(x, change, weight, bias, 0.25, 1e-5), plainly)
    torch.testing.assert_close(found, wanted, **CLOSE)
    check_gradients(found, wanted, inputs, torch.ones_like(wanted))


def test_dropout_follows_torchs_seed() -> None:
    x, weight, bias = values(8, 32, seed=1), torch.ones(32, device=DEVICE), torch.zeros(32, device=DEVICE)

    def draw(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return residual.add_and_norm(x, x, weight, bias, 0.5, 1e-5)

    assert draw(1).equal(draw(1))
    assert not draw(1).equal(draw(2))
    torch.manual_seed(1)
    first, second = (residual.add_and_norm(x, x, weight, bias, 0.5, 1e-5) for _ in range(2))
    assert not first.equal(second)


def looks(width: int, tables: int) -> list[tuple[Tensor, Tensor]]:
    """Tables of words, places, segments and tasks, and what 2 x 37 places look up in them."""
    sizes = (50, 37, 2, 3)[:tables]
    generator = torch.Generator().manual_seed(9)
    return [
        (values(size, width, seed=number), torch.randint(size, (2, 37), generator=generator).to(DEVICE))
        for number, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(("width", "tables", "small"), [(32, 3, 4096), (48, 4, 4096), (32, 4, 10)])
def test_embedding_without_dropout(width: int, tables: int, small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "SMALL", small)
    looked, weight, bias = looks(width, tables), values(width, seed=7), values(width, seed=8)
    wanted = F.layer_norm(sum(table[index] for table, index in looked), (width,), weight, bias, 1e-12)
    found = embedding.embed(looked, weight, bias, 0.0, 1e-12)
    torch.testing.assert_close(found.float(), wanted, **CLOSE_MATRIX)
    inputs = [weight, bias, *(table for table, _ in looked)]
    check_gradients(found, wanted, inputs, torch.ones_like(wanted), {"atol": 0.1, "rtol": 3e-2} if GPU else CLOSE)


def test_embedding_with_dropout() -> None:
    looked, weight, bias = looks(64, 3), values(64, seed=7), values(64, seed=8)

    def plainly() -> Tensor:
        return dropped(F.layer_norm(sum(table[index] for table, index in looked), (64,), weight, bias, 1e-12), 0.25)

    found, wanted = twice(lambda: embedding.embed(looked, weight, bias, 0.25, 1e-12), plainly)
    assert (found == 0).equal(wanted == 0)
    torch.testing.assert_close(found.float(), wanted, **CLOSE_MATRIX)
    inputs = [weight, bias, *(table for table, _ in looked)]
    check_gradients(found, wanted, inputs, torch.ones_like(wanted), {"atol": 0.1, "rtol": 3e-2} if GPU else CLOSE)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("words", [7, 64, 5000])
@pytest.mark.parametrize("beyond", [0, 9])
def test_cross_entropy(words: int, beyond: int, smoothing: float) -> None:
    scores = values(9, words, seed=1)
    filled = F.pad(scores.detach(), (0, beyond))
    answer = torch.arange(9, device=DEVICE) % words
    answer[4] = -100
    wanted = F.cross_entropy(scores, answer, ignore_index=-100, reduction="none", label_smoothing=smoothing)
    (gradient,) = torch.autograd.grad(wanted.sum(), scores)
    given = filled.clone()
    torch.testing.assert_close(loss.cross_entropy(given, words, answer, -100, smoothing, False), wanted, **CLOSE)
    assert given.equal(filled), "the scores were overwritten though no gradient was wanted"
    torch.testing.assert_close(loss.cross_entropy(given, words, answer, -100, smoothing, True), wanted, **CLOSE)
    torch.testing.assert_close(given, F.pad(gradient, (0, beyond)), **CLOSE)


@torch.no_grad()
def test_words_are_drawn_by_their_probabilities() -> None:
    scores = torch.tensor([1.0, -1.0, -30.0, 2.0, 0.5], device=DEVICE)
    drawn, likeliest = draw.draw(scores.expand(200, 5), random_int64(200, scores.device))
    assert (likeliest == 3).all()
    shares = torch.bincount(drawn, minlength=5) / 200
    torch.testing.assert_close(shares, scores.softmax(0), atol=0.1, rtol=0)  # a deviation is at most 0.035
    assert shares[2] == 0


@torch.no_grad()
def test_every_word_of_a_large_vocabulary_can_be_drawn() -> None:
    drawn, likeliest = draw.draw(torch.zeros(60, 9000, device=DEVICE), random_int64(60, torch.device(DEVICE)))
    assert (likeliest == 0).all() and drawn.unique().numel() > 50 and drawn.min() >= 0 and drawn.max() < 9000
    assert torch.bincount(drawn // 900, minlength=10).max() < 20, "not spread evenly"


@torch.no_grad()
def test_draws_follow_their_keys() -> None:
    """The key of a token decides on it alone, wherever the token stands."""
    scores, keys = values(30, 100, seed=1), random_int64(30, torch.device(DEVICE))
    drawn, likeliest = draw.draw(scores, keys)
    assert draw.draw(scores[11:], keys[11:])[0].equal(drawn[11:])
    assert not draw.draw(scores, keys.flip(0))[0].equal(drawn)
    assert likeliest.equal(scores.argmax(-1))


@pytest.mark.parametrize("activation", ["", *ACTIVATIONS])
@pytest.mark.parametrize(("positions", "width"), [(16, 16), (300, 200)])
def test_linear(positions: int, width: int, activation: str) -> None:
    x, weight, bias = values(2, positions, 32, seed=1), values(width, 32, seed=2), values(width, seed=3)
    with torch.no_grad():
        weight /= 32**0.5
    wanted = F.linear(x, weight, bias)
    wanted = ACTIVATIONS[activation](wanted) if activation else wanted
    found = linear.linear(x, weight, bias, activation)
    torch.testing.assert_close(found.float(), wanted, **CLOSE_MATRIX)
    # Near zero, rounding may decide which side of it a value is on.
    sure = (wanted > 0.1) if activation == "relu" else torch.ones_like(wanted)
    close = {"atol": 0.5, "rtol": 3e-2} if GPU else CLOSE
    check_gradients(found, wanted, [x, weight, bias], sure, close)


@pytest.mark.parametrize("activation", ["", "relu", "gelu"])
def test_linear_without_a_bias(activation: str) -> None:
    x, weight = values(2, 30, 32, seed=1), values(40, 32, seed=2)
    wanted = F.linear(x, weight)
    wanted = ACTIVATIONS[activation](wanted) if activation else wanted
    found = linear.linear(x, weight, None, activation)
    torch.testing.assert_close(found.float(), wanted, **({"atol": 0.1, "rtol": 3e-2} if GPU else CLOSE))
    sure = (wanted > 0.1) if activation == "relu" else torch.ones_like(wanted)
    check_gradients(found, wanted, [x, weight], sure, {"atol": 0.5, "rtol": 3e-2} if GPU else CLOSE)


@pytest.mark.parametrize("activation", sorted(set(GATED.values())))
@pytest.mark.parametrize(("positions", "width"), [(3, 16), (7, 40), (2, 1100)])
def test_gated_activations(positions: int, width: int, activation: str) -> None:
    x = values(2, positions, 2 * width, seed=1)
    gate, value = x.chunk(2, -1)
    wanted, found = ACTIVATIONS[activation](gate) * value, gated.gate(x, activation)
    torch.testing.assert_close(found, wanted, **CLOSE)
    check_gradients(found, wanted, [x], torch.ones_like(wanted))


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:overflow")  # the logistic function far from zero: one over infinity is the 0 that is wanted
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_slopes_far_from_zero(activation: str) -> None:
    """Where GELU is nearly 0 or nearly its input, the slope must be a number and nearly 0 or 1."""
    x = torch.tensor([[-60.0, -9.0, -4.0, -0.5, 0.25, 4.0, 9.0, 60.0]], device=DEVICE).requires_grad_()
    with torch.enable_grad():
        out = ACTIVATIONS[activation](x)
    (wanted,) = torch.autograd.grad(out, x, torch.ones_like(out))
    seen = x if activation.startswith(("gelu", "silu")) else out
    found, _ = linear.sum_over_rows(torch.ones_like(x), activation, seen)
    torch.testing.assert_close(found, wanted, **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize(("tokens", "words"), [(1, 5), (70, 130), (300, 33)])
def test_the_sum_over_rows_by_itself(tokens: int, words: int) -> None:
    """It is the gradient of the bias over words, too."""
    grad = values(tokens, words, seed=1)
    same, total = linear.sum_over_rows(grad)
    assert same is grad
    torch.testing.assert_close(total, grad.sum(0), **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize(("heads", "width", "newest"), [(2, 32, 0), (2, 32, 1), (4, 96, 32), (1, 64, 39)])
def test_attention_to_the_past_by_an_index(heads: int, width: int, newest: int) -> None:
    rows, room = 5, 40
    qkv, log = values(rows, 3 * width, seed=1).to(MATRIX), values(rows * room + 7, 2 * width, seed=2).to(MATRIX)
    index = torch.randperm(rows * room + 7, generator=torch.Generator().manual_seed(3))[: rows * room].view(rows, room).to(DEVICE)
    whole = log.clone()
    whole[index[:, newest]] = qkv[:, width:]
    k, v = whole[index[:, : newest + 1]].unflatten(-1, (2, heads, -1)).permute(2, 0, 3, 1, 4)
    wanted = F.scaled_dot_product_attention(qkv[:, :width].unflatten(-1, (heads, 1, -1)), k, v).reshape(rows, width)
    found = decode_step.attend_cached(qkv, log, index, torch.tensor([newest], device=DEVICE), heads)
    torch.testing.assert_close(found, wanted, **CLOSE_MATRIX)
    assert torch.equal(log, whole)


@torch.no_grad()
@pytest.mark.parametrize("begin", [[0, 3, 39, 40, 7], [38, 39, 39, 0, 33]])
def test_attention_to_the_past_of_texts_that_begin_at_different_positions(begin: list[int]) -> None:
    """One that begins after the newest position, as a text that is done, attends to that position alone."""
    heads, width, room, newest = 2, 32, 40, 39
    qkv, log = values(5, 3 * width, seed=1).to(MATRIX), values(5 * room, 2 * width, seed=2).to(MATRIX)
    index = torch.randperm(5 * room, generator=torch.Generator().manual_seed(3)).view(5, room).to(DEVICE)
    whole = log.clone()
    whole[index[:, newest]] = qkv[:, width:]
    k, v = whole[index].unflatten(-1, (2, heads, -1)).permute(2, 0, 3, 1, 4)
    mask = torch.arange(room, device=DEVICE) >= torch.tensor(begin, device=DEVICE).clamp(max=newest)[:, None]
    q = qkv[:, :width].unflatten(-1, (heads, 1, -1))
    wanted = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None]).reshape(5, width)
    first = torch.tensor(begin, device=DEVICE)
    found = decode_step.attend_cached(qkv, log, index, torch.tensor([newest], device=DEVICE), heads, first)
    torch.testing.assert_close(found, wanted, **CLOSE_MATRIX)
    assert torch.equal(log, whole)


@pytest.mark.filterwarnings("ignore:LSTM with projections")  # torch's own, on a CPU
@pytest.mark.parametrize(("rows", "positions", "cells", "width"), [(3, 5, 24, 16), (70, 3, 300, 24)])
def test_lstms_side_by_side(rows: int, positions: int, cells: int, width: int) -> None:
    theirs = [torch.nn.LSTM(20, cells, batch_first=True, proj_size=width).to(DEVICE) for _ in range(2)]
    x = values(2, rows, positions, 20, seed=1)
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "weight_hr_l0")
    weights = [torch.stack([getattr(one, name).detach() for one in theirs]).requires_grad_() for name in names]
    with torch.no_grad():
        for one in theirs:
            one.bias_hh_l0.zero_()
    found = lstm.projected_lstms(x, *weights)
    wanted = torch.stack([one(row)[0] for one, row in zip(theirs, x, strict=True)])
    torch.testing.assert_close(found, wanted, **CLOSE_MATRIX)
    upstream = torch.randn_like(wanted)
    ours = torch.autograd.grad(found, [x, *weights], upstream)
    grad_x, *others = torch.autograd.grad(wanted, [x, *(getattr(one, name) for one in theirs for name in names)], upstream)
    for one, other in zip(ours, [grad_x, *(torch.stack([others[n], others[n + 4]]) for n in range(4))], strict=True):
        torch.testing.assert_close(one, other, atol=CLOSE_MATRIX["atol"] * other.abs().max().item(), rtol=CLOSE_MATRIX["rtol"])


def test_all_kernels_compile(cache: pytest.Cache) -> None:
    """Compile what changed: pytest's cache folder keeps kernels under a digest of source, constants, target and versions."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(cache.mkdir("triton"))
    script = Path(__file__).with_name("compile_kernels.py")
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 126

"""GPT: its causal mask, initial weights, and decoding steps that give the logits of a whole pass."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qkv.base import graphs
from qkv.base.rows import Rows, padded_rows
from qkv.models.gpt import CausalLM, Gpt, GptConfig
from qkv.parts import stepping
from qkv.parts.cache import StaticKVCache
from qkv.parts.decoding_weights import PreparedModel

VOCAB = 30
layouts = pytest.mark.parametrize("norm", ["pre", "post"])


def make(norm: Any = "pre", **options: Any) -> Gpt:
    torch.manual_seed(1)
    shape = {"width": 32, "feedforward": 48, "heads": 4, "layers": 3, "max_positions": 40, **options}
    gpt = Gpt(GptConfig(norm=norm, **shape), VOCAB).eval()
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return gpt


def random_ids(*shape: int) -> Tensor:
    return torch.randint(0, VOCAB, shape, generator=torch.Generator().manual_seed(2))


def whole(gpt: Gpt, ids: Tensor) -> Tensor:
    return gpt.logits(gpt(padded_rows(ids, torch.ones_like(ids).bool())))


def packed(ids: Tensor, *lengths: int) -> Rows:
    """Build one row of several texts."""
    text = torch.cat([torch.full((n,), number) for number, n in enumerate(lengths, 1)])
    position = torch.cat([torch.arange(n) for n in lengths])
    return Rows(ids, text[None], position[None])


@layouts
def test_the_future_is_not_seen(norm: str) -> None:
    gpt = make(norm)
    vectors = gpt.embedding.token_embedding(random_ids(1, 9)).detach().requires_grad_()
    gpt.embedding.token_embedding.register_forward_hook(lambda *_: vectors)
    known = gpt(padded_rows(random_ids(1, 9), torch.ones(1, 9).bool()))
    for position in range(9):
        (seen,) = torch.autograd.grad(known[0, position].square().sum(), vectors, retain_graph=True)
        by_place = seen[0].abs().sum(-1)
        assert (by_place[: position + 1] > 0).all()
        assert not by_place[position + 1 :].any()


@layouts
@torch.no_grad()
def test_packed_documents_do_not_leak(norm: str) -> None:
    gpt, ids = make(norm), random_ids(1, 14)
    before = gpt(packed(ids, 6, 8))
    other = ids.clone()
    other[0, :6] = (other[0, :6] + 7) % VOCAB
    after = gpt(packed(other, 6, 8))
    assert torch.equal(before[0, 6:], after[0, 6:])
    assert not torch.equal(before[0, :6], after[0, :6])
    single = gpt(padded_rows(ids[:, 6:], torch.ones(1, 8).bool()))
    torch.testing.assert_close(before[:, 6:], single, rtol=0, atol=1e-5)


@layouts
@torch.no_grad()
def test_first_weights_are_the_papers(norm: Any) -> None:
    torch.manual_seed(1)
    gpt = Gpt(GptConfig(width=128, feedforward=512, heads=4, layers=8, max_positions=64, norm=norm), 500)
    scaled = 0.02 / math.sqrt(16) if norm == "pre" else 0.02
    for layer in gpt.layers:
        for linear in (layer.attention.out, layer.feedforward.down):  # type: ignore[union-attr]
            assert float(linear.weight.std()) == pytest.approx(scaled, rel=0.05)  # type: ignore[union-attr, operator]
        for linear in (layer.attention.qkv, layer.feedforward.up):  # type: ignore[union-attr]
            assert float(linear.weight.std()) == pytest.approx(0.02, rel=0.05)  # type: ignore[union-attr, operator]
            assert not linear.bias.any()  # type: ignore[union-attr, operator]
    assert float(gpt.embedding.token_embedding.weight.std()) == pytest.approx(0.02, rel=0.05)
    assert isinstance(gpt.norm, nn.LayerNorm) == (norm == "pre")


@layouts
@torch.no_grad()
def test_steps_give_what_a_whole_pass_gives(norm: str) -> None:
    gpt, ids = make(norm), random_ids(4, 16)
    wanted, writer = whole(gpt, ids), CausalLM(gpt)
    for begun in (0, 1, 7):
        state = PreparedModel(writer).start(ids[:, :begun], torch.ones(4, begun).bool(), max_length=16 - begun)
        for position in range(begun, 16):
            torch.testing.assert_close(writer.step(ids[:, position], state), wanted[:, position], rtol=0, atol=1e-5)


LENGTHS = [7, 3, 0, 5]


@torch.no_grad()
def go_on(writer: CausalLM, ids: Tensor, wanted: Tensor, moves: dict[int, list[int]], piece: int | None = None) -> Any:
    """Compare every step after prompts of different lengths, some of which are reordered, doubled or dropped."""
    keep = torch.arange(7) < torch.tensor(LENGTHS)[:, None]
    state, rows = PreparedModel(writer).start(ids[:, :7], keep, max_length=12, piece=piece), torch.arange(4)
    pieces = 1
    while not state.read_piece():
        pieces += 1
    assert pieces == (1 if piece is None else -(-8 // max(1, piece // 4)))  # the last one with the last token
    for step in range(12):
        if step in moves:
            chosen = torch.tensor(moves[step])
            state.select(chosen)
            rows = rows[chosen]
        position = torch.tensor(LENGTHS)[rows] + step
        found = writer.step(ids[rows, position], state)
        torch.testing.assert_close(found, wanted[rows, position], rtol=0, atol=1e-5)
    return state


MOVES = {2: [1, 0, 3, 2], 3: [0, 0, 2, 1, 3], 5: [3, 1], 9: [1, 0]}


@pytest.mark.parametrize("positions", ["none", "learned", "relative", "rotary", "alibi"])
@torch.no_grad()
def test_prompts_of_different_lengths_go_on_together(positions: str) -> None:
    gpt, ids = make(positions=positions, max_distance=3), random_ids(4, 20)
    wanted = whole(gpt, ids)
    for piece in (None, 1, 8, 13, 32, 100):  # tokens of all prompts that are read at once
        go_on(CausalLM(gpt), ids, wanted, MOVES, piece)
    for first in (0, 1):  # rows move before and after the first step
        go_on(CausalLM(gpt), ids, wanted, {first: [3, 3, 0, 2, 1]}, 8)


@torch.no_grad()
def test_steps_on_fixed_memory_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "usable", lambda words: True)
    monkeypatch.setattr(stepping, "SPAN", 4)
    monkeypatch.setattr(stepping, "MIN_STEPS_LEFT", 100)  # CUDA graphs need a GPU
    monkeypatch.setattr(stepping.AttentionState, "_graph", make_static_at_once)
    gpt, ids = make(), random_ids(4, 20)
    assert isinstance(go_on(CausalLM(gpt), ids, whole(gpt, ids), MOVES).cache, StaticKVCache)


def make_static_at_once(self: stepping.AttentionState, words: Tensor) -> None:
    cache = self.cache
    if not isinstance(cache, StaticKVCache):
        if cache.length and cache.hypotheses == len(words):
            self._make_static(16)
    elif cache.length == cache.span:
        self._make_static(2 * cache.span)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("positions", ["learned", "relative", "rotary", "alibi"])
@torch.no_grad()
def test_a_gpu_continues_long_prompts_of_different_lengths(positions: str) -> None:
    """Prompts are long enough for the kernels of wide rows, with padding before all but one."""
    gpt, ids = make(width=64, max_positions=160, positions=positions, max_distance=3), random_ids(4, 150)
    lengths = torch.tensor([130, 70, 0, 101])
    wanted, keep = whole(gpt, ids), torch.arange(130) < lengths[:, None]
    writer, row = CausalLM(gpt.cuda()), torch.arange(4)
    with torch.autocast("cuda", torch.bfloat16):
        state = PreparedModel(writer).start(ids[:, :130].cuda(), keep.cuda(), max_length=12)
        found = [writer.step(ids[row, lengths + step].cuda(), state).cpu() for step in range(12)]
    for step, words in enumerate(found):
        right = wanted[row, lengths + step]
        assert ((words - right).norm(dim=-1) < 0.05 * right.norm(dim=-1)).all()  # one token too few or too many differs by more


@torch.no_grad()
def test_a_text_in_bf16_is_close() -> None:
    gpt, ids = make(), random_ids(2, 9)
    writer, keep = CausalLM(gpt), torch.ones(2, 5).bool()
    with torch.autocast("cpu", torch.bfloat16):
        state = PreparedModel(writer).start(ids[:, :5], keep, max_length=4)
        found = torch.stack([writer.step(ids[:, position], state) for position in range(5, 9)], 1)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, whole(gpt, ids)[:, 5:], rtol=0.1, atol=0.3)

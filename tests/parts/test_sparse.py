"""Patterns against their definitions, pair by pair; attention over lists of blocks against open attention under the same rule."""

import random
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from qkv.base.errors import ConfigError
from qkv.parts.masks import same_text
from qkv.parts.patterns import Pattern, global_tokens, random_blocks, text_positions, window
from qkv.parts.sparse import BlockLists, attend_block_sparse, block_sparse_mask


def row_of(*lengths: int, padding: int = 0) -> list[int]:
    return [number for number, length in enumerate(lengths, 1) for _ in range(length)] + [0] * padding


def some_rows(width: int, seed: int) -> Tensor:
    """Three rows of texts of any length, the last one partly padding. -> (3, W)."""
    rng = random.Random(seed)
    rows = []
    for filled in (width, width, rng.randrange(width)):
        lengths: list[int] = []
        while sum(lengths) < filled:
            lengths.append(min(filled - sum(lengths), rng.choice([1, 4, 20, 60, 150, 400])))
        rows.append(row_of(*lengths, padding=width - filled))
    return torch.tensor(rows)


def some_pattern(seed: int) -> Pattern:
    rng = random.Random(seed)
    counts = {
        "radius": rng.choice([1, 5, 16, 40]),
        "global_tokens": rng.choice([0, 1, 16, 40]),
        "random_blocks": rng.choice([0, 1, 3]),
    }
    return Pattern(**counts, block_size=rng.choice([16, 16, 32, 64]), seed=seed)


def openly(qkv: Tensor, may: Tensor, heads: int) -> Tensor:
    q, k, v = qkv.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=may).transpose(1, 2).flatten(-2)


def test_places_are_those_within_a_text() -> None:
    text = torch.tensor([row_of(3, 1, 2, padding=2), row_of(8), row_of(padding=8)])
    position, length = text_positions(text)
    assert position.tolist() == [[0, 1, 2, 0, 0, 1, 0, 1], list(range(8)), list(range(8))]
    assert length.tolist() == [[3, 3, 3, 1, 2, 2, 2, 2], [8] * 8, [8] * 8]


@pytest.mark.parametrize("radius", [1, 2, 7, 20])
def test_a_window_by_its_definition(radius: int) -> None:
    may = window(radius).dense(1, 20, 20)[0, 0].tolist()
    assert may == [[abs(q - k) <= radius for k in range(20)] for q in range(20)]


def test_global_tokens_by_their_definition() -> None:
    text = torch.tensor([row_of(5, 1, 3, padding=2)])
    may = (same_text(text, text) & global_tokens(text_positions(text)[0], 2)).dense(1, 11, 11)[0, 0]
    first = {1: {0, 1}, 2: {5}, 3: {6, 7}, 0: {9, 10}}
    texts = text[0].tolist()
    for q in range(9):
        wanted = [texts[q] == texts[k] and (q in first[texts[q]] or k in first[texts[k]]) for k in range(11)]
        assert may[q].tolist() == wanted


def test_random_blocks_by_their_definition() -> None:
    position = torch.arange(8)[None]
    chosen = torch.tensor([[[2, -1]] * 2 + [[0, 3]] * 2 + [[-1, -1]] * 4])
    may = random_blocks(position, chosen, 2).dense(1, 8, 8)[0, 0].int().tolist()
    assert may == [[0, 0, 0, 0, 1, 1, 0, 0]] * 2 + [[1, 1, 0, 0, 0, 0, 1, 1]] * 2 + [[0] * 8] * 4


@pytest.mark.parametrize("seed", range(6))
def test_a_pattern_by_its_definition(seed: int) -> None:
    p, text = some_pattern(seed), some_rows(150, seed)
    position, length = text_positions(text)
    chosen = p.choose(position, length).tolist()
    may = p.rule(text).dense(3, 150, 150)[:, 0].tolist()
    for row, texts in enumerate(text.tolist()):
        where = position[row].tolist()
        for q in range(0, 150, 7):
            for k in range(150):
                near, first = abs(q - k) <= p.radius, where[q] < p.global_tokens or where[k] < p.global_tokens
                drawn = where[k] // p.block_size in chosen[row][q]
                allowed = texts[q] in (texts[k], 0) and (near or first or drawn)
                assert may[row][q][k] == allowed, (row, q, k)


def test_the_random_graph() -> None:
    """As many blocks as there are to choose from, all different, none that is seen anyway, the same for all places of a block."""
    p = Pattern(radius=20, global_tokens=17, random_blocks=3, block_size=16)
    position, length = text_positions(torch.ones(1, 330, dtype=torch.long))
    chosen = p.choose(position, length)[0]
    for block in range(21):
        for_block = chosen[block * 16 : block * 16 + 16]
        assert (for_block == for_block[0]).all()
        seen = {0, 1, *range(block - 2, block + 3)}
        left = set(range(21)) - seen
        found = [number for number in for_block[0].tolist() if number >= 0]
        assert len(found) == len(set(found)) == min(3, len(left)) and set(found) <= left
    far = (chosen[chosen >= 0].view(-1) - 10).abs().float().mean()
    assert far > 3, "not spread over the text"


def test_the_graph_comes_from_the_seed() -> None:
    position, length = text_positions(torch.ones(1, 700, dtype=torch.long))
    one, same, other = (Pattern(8, random_blocks=2, block_size=16, seed=seed).choose(position, length) for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_a_text_has_its_graph_wherever_it_stands() -> None:
    """In a row of its own, in a wider one, and after other texts."""
    p = Pattern(radius=10, global_tokens=5, random_blocks=2, block_size=16)
    rows = [row_of(200), row_of(200, padding=100), row_of(37, 200)]
    single, wide, after = (p.rule(torch.tensor([row])).dense(1, len(row), len(row))[0, 0] for row in rows)
    assert torch.equal(single, wide[:200, :200]) and torch.equal(single, after[37:, 37:])


def test_a_packed_row_is_a_padded_one() -> None:
    p, qkv = Pattern(radius=10, global_tokens=5, random_blocks=2, block_size=16), torch.randn(1, 237, 3 * 16)
    packed = attend_block_sparse(qkv, block_sparse_mask(p, torch.tensor([row_of(37, 200)])), 2)
    for part in (slice(0, 37), slice(37, 237)):
        single = F.pad(qkv[:, part], (0, 0, 0, 20))
        text = torch.ones(1, single.size(1), dtype=torch.long)
        text[:, -20:] = 0
        torch.testing.assert_close(attend_block_sparse(single, block_sparse_mask(p, text), 2)[:, :-20], packed[:, part])


def listed_for(lists: BlockLists, row: int, block: int) -> list[int]:
    start, count, begin = (int(x[row, block]) for x in lists[1:])
    return lists.entries[row, start : start + count].tolist() if begin < 0 else list(range(begin, begin + count))


@pytest.mark.parametrize("seed", range(12))
def test_lists_hold_all_blocks_that_are_seen(seed: int) -> None:
    p, text = some_pattern(seed), some_rows(330, seed)
    made = block_sparse_mask(p, text)
    blocks, width = made.text.size(1) // p.block_size, made.text.size(1)
    may = p.rule(made.text).dense(3, width, width)[:, 0] & (made.text > 0)[..., None]
    seen = may.unflatten(2, (blocks, p.block_size)).any(-1).unflatten(1, (blocks, p.block_size)).any(2)
    for lists, wanted in ((made.of_queries, seen), (made.of_keys, seen.mT)):
        for row in range(3):
            for block in range(blocks):
                found = listed_for(lists, row, block)
                assert len(found) == len(set(found)) and set(wanted[row, block].nonzero()[:, 0].tolist()) <= set(found) <= set(
                    range(blocks)
                )


def test_lists_are_short() -> None:
    """A row of one text: the window's blocks, the first one and the random ones; all only for the first block."""
    made = block_sparse_mask(
        Pattern(radius=16, global_tokens=3, random_blocks=2, block_size=16), torch.ones(1, 1600, dtype=torch.long)
    )
    assert made.of_queries.counts[0, 0] == made.of_keys.counts[0, 0] == 100
    assert made.of_queries.counts[0, 1:].max() == 3 + 1 + 2
    assert made.of_keys.counts[0, 1:].float().mean() < 6.1


@pytest.mark.parametrize("seed", range(3))
def test_lists_are_made_without_a_look_at_any_value(seed: int) -> None:
    """So that a GPU is not waited for and a graph can be recorded: here there are no values to look at."""
    made = block_sparse_mask(some_pattern(seed), torch.ones(2, 330, dtype=torch.long, device="meta"))
    assert made.of_keys.counts.is_meta and made.of_keys.counts.shape == made.of_queries.counts.shape


def test_a_row_of_padding_finds_nothing() -> None:
    text = torch.tensor([row_of(30, padding=10), row_of(padding=40)])
    found = attend_block_sparse(
        torch.randn(2, 40, 48), block_sparse_mask(Pattern(4, global_tokens=1, random_blocks=1, block_size=16), text), 2
    )
    assert (found[1] == 0).all() and found.isfinite().all()


@pytest.mark.parametrize("seed", range(16))
def test_the_same_as_open_attention(seed: int) -> None:
    width = (5, 16, 100, 257, 330)[seed % 5]
    p, text = some_pattern(seed), some_rows(width, seed)
    qkv = torch.randn(3, width, 3 * 16, dtype=torch.float64, requires_grad=True)
    made = block_sparse_mask(p, text)
    found, wanted = attend_block_sparse(qkv, made, 2), openly(qkv, p.rule(text).dense(3, width, width), 2)
    real = (text > 0)[..., None]
    torch.testing.assert_close(found * real, wanted * real)
    assert found.isfinite().all() and torch.equal(made.dense(), p.rule(text).dense(3, width, width))
    upstream = torch.randn_like(wanted) * real  # nothing reads what padding finds
    ours, theirs = (torch.autograd.grad(out, qkv, upstream)[0] for out in (found, wanted))
    torch.testing.assert_close(ours, theirs)


def test_a_window_of_all_is_full_attention() -> None:
    qkv, text = torch.randn(2, 90, 48), torch.ones(2, 90, dtype=torch.long)
    found = attend_block_sparse(qkv, block_sparse_mask(Pattern(radius=90), text), 2)
    torch.testing.assert_close(found, openly(qkv, torch.ones(90, 90, dtype=torch.bool), 2))


def test_bf16() -> None:
    qkv, text = torch.randn(2, 150, 48, requires_grad=True), some_rows(150, 1)[:2]
    made = block_sparse_mask(Pattern(radius=9, global_tokens=2, random_blocks=1, block_size=16), text)
    with torch.autocast("cpu", torch.bfloat16):
        found = attend_block_sparse(qkv.bfloat16(), made, 2)
    wanted = attend_block_sparse(qkv, made, 2)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), wanted, atol=3e-2, rtol=3e-2)
    ours, theirs = (torch.autograd.grad(out.float().square().sum(), qkv)[0] for out in (found, wanted))
    torch.testing.assert_close(ours, theirs, atol=0.1, rtol=0.1)


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for made in out if isinstance(out, tuple | list) else (out,):
            if isinstance(made, Tensor):
                self.elements = max(self.elements, made.numel())
        return out


@pytest.mark.parametrize("lengths", [(2048,), (5,) * 400 + (48,)])
def test_no_matrix_of_all_pairs_is_made(lengths: tuple[int, ...]) -> None:
    """Neither in the backward pass, nor where a row is full of first places."""
    qkv, text = torch.randn(1, 2048, 3 * 16, requires_grad=True), torch.tensor([row_of(*lengths)])
    with Largest() as largest:
        made = block_sparse_mask(Pattern(radius=64, global_tokens=64, random_blocks=3), text)
        attend_block_sparse(qkv, made, 1).sum().backward()
    assert 0 < largest.elements < 2048 * 2048 / 16


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"radius": 0}, "a window of radius 0 shows no neighbour; use 1 or more"),
        ({"radius": 4, "global_tokens": -1}, "global_tokens -1 is below 0; use 0 for none, or more"),
        ({"radius": 4, "random_blocks": -2}, "random_blocks -2 is below 0; use 0 for none, or more"),
        ({"radius": 4, "block_size": 48}, "block_size 48 is not one of 16, 32, 64, 128; use one of them"),
    ],
)
def test_what_is_refused(given: dict[str, int], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        Pattern(**given)
    assert str(error.value) == told

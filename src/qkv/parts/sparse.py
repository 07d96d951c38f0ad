"""Attention under a pattern (`patterns.py`) that computes what the pattern shows and nothing else, exactly.

For a batch, `BlockSparseMask` says for each block of a row which blocks it looks at; a block that holds one of a text's first places looks
at all of its texts. On a GPU a kernel reads these lists (`kernels/block_sparse.py`); elsewhere blocks are gathered, group by group, and
multiplied, and each group asks the rule itself. Nothing that is made here grows faster than the length does.
B rows, T places, H heads, K head width, N blocks in a row, b places in a block, L blocks in a list; a group has G blocks that
look at C blocks each.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.parts import kernels
from qkv.parts.dot_product import is_recording
from qkv.parts.masks import AttentionMask, DenseMask, Rule
from qkv.parts.patterns import NONE, Pattern, positions

if TYPE_CHECKING:
    from qkv.parts.attention import SelfAttention

if kernels.TRITON:
    from qkv.parts.kernels import block_sparse

PAIRS = 1 << 17  # of places, that are computed at once


class Lists(NamedTuple):
    """Which blocks of its row each block is computed with. Whichever has a `begin` goes through so `many` from there."""

    entries: Tensor  # (B, N L) numbers of blocks, list after list
    start: Tensor  # (B, N) where a block's list begins
    many: Tensor  # (B, N) how many are in it
    begin: Tensor  # (B, N) -1 where there is a list


class Group(NamedTuple):
    """Blocks with lists of about the same length, which are computed together."""

    own: Tensor  # (G,) numbers of blocks, those of all rows counted through
    others: Tensor  # (G C,) the blocks they look at, C for each
    hidden: Tensor  # (G, b, C b) who may not look


@dataclass(frozen=True, eq=False)
class BlockSparseMask(AttentionMask):
    """A pattern over the rows of a batch, as lists of the blocks that are computed: all layers use the same."""

    pattern: Pattern
    text: Tensor  # (B, T), and the following, filled up to whole blocks
    position: Tensor
    chosen: Tensor  # (B, T, R)
    of_queries: Lists
    of_keys: Lists  # the blocks of queries that look at each block of keys
    width: int  # T as it was

    def dense(self) -> Tensor:
        """Return the pattern as a boolean matrix, for recording all weights. -> (B, 1, T, T)."""
        text = self.text[:, : self.width]
        return self.pattern.rule(text).dense(text.size(0), self.width, self.width, text.device)

    def attend(self, qkv: Tensor, layer: "SelfAttention") -> Tensor:
        return attend_block_sparse(qkv, self, layer.heads)

    @functools.cached_property
    def groups(self) -> list[Group]:
        """All blocks that look at any, in groups: made once for all layers."""
        rule = self.pattern.rule(self.text)
        counts = self.of_queries.many.flatten()
        return [_group(self, rule, own, counts[own]) for own in _alike(counts, self.pattern.block)]


def _alike(counts: Tensor, block: int) -> Iterator[Tensor]:
    """Numbers of blocks, longest lists first, in groups of nearly the same length and limited size."""
    order = counts.argsort(descending=True)
    sizes = counts[order].tolist()
    at = 0
    while at < len(sizes) and sizes[at]:
        stop = at + max(1, PAIRS // (sizes[at] * block * block))
        enough = next((i for i in range(at, len(sizes)) if 4 * sizes[i] < 3 * sizes[at]), len(sizes))
        yield order[at : min(stop, enough)]
        at = min(stop, enough)


def _group(mask: BlockSparseMask, rule: Rule, own: Tensor, counts: Tensor) -> Group:
    lists, block = mask.of_queries, mask.pattern.block
    blocks = lists.many.size(1)
    row, most = own // blocks, torch.arange(int(counts[0]), device=own.device)
    start, begin = lists.start.flatten()[own, None], lists.begin.flatten()[own, None]
    at = (start + most).clamp(max=lists.entries.size(1) - 1)
    others = torch.where(begin < 0, lists.entries[row[:, None], at], begin + most)
    real = most < counts[:, None]
    others = torch.where(real, others, own[:, None] % blocks)  # (G, C)
    within = torch.arange(block, device=own.device)
    q = (own % blocks)[:, None] * block + within
    k = (others[..., None] * block + within).flatten(1)
    allowed = rule.allows(row[:, None, None], q[:, :, None], k[:, None, :])
    hidden = ~(allowed & real.repeat_interleave(block, 1)[:, None])
    return Group(own, (row[:, None] * blocks + others).flatten(), hidden)


def block_sparse_mask(pattern: Pattern, text: Tensor) -> BlockSparseMask:
    """Make a pattern ready for rows whose places belong to these texts, without waiting for the device. text (B, T)."""
    width = text.size(1)
    text = F.pad(text, (0, -width % pattern.block))
    position, length = positions(text)
    chosen = pattern.chosen(position, length)
    lists = _entries(pattern, text, position, length, chosen)  # (B, N, L)
    global_ones = ((text > 0) & (position < pattern.first)).unflatten(1, (-1, pattern.block)).any(-1)
    stretch = _stretches(text, position, length, pattern.block)
    of_queries = _stretched(_of_queries(lists), global_ones, *stretch)
    of_keys = _stretched(_transposed(lists, global_ones), global_ones, *stretch)
    return BlockSparseMask(pattern, text.int(), position.int(), chosen.int().contiguous(), of_queries, of_keys, width)


def pattern_mask(pattern: Pattern, text: Tensor) -> AttentionMask:
    """Build the mask of a pattern over packed rows: lists of blocks, or dense while weights are recorded. text (B, T)."""
    mask = block_sparse_mask(pattern, text)
    return DenseMask(mask.dense()) if is_recording() else mask


def _entries(pattern: Pattern, text: Tensor, position: Tensor, length: Tensor, chosen: Tensor) -> Tensor:
    """The blocks that each block looks at, in order, then NONE. -> (B, N, L)."""
    block, blocks = pattern.block, text.size(1) // pattern.block
    own = torch.arange(blocks, device=text.device)
    radius = min(pattern.touched, blocks)
    near = own[:, None] + torch.arange(-radius, radius + 1, device=text.device)
    start = torch.arange(text.size(1), device=text.device) - position
    heads = _spread(start, torch.minimum(start + pattern.first, start + length), -(-(pattern.first - 1) // block) + 1, block)
    at = torch.where(chosen >= 0, start[..., None] + chosen * block, NONE)
    drawn = _spread(at, torch.minimum(at + block, (start + length)[..., None]), 2, block).flatten(2)
    far = torch.cat([heads, drawn], -1) if pattern.first else drawn
    far = far.unflatten(1, (blocks, block)).flatten(2)  # what any of a block's places looks at
    found = torch.cat([near.expand(len(text), -1, -1), far], -1)
    found = torch.where(_meet(text, found, block), found, NONE)
    return _once(found)[..., : _longest(pattern, blocks)]


def _spread(begin: Tensor, end: Tensor, most: int, block: int) -> Tensor:
    """The blocks that lie in stretches of places, at most so many, then NONE. (...) -> (..., most)."""
    found = (begin // block)[..., None] + torch.arange(most, device=begin.device)
    return torch.where(found <= ((end - 1) // block)[..., None], found, NONE)


def _meet(text: Tensor, found: Tensor, block: int) -> Tensor:
    """Whether the blocks found are in the row and have a text in common with those that look. (B, N, M) -> (B, N, M)."""
    low, high = _range(text, block)
    inside = (found >= 0) & (found < low.size(1))
    at = torch.where(inside, found, 0).flatten(1)
    theirs = low.gather(1, at).view_as(found), high.gather(1, at).view_as(found)
    return inside & (theirs[0] <= high[..., None]) & (theirs[1] >= low[..., None])


def _range(text: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """The lowest and the highest number of a text in each block; where there is none, the lowest is above the highest."""
    text = text.unflatten(1, (-1, block))
    return torch.where(text > 0, text, NONE).amin(-1), text.amax(-1)


def _once(found: Tensor) -> Tensor:
    """Numbers in order, each one once, then NONE."""
    found = found.sort(-1).values
    again = F.pad(found[..., 1:] == found[..., :-1], (1, 0))
    return found.masked_fill(again, NONE).sort(-1).values


def _longest(pattern: Pattern, blocks: int) -> int:
    """How long a list can be.

    The first places are those of the text that comes in from the left, and of those that begin in the block. A text with random
    blocks has more than two, so that a row's block has parts of at most two such texts, and of at most three of the blocks into
    which these are divided; each of their random blocks lies in at most two of the row's.
    """
    near = 2 * pattern.touched + 1
    heads = -(-(pattern.first - 1) // pattern.block) + 1 + (pattern.block + pattern.first - 2) // pattern.block
    return min(blocks, near + (heads if pattern.first else 0) + 6 * pattern.random)


def _of_queries(lists: Tensor) -> Lists:
    rows, blocks, most = lists.shape
    start = (torch.arange(blocks, device=lists.device) * most).expand(rows, -1)
    count = (lists < NONE).sum(-1)
    return Lists(lists.flatten(1), start, count, torch.full_like(count, -1))


def _transposed(lists: Tensor, asks_all: Tensor) -> Lists:
    """The lists of keys. A block that asks all is in the list of each block that has a text in common with its first places."""
    rows, blocks, _ = lists.shape
    own = torch.arange(blocks, device=lists.device)[:, None]
    asked = torch.where(lists < NONE, lists * blocks + own, NONE)  # the block of keys, then that of queries
    at = torch.where(lists < NONE, lists, 0).flatten(1)
    all_asked = asks_all.gather(1, at).view_as(lists) & (lists < NONE)
    pairs = torch.cat([asked, torch.where(all_asked, own * blocks + lists, NONE)], -1)
    pairs = _once(pairs.flatten(1))
    borders = torch.arange(blocks + 1, device=lists.device) * blocks
    start = torch.searchsorted(pairs, borders.expand(rows, -1).contiguous())
    return Lists(pairs % blocks, start[:, :-1], start.diff(dim=1), torch.full_like(start[:, :-1], -1))


def _stretches(text: Tensor, position: Tensor, length: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """The first block and the number of blocks in which the texts of a block lie. -> two of (B, N)."""
    start = torch.arange(text.size(1), device=text.device) - position
    first = torch.where(text > 0, start, NONE).unflatten(1, (-1, block)).amin(-1) // block
    last = torch.where(text > 0, start + length - 1, 0).unflatten(1, (-1, block)).amax(-1) // block
    return first, last - first + 1


def _stretched(lists: Lists, where: Tensor, begin: Tensor, count: Tensor) -> Lists:
    """Lists in which some blocks look at all of their texts."""
    count, begin = torch.where(where, count, lists.many), torch.where(where, begin, -1)
    return Lists(*(x.int().contiguous() for x in (lists.entries, lists.start, count, begin)))


def attend_block_sparse(qkv: Tensor, mask: BlockSparseMask, heads: int) -> Tensor:
    """Self-attention under a pattern. qkv (B, T, 3 D): queries, keys, values side by side -> (B, T, D)."""
    if qkv.size(-1) // (3 * heads) <= kernels.WIDEST_HEAD and kernels.usable_in(qkv):
        return block_sparse.attend_block_sparse(qkv, mask, heads)
    rows, blocks = mask.of_queries.many.shape
    qkv = F.pad(qkv, (0, 0, 0, -qkv.size(1) % mask.pattern.block))
    parts = qkv.view(rows * blocks, mask.pattern.block, 3, heads, -1).permute(2, 3, 0, 1, 4)  # 3, H, B N, b, K
    out = _Gathered.apply(parts.contiguous(), mask.groups)
    return out.permute(1, 2, 0, 3).reshape(rows, -1, qkv.size(-1) // 3)[:, : mask.width]


def _look(parts: Tensor, group: Group) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries (H, G, b, K), keys and values (H, G, C b, K) of a group, and the weights (H, G, b, C b)."""
    q = parts[0].index_select(1, group.own) * parts.size(-1) ** -0.5
    k, v = (part.index_select(1, group.others).view(*q.shape[:2], -1, q.size(-1)) for part in parts[1:])
    scores = (q @ k.mT).masked_fill_(group.hidden, torch.finfo(q.dtype).min)
    return q, k, v, scores.softmax(-1, dtype=_sums_in(v)).to(v.dtype)


def _sums_in(x: Tensor) -> torch.dtype:
    return torch.float32 if x.dtype == torch.bfloat16 else x.dtype


class _Gathered(torch.autograd.Function):
    """Group after group; the backward pass computes the weights anew, so that no more than one group's is ever kept."""

    @staticmethod
    def forward(ctx: Any, parts: Tensor, groups: list[Group]) -> Tensor:
        ctx.save_for_backward(parts)
        ctx.groups = groups
        out = torch.zeros_like(parts[0])
        for group in groups:
            _, _, v, weights = _look(parts, group)
            out.index_copy_(1, group.own, weights @ v)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (parts,) = ctx.saved_tensors
        found = torch.zeros_like(parts)
        for group in ctx.groups:
            q, k, v, weights = _look(parts, group)
            grad = grads[0].index_select(1, group.own)
            grad_weights = grad @ v.mT
            mean = (weights * grad_weights).sum(-1, keepdim=True, dtype=_sums_in(weights)).to(weights.dtype)
            grad_scores = grad_weights.sub_(mean).mul_(weights)
            found[0].index_copy_(1, group.own, grad_scores @ k * q.size(-1) ** -0.5)
            for number, grad_others in ((1, grad_scores.mT @ q), (2, weights.mT @ grad)):
                found[number].index_add_(1, group.others, grad_others.view(grad.size(0), -1, *grad.shape[2:]))
        return found, None

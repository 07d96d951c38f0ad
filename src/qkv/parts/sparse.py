"""Block-sparse attention: computes exactly the pairs that a pattern (`patterns.py`) shows, and no others.

For each block of queries, `BlockSparseMask` lists the blocks of keys it attends to; a block that holds one of a text's global
tokens attends to all of its texts. On a GPU a kernel reads these lists (`kernels/block_sparse.py`); elsewhere blocks are gathered
and multiplied, group by group, and each group evaluates the rule itself. Nothing here grows faster than the length.
B rows, T positions, H heads, K head width, N blocks in a row, b positions in a block, L blocks in a list; a group has G blocks of
queries with C blocks of keys each.
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
from qkv.parts.patterns import NONE, Pattern, text_positions

if TYPE_CHECKING:
    from qkv.parts.attention import SelfAttention

if kernels.TRITON:
    from qkv.parts.kernels import block_sparse

PAIRS = 1 << 17  # pairs of positions that are computed at once


class BlockLists(NamedTuple):
    """The blocks of its row that each block is computed with: a list, or where `begin` is set, `count` blocks from there on."""

    entries: Tensor  # (B, N L) indices of blocks, list after list
    start: Tensor  # (B, N) where a block's list begins
    counts: Tensor  # (B, N) blocks in it
    begin: Tensor  # (B, N) -1 where there is a list


class BlockGroup(NamedTuple):
    """Blocks of queries with lists of about the same length, which are computed together."""

    own: Tensor  # (G,) indices of query blocks over all rows
    others: Tensor  # (G C,) the key blocks they attend to, C for each
    masked: Tensor  # (G, b, C b) True = do not attend


@dataclass(frozen=True, eq=False)
class BlockSparseMask(AttentionMask):
    """A pattern over the rows of a batch, as lists of the blocks that are computed: all layers use the same."""

    pattern: Pattern
    text: Tensor  # (B, T), padded to whole blocks, as are the following
    position: Tensor
    chosen: Tensor  # (B, T, R)
    of_queries: BlockLists  # the key blocks of each query block
    of_keys: BlockLists  # the query blocks of each key block
    width: int  # T before padding

    def dense(self) -> Tensor:
        """Return the pattern as a boolean matrix, for recording all weights. -> (B, 1, T, T)."""
        text = self.text[:, : self.width]
        return self.pattern.rule(text).dense(text.size(0), self.width, self.width, text.device)

    def attend(self, qkv: Tensor, layer: "SelfAttention") -> Tensor:
        return attend_block_sparse(qkv, self, layer.heads)

    @functools.cached_property
    def groups(self) -> list[BlockGroup]:
        """Groups of all blocks that attend to any, made once for all layers."""
        rule = self.pattern.rule(self.text)
        counts = self.of_queries.counts.flatten()
        return [_group(self, rule, own, counts[own]) for own in _group_indices(counts, self.pattern.block_size)]


def _group_indices(counts: Tensor, block: int) -> Iterator[Tensor]:
    """Yield the indices of blocks, longest lists first, in groups of similar length and limited size."""
    order = counts.argsort(descending=True)
    sizes = counts[order].tolist()
    at = 0
    while at < len(sizes) and sizes[at]:
        stop = at + max(1, PAIRS // (sizes[at] * block * block))
        enough = next((i for i in range(at, len(sizes)) if 4 * sizes[i] < 3 * sizes[at]), len(sizes))
        yield order[at : min(stop, enough)]
        at = min(stop, enough)


def _group(mask: BlockSparseMask, rule: Rule, own: Tensor, counts: Tensor) -> BlockGroup:
    lists, block = mask.of_queries, mask.pattern.block_size
    blocks = lists.counts.size(1)
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
    masked = ~(allowed & real.repeat_interleave(block, 1)[:, None])
    return BlockGroup(own, (row[:, None] * blocks + others).flatten(), masked)


def block_sparse_mask(pattern: Pattern, text: Tensor) -> BlockSparseMask:
    """Build the mask for rows whose positions belong to these texts, without waiting for the device. text (B, T)."""
    width = text.size(1)
    text = F.pad(text, (0, -width % pattern.block_size))
    position, length = text_positions(text)
    chosen = pattern.choose(position, length)
    lists = _entries(pattern, text, position, length, chosen)  # (B, N, L)
    global_ones = ((text > 0) & (position < pattern.global_tokens)).unflatten(1, (-1, pattern.block_size)).any(-1)
    covered = _text_blocks(text, position, length, pattern.block_size)
    of_queries = _with_whole_texts(_of_queries(lists), global_ones, *covered)
    of_keys = _with_whole_texts(_transposed(lists, global_ones), global_ones, *covered)
    return BlockSparseMask(pattern, text.int(), position.int(), chosen.int().contiguous(), of_queries, of_keys, width)


def pattern_mask(pattern: Pattern, text: Tensor) -> AttentionMask:
    """Build the mask of a pattern over packed rows: lists of blocks, or dense while weights are recorded. text (B, T)."""
    mask = block_sparse_mask(pattern, text)
    return DenseMask(mask.dense()) if is_recording() else mask


def _entries(pattern: Pattern, text: Tensor, position: Tensor, length: Tensor, chosen: Tensor) -> Tensor:
    """List the blocks that each block attends to, in order, then NONE. -> (B, N, L)."""
    block, blocks = pattern.block_size, text.size(1) // pattern.block_size
    own = torch.arange(blocks, device=text.device)
    radius = min(pattern.window_blocks, blocks)
    near = own[:, None] + torch.arange(-radius, radius + 1, device=text.device)
    start = torch.arange(text.size(1), device=text.device) - position
    last_global = torch.minimum(start + pattern.global_tokens, start + length)
    heads = _covering_blocks(start, last_global, -(-(pattern.global_tokens - 1) // block) + 1, block)
    at = torch.where(chosen >= 0, start[..., None] + chosen * block, NONE)
    drawn = _covering_blocks(at, torch.minimum(at + block, (start + length)[..., None]), 2, block).flatten(2)
    far = torch.cat([heads, drawn], -1) if pattern.global_tokens else drawn
    far = far.unflatten(1, (blocks, block)).flatten(2)  # the union over a block's positions
    found = torch.cat([near.expand(len(text), -1, -1), far], -1)
    found = torch.where(_share_text(text, found, block), found, NONE)
    return _unique(found)[..., : _longest(pattern, blocks)]


def _covering_blocks(begin: Tensor, end: Tensor, most: int, block: int) -> Tensor:
    """List the blocks, at most `most`, that cover positions from `begin` to `end`, then NONE. (...) -> (..., most)."""
    found = (begin // block)[..., None] + torch.arange(most, device=begin.device)
    return torch.where(found <= ((end - 1) // block)[..., None], found, NONE)


def _share_text(text: Tensor, found: Tensor, block: int) -> Tensor:
    """Return whether the blocks found are in the row and share a text with the querying block. (B, N, M) -> (B, N, M)."""
    text = text.unflatten(1, (-1, block))
    low, high = torch.where(text > 0, text, NONE).amin(-1), text.amax(-1)  # lowest and highest text of each block
    inside = (found >= 0) & (found < low.size(1))
    at = torch.where(inside, found, 0).flatten(1)
    theirs = low.gather(1, at).view_as(found), high.gather(1, at).view_as(found)
    return inside & (theirs[0] <= high[..., None]) & (theirs[1] >= low[..., None])


def _unique(found: Tensor) -> Tensor:
    """Sort and remove duplicates, with NONE at the end."""
    found = found.sort(-1).values
    again = F.pad(found[..., 1:] == found[..., :-1], (1, 0))
    return found.masked_fill(again, NONE).sort(-1).values


def _longest(pattern: Pattern, blocks: int) -> int:
    """Return the longest that a list can be.

    Global tokens are those of the text that comes in from the left, and of those that begin in the block. A text with random
    blocks has more than two, so that a row's block has parts of at most two such texts, and of at most three of their own blocks;
    each of their random blocks lies in at most two of the row's.
    """
    size, count = pattern.block_size, pattern.global_tokens
    near = 2 * pattern.window_blocks + 1
    heads = -(-(count - 1) // size) + 1 + (size + count - 2) // size if count else 0
    return min(blocks, near + heads + 6 * pattern.random_blocks)


def _of_queries(lists: Tensor) -> BlockLists:
    rows, blocks, most = lists.shape
    start = (torch.arange(blocks, device=lists.device) * most).expand(rows, -1)
    count = (lists < NONE).sum(-1)
    return BlockLists(lists.flatten(1), start, count, torch.full_like(count, -1))


def _transposed(lists: Tensor, is_global: Tensor) -> BlockLists:
    """Return the lists of keys. A block with global tokens is in the list of each block that shares a text with them."""
    rows, blocks, _ = lists.shape
    own = torch.arange(blocks, device=lists.device)[:, None]
    asked = torch.where(lists < NONE, lists * blocks + own, NONE)  # the block of keys, then that of queries
    at = torch.where(lists < NONE, lists, 0).flatten(1)
    global_asked = is_global.gather(1, at).view_as(lists) & (lists < NONE)
    pairs = torch.cat([asked, torch.where(global_asked, own * blocks + lists, NONE)], -1)
    pairs = _unique(pairs.flatten(1))
    borders = torch.arange(blocks + 1, device=lists.device) * blocks
    start = torch.searchsorted(pairs, borders.expand(rows, -1).contiguous())
    return BlockLists(pairs % blocks, start[:, :-1], start.diff(dim=1), torch.full_like(start[:, :-1], -1))


def _text_blocks(text: Tensor, position: Tensor, length: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """Return the first block and the number of blocks that the texts of each block cover. -> two of (B, N)."""
    start = torch.arange(text.size(1), device=text.device) - position
    first = torch.where(text > 0, start, NONE).unflatten(1, (-1, block)).amin(-1) // block
    last = torch.where(text > 0, start + length - 1, 0).unflatten(1, (-1, block)).amax(-1) // block
    return first, last - first + 1


def _with_whole_texts(lists: BlockLists, where: Tensor, begin: Tensor, count: Tensor) -> BlockLists:
    """Let the blocks at `where` attend to all blocks of their texts."""
    count, begin = torch.where(where, count, lists.counts), torch.where(where, begin, -1)
    return BlockLists(*(x.int().contiguous() for x in (lists.entries, lists.start, count, begin)))


def attend_block_sparse(qkv: Tensor, mask: BlockSparseMask, heads: int) -> Tensor:
    """Compute self-attention under a pattern. qkv (B, T, 3 D): queries, keys, values side by side -> (B, T, D)."""
    if qkv.size(-1) // (3 * heads) <= kernels.WIDEST_HEAD and kernels.usable_in(qkv):
        return block_sparse.attend_block_sparse(qkv, mask, heads)
    rows, blocks = mask.of_queries.counts.shape
    qkv = F.pad(qkv, (0, 0, 0, -qkv.size(1) % mask.pattern.block_size))
    parts = qkv.view(rows * blocks, mask.pattern.block_size, 3, heads, -1).permute(2, 3, 0, 1, 4)  # 3, H, B N, b, K
    out = _GroupedAttention.apply(parts.contiguous(), mask.groups)
    return out.permute(1, 2, 0, 3).reshape(rows, -1, qkv.size(-1) // 3)[:, : mask.width]


def _group_attention(parts: Tensor, group: BlockGroup) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return queries (H, G, b, K), keys and values (H, G, C b, K) and attention weights (H, G, b, C b) of a group."""
    q = parts[0].index_select(1, group.own) * parts.size(-1) ** -0.5
    k, v = (part.index_select(1, group.others).view(*q.shape[:2], -1, q.size(-1)) for part in parts[1:])
    scores = (q @ k.mT).masked_fill_(group.masked, torch.finfo(q.dtype).min)
    return q, k, v, scores.softmax(-1, dtype=_accumulator(v)).to(v.dtype)


def _accumulator(x: Tensor) -> torch.dtype:
    return torch.float32 if x.dtype == torch.bfloat16 else x.dtype


class _GroupedAttention(torch.autograd.Function):
    """Attention group after group; the backward pass recomputes the weights, so that only one group's are in memory."""

    @staticmethod
    def forward(ctx: Any, parts: Tensor, groups: list[BlockGroup]) -> Tensor:
        ctx.save_for_backward(parts)
        ctx.groups = groups
        out = torch.zeros_like(parts[0])
        for group in groups:
            _, _, v, weights = _group_attention(parts, group)
            out.index_copy_(1, group.own, weights @ v)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (parts,) = ctx.saved_tensors
        found = torch.zeros_like(parts)
        for group in ctx.groups:
            q, k, v, weights = _group_attention(parts, group)
            grad = grads[0].index_select(1, group.own)
            grad_weights = grad @ v.mT
            mean = (weights * grad_weights).sum(-1, keepdim=True, dtype=_accumulator(weights)).to(weights.dtype)
            grad_scores = grad_weights.sub_(mean).mul_(weights)
            found[0].index_copy_(1, group.own, grad_scores @ k * q.size(-1) ** -0.5)
            for number, grad_others in ((1, grad_scores.mT @ q), (2, weights.mT @ grad)):
                found[number].index_add_(1, group.others, grad_others.view(grad.size(0), -1, *grad.shape[2:]))
        return found, None

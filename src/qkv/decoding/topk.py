"""topk and argmax over a vocabulary, faster than torch's where rows are long. R rows, V vocabulary, B tokens in a block."""

import functools

import torch
from torch import Tensor

BLOCK = 64
WORTH = 20_000  # values in all from which blocks pay


def topk(values: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return the `size` highest values of each row (R, V) and their indices, as torch.topk does; ties come in any order.

    The highest values stand in the blocks whose own maxima are the highest. One pass finds all maxima, at a fifth of the cost of
    torch.topk over the whole row.
    """
    (rows, vocabulary), device = values.shape, values.device
    blocks = vocabulary // BLOCK
    if values.numel() < WORTH or blocks < 2 * size:
        return values.topk(size)
    if values.is_cuda:  # every `blocks`-th token is a block, so that neighbouring threads read neighbouring tokens
        chosen = values[:, : blocks * BLOCK].unflatten(1, (BLOCK, blocks)).amax(1).topk(size).indices  # (R, size)
        indices = chosen[..., None] + _range(0, blocks * BLOCK, blocks, device)  # (R, size, B)
    else:
        chosen = _blocks(values).amax(-1).topk(size).indices
        indices = (chosen * BLOCK)[..., None] + _range(0, BLOCK, 1, device)
    indices = indices.flatten(1)
    if vocabulary % BLOCK:
        indices = torch.cat([indices, _range(blocks * BLOCK, vocabulary, 1, device).expand(rows, -1)], 1)
    best, order = values.gather(1, indices).topk(size)
    return best, indices.gather(1, order)


def argmax(values: Tensor) -> Tensor:
    """Return the index of the highest value of each row (R, V), the first one of several equal ones."""
    vocabulary = values.size(1)
    if values.numel() < WORTH or vocabulary < BLOCK:
        return values.argmax(-1)
    last = values[:, vocabulary - BLOCK :].amax(-1, keepdim=True)  # may overlap the block before it
    block = torch.cat([_blocks(values).amax(-1), last], 1).argmax(-1, keepdim=True)
    first = (block * BLOCK).clamp(max=vocabulary - BLOCK)  # (R, 1)
    indices = first + _range(0, BLOCK, 1, values.device)
    return first[:, 0] + values.gather(1, indices).argmax(-1)


@functools.cache
def _range(start: int, end: int, step: int, device: torch.device) -> Tensor:
    """Return torch.arange, made once for each use."""
    return torch.arange(start, end, step, device=device)


def _blocks(values: Tensor) -> Tensor:
    """Cut rows into blocks and drop the rest. (R, V) -> (R, V // B, B)."""
    blocks = values.size(1) // BLOCK
    return values[:, : blocks * BLOCK].unflatten(1, (blocks, BLOCK))

"""Positions in the dependency tree of a sentence: structural positions (Wang, Tu, Wang and Shi 2019,
"Self-Attention with Structural Position Representations").

A word's absolute structural position is its depth, its distance from the root. The sines of the sequential position and of the
depth go through a learned layer with tanh, whose output is added to the embedding. The relative structural position of two words
is the path from one to the other in the tree: along a branch, the difference in depth; otherwise the length of the path over the
lowest common ancestor, negative if the key precedes the query. Clipped, it has vectors of its own beside Shaw's for sequential
distances; keys and values get both. Depths and distances are computed here and used in `positions.py` and `relative.py`.

Departures from the paper: the distance of words on different branches is the length of the path between them; the paper, as we
understand it, takes the sum of their depths, as if each path led over the root. The two relative positions are added, not mixed
by a layer. All pieces of a word have the word's position. A text may have several roots, since it may hold several sentences;
tokens without a word, such as bos and eos, are roots too, and the path between two trees leads over a node above all roots. A
target has no tree, and its positions are sequential.

Heads are encoded as in `base.rows.Rows`. No shape depends on their values. B batch, T length, D width.
"""

import torch
from torch import Tensor

from qkv.base.errors import ConfigError
from qkv.base.rows import Rows

MAX_EXPORTED_POSITIONS = 1 << 16  # longest text with a tree in an exported graph


def nodes(position: Tensor, head: Tensor) -> tuple[Tensor, Tensor]:
    """Return where in its row each token's word begins, and where its head does: itself at a root. Two of (B, T)."""
    here = torch.arange(position.size(1), device=position.device).expand_as(position)
    at = here - position + head // 2
    word = torch.where(head % 2 > 0, at, here)
    return word, at.gather(1, word)


def tree_depths(position: Tensor, head: Tensor) -> Tensor:
    """Return the depth of each token's word. (B, T) each -> (B, T)."""
    word, up = nodes(position, head)
    depth = (up != word).long()
    for _ in range(_rounds(position)):  # pointer jumping: each round doubles the steps towards the root
        depth = depth + depth.gather(1, up)
        up = up.gather(1, up)
    return depth


def tree_distances(position: Tensor, head: Tensor) -> Tensor:
    """Return the signed path length in the tree from each query to each key of a row. (B, T) each -> (B, T, T)."""
    above = _ancestors(*nodes(position, head)).float()
    with torch.autocast(position.device.type, enabled=False):  # bf16 cannot count beyond 256
        shared = (above @ above.mT).long()  # common ancestors, the words themselves included
    depth = shared.diagonal(dim1=-2, dim2=-1) - 1
    query, key = depth[:, :, None], depth[:, None, :]
    path = query + key - 2 * (shared - 1)
    signed = path * (position[:, None, :] - position[:, :, None]).sign()
    return torch.where(shared > torch.minimum(query, key), key - query, signed)


def _ancestors(word: Tensor, up: Tensor) -> Tensor:
    """Mark the words from each token up to its root, both included, by where they begin. (B, T) each -> (B, T, T), bool."""
    seen = torch.zeros(*word.shape, word.size(1), dtype=torch.bool, device=word.device).scatter_(2, word[..., None], True)
    for _ in range(_rounds(word)):
        seen = seen | seen.gather(1, up[..., None].expand_as(seen))
        up = up.gather(1, up)
    return seen


def _rounds(position: Tensor) -> int:
    """Return the rounds of pointer jumping that reach any root.

    From the row's width alone, so that no shape depends on values.
    """
    if torch.compiler.is_exporting():  # the exported graph takes rows of any width
        return MAX_EXPORTED_POSITIONS.bit_length() - 1
    return (position.size(1) - 1).bit_length()


def heads_of(rows: Rows) -> Tensor:
    """Return the heads of rows, which must have them."""
    if rows.head is None:
        raise ConfigError("this model has structural positions and needs texts with heads; these have none")
    return rows.head

"""Where words stand in the dependency tree of their sentence: structural positions (Wang, Tu, Wang and Shi 2019,
"Self-Attention with Structural Position Representations").

A word's absolute position is its depth, its distance from the root. Beside it stands the sequential one: the sines of both go
through a learned layer with tanh, and what comes out is added to the embedding. The relative position of two words is the way
from the one to the other in the tree: on a branch, how much deeper the other is; otherwise the length of the way over the nearest
word that governs both, negative if the other word comes before. Clipped, it has vectors of its own beside Shaw's for sequential
distances; keys and values get both. Depths and distances are here, what is made of them in `positions.py` and `relative.py`.

Where we depart from the paper: words on different branches are as far apart as the way between them is long, where the paper, as
we understand it, takes the sum of their depths, as if each way led over the root; and the two relative positions are added, not
mixed by a layer. All pieces of a word stand where the word stands. A text may have several roots, as it may hold several
sentences; tokens without a word, such as those that begin and end a text, are roots too, and the way between two trees leads over
a place above all roots. Where there is no tree, on the side of the target, positions are sequential.

Heads reach a model coded, see `base.rows.Rows`. No shape depends on their values. B batch, T length, D width.
"""

import torch
from torch import Tensor

from qkv.base.errors import ConfigError
from qkv.base.rows import Rows

MOST = 1 << 16  # places that a text with a tree may have in a graph for other programs


def nodes(position: Tensor, head: Tensor) -> tuple[Tensor, Tensor]:
    """Where in its row each token's word begins, and where the word that governs it does: itself at a root. Each (B, T)."""
    here = torch.arange(position.size(1), device=position.device).expand_as(position)
    at = here - position + head // 2
    word = torch.where(head % 2 > 0, at, here)
    return word, at.gather(1, word)


def depths(position: Tensor, head: Tensor) -> Tensor:
    """How many words lie above each token's. (B, T) each -> (B, T)."""
    word, up = nodes(position, head)
    depth = (up != word).long()
    for _ in range(_doublings(position)):  # each time twice as many steps towards the root
        depth = depth + depth.gather(1, up)
        up = up.gather(1, up)
    return depth


def distances(position: Tensor, head: Tensor) -> Tensor:
    """The way in the tree from each token (a query) to each token (a key) of a row. (B, T) each -> (B, T, T)."""
    above = _branches(*nodes(position, head)).float()
    with torch.autocast(position.device.type, enabled=False):  # bf16 cannot count beyond 256
        shared = (above @ above.mT).long()  # words above both tokens, their own included
    depth = shared.diagonal(dim1=-2, dim2=-1) - 1
    query, key = depth[:, :, None], depth[:, None, :]
    way = query + key - 2 * (shared - 1)
    turned = way * (position[:, None, :] - position[:, :, None]).sign()
    return torch.where(shared > torch.minimum(query, key), key - query, turned)


def _branches(word: Tensor, up: Tensor) -> Tensor:
    """Which words, by where they begin, lie between each token and its root, both included. (B, T) each -> (B, T, T), bool."""
    seen = torch.zeros(*word.shape, word.size(1), dtype=torch.bool, device=word.device).scatter_(2, word[..., None], True)
    for _ in range(_doublings(word)):
        seen = seen | seen.gather(1, up[..., None].expand_as(seen))
        up = up.gather(1, up)
    return seen


def _doublings(position: Tensor) -> int:
    """After how many doublings a step reaches any root: rows alone tell, so that nothing depends on values."""
    if torch.compiler.is_exporting():  # a graph for other programs, whose rows may have any width
        return MOST.bit_length() - 1
    return (position.size(1) - 1).bit_length()


def heads_of(rows: Rows) -> Tensor:
    """The heads of rows that must have them."""
    if rows.head is None:
        raise ConfigError("this model's positions are structural: it reads texts with heads, and these have none")
    return rows.head

"""Words as vectors made of their letters: convolutions over a word's bytes, the largest value of each, highway layers.

Kim et al. 2015, "Character-Aware Neural Language Models", sections 2.2 and 2.3; Jozefowicz et al. 2016, section 3.2. Windows
begin at each symbol of a word and may reach beyond its end, where there are zeros: so a word's vector does not depend on how much
room the table has. In the authors' code it does, since padding takes part in the maximum.
N words, C symbols of a word, E width of a symbol's embedding, F filters of all widths, D width.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.base.characters import CHARACTERS, PADDING
from qkv.parts.activations import ACTIVATIONS
from qkv.parts.linear import Linear

CARRY = -2.0  # first bias of a highway layer's gate: it lets through what it is given (Srivastava et al. 2015, section 2.2)


class Spellings(nn.Module):
    """The symbols of each word of a vocabulary, and of words unseen in training, whose numbers follow."""

    unseen: Tensor

    def __init__(self, vocab: int, room: int):
        super().__init__()
        # A parameter that is not learned, since those are what a run keeps.
        self.weight = nn.Parameter(torch.zeros(vocab, room, dtype=torch.int16), requires_grad=False)
        self.register_buffer("unseen", torch.zeros(0, room, dtype=torch.int16), persistent=False)

    @torch.no_grad()
    def know(self, symbols: np.ndarray) -> None:
        """Take over the vocabulary's, (V, C)."""
        self.weight.copy_(torch.from_numpy(symbols))

    def know_unseen(self, symbols: np.ndarray) -> None:
        """Take over those of other words, (U, C), instead of any known before."""
        self.unseen = torch.from_numpy(symbols).to(self.weight.device)

    def forward(self, ids: Tensor) -> Tensor:
        """(N,) -> (N, C)."""
        table = torch.cat([self.weight, self.unseen]) if len(self.unseen) else self.weight
        return table[ids].long()


class CharacterWords(nn.Module):
    """Vectors of words by how they are spelled."""

    recordable = False  # as a CUDA graph: the host has to know how many words there are

    def __init__(
        self, vocab: int, room: int, letter: int, filters: Sequence[tuple[int, int]], highways: int, width: int, activation: str
    ):
        """`letter` is the width of a symbol's embedding; filters are (width, how many)."""
        super().__init__()
        self.token_embedding = Spellings(vocab, room)
        self.letters = nn.Embedding(CHARACTERS, letter, padding_idx=PADDING)
        self.filters = nn.ModuleList(nn.Conv1d(letter, many, wide) for wide, many in filters)
        found = sum(many for _, many in filters)
        self.highways = nn.ModuleList(Highway(found) for _ in range(highways))
        self.projection = Linear(found, width)
        self.activation = ACTIVATIONS[activation]

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) -> (B, T, D); each word once, however often it stands there, and no more room than the longest one takes."""
        different, which = ids.unique(return_inverse=True)
        symbols = self.token_embedding(different)
        longest = max(1, int((symbols != PADDING).sum(1).max()))
        return F.embedding(which, self.of_symbols(symbols[:, :longest]))

    def of_symbols(self, symbols: Tensor) -> Tensor:
        """(N, C) -> (N, D)."""
        weight, bias, widest = self._all_filters()
        windows = F.pad(self.letters(symbols), (0, 0, 0, widest - 1)).unfold(1, widest, 1).flatten(2)  # (N, C, E x widest)
        found = F.linear(windows, weight, bias).masked_fill_((symbols == PADDING)[..., None], float("-inf"))  # (N, C, F)
        x = self.activation(found.amax(1))
        for highway in self.highways:
            x = highway(x)
        return self.projection(x)

    def _all_filters(self) -> tuple[Tensor, Tensor, int]:
        """Weights (F, E x widest) and biases of all filters, the narrower with zeros behind, and how wide the widest are.

        One product over all windows: a library's convolution would look for a way to compute each for each number of words.
        """
        filters: Any = self.filters
        widest = max(one.weight.size(-1) for one in filters)
        weights = [F.pad(one.weight, (0, widest - one.weight.size(-1))) for one in filters]
        return torch.cat(weights).flatten(1), torch.cat([one.bias for one in filters]), widest


class Highway(nn.Module):
    """t relu(W x) + (1 - t) x, where t, between 0 and 1, is told by x too."""

    def __init__(self, width: int):
        super().__init__()
        self.change = Linear(width, width)
        self.gate = Linear(width, width)
        nn.init.constant_(self.gate.bias, CARRY)

    def forward(self, x: Tensor) -> Tensor:
        """(N, F) -> (N, F)."""
        through = torch.sigmoid(self.gate(x))
        return through * F.relu(self.change(x)) + (1 - through) * x

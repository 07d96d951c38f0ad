"""Word vectors from characters: convolutions over a word's bytes, max-pooling over positions, highway layers.

Kim et al. 2015, "Character-Aware Neural Language Models", sections 2.2 and 2.3; Jozefowicz et al. 2016, section 3.2. Windows
begin at each character of a word and extend beyond its end with zeros, so that a word's vector does not depend on
`max_characters`. In the authors' code it does, since padding takes part in the maximum.
N words, C characters of a word, E character embedding width, F filters of all widths, D width.
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

CARRY = -2.0  # initial bias of a highway layer's gate: the layer passes its input on (Srivastava et al. 2015, section 2.2)


class CharacterTable(nn.Module):
    """The character ids of each word of a vocabulary and, with ids after those, of words unseen in training."""

    unseen: Tensor

    def __init__(self, vocab: int, max_characters: int):
        super().__init__()
        # A frozen parameter, not a buffer: a run folder stores parameters.
        self.weight = nn.Parameter(torch.zeros(vocab, max_characters, dtype=torch.int16), requires_grad=False)
        self.register_buffer("unseen", torch.zeros(0, max_characters, dtype=torch.int16), persistent=False)

    @torch.no_grad()
    def set_vocabulary(self, character_ids: np.ndarray) -> None:
        """Store the character ids of the vocabulary, (V, C)."""
        self.weight.copy_(torch.from_numpy(character_ids))

    def set_unseen(self, character_ids: np.ndarray) -> None:
        """Replace the character ids of unseen words, (U, C)."""
        self.unseen = torch.from_numpy(character_ids).to(self.weight.device)

    def forward(self, ids: Tensor) -> Tensor:
        """(N,) -> (N, C)."""
        table = torch.cat([self.weight, self.unseen]) if len(self.unseen) else self.weight
        return table[ids].long()


class CharacterEmbedding(nn.Module):
    """Word vectors from characters."""

    recordable = False  # as a CUDA graph: the host has to know how many different words there are

    def __init__(
        self,
        vocab: int,
        max_characters: int,
        character_width: int,
        filters: Sequence[tuple[int, int]],
        highway_layers: int,
        width: int,
        activation: str,
    ):
        """Build the layers; filters are pairs of a width and a count."""
        super().__init__()
        self.token_embedding = CharacterTable(vocab, max_characters)
        self.characters = nn.Embedding(CHARACTERS, character_width, padding_idx=PADDING)
        self.filters = nn.ModuleList(nn.Conv1d(character_width, count, size) for size, count in filters)
        outputs = sum(count for _, count in filters)
        self.highway_layers = nn.ModuleList(Highway(outputs) for _ in range(highway_layers))
        self.projection = Linear(outputs, width)
        self.activation = ACTIVATIONS[activation]

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) -> (B, T, D); each different word is computed once, as wide as the longest one."""
        words, index = ids.unique(return_inverse=True)
        characters = self.token_embedding(words)
        longest = max(1, int((characters != PADDING).sum(1).max()))
        return F.embedding(index, self.of_characters(characters[:, :longest]))

    def of_characters(self, characters: Tensor) -> Tensor:
        """(N, C) -> (N, D)."""
        # All filters are one matrix product, the narrower ones padded with zeros: a library's convolution would search for an
        # algorithm for each number of words.
        filters: Any = self.filters
        widest = max(one.weight.size(-1) for one in filters)
        weight = torch.cat([F.pad(one.weight, (0, widest - one.weight.size(-1))) for one in filters]).flatten(
            1
        )  # (F, E x widest)
        bias = torch.cat([one.bias for one in filters])
        padded = F.pad(self.characters(characters), (0, 0, 0, widest - 1))
        windows = padded.unfold(1, widest, 1).flatten(2)  # (N, C, E x widest)
        found = F.linear(windows, weight, bias).masked_fill_((characters == PADDING)[..., None], float("-inf"))  # (N, C, F)
        x = self.activation(found.amax(1))
        for layer in self.highway_layers:
            x = layer(x)
        return self.projection(x)


class Highway(nn.Module):
    """A highway layer: t relu(W x) + (1 - t) x, with a gate t between 0 and 1 that depends on x."""

    def __init__(self, width: int):
        super().__init__()
        self.change = Linear(width, width)
        self.gate = Linear(width, width)
        nn.init.constant_(self.gate.bias, CARRY)

    def forward(self, x: Tensor) -> Tensor:
        """(N, F) -> (N, F)."""
        gate = torch.sigmoid(self.gate(x))
        return gate * F.relu(self.change(x)) + (1 - gate) * x

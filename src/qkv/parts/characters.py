"""Word embeddings from characters: convolutions over a word's bytes, max-pooling over time, highway layers.

Kim et al. 2015, "Character-Aware Neural Language Models", sections 2.2 and 2.3; Jozefowicz et al. 2016, section 3.2. A window
begins at each character of a word and may extend beyond its end, where there are zeros, so that a word's vector does not depend
on the width of the table. In the authors' code it does, since padding takes part in the maximum.
N words, C characters of a word, E width of a character's embedding, F filters of all widths, D width.
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

# Initial bias of a transform gate: at first a highway layer mostly copies its input (Srivastava et al. 2015, section 2.2).
GATE_BIAS = -2.0


class CharacterTable(nn.Module):
    """The characters of each word of a vocabulary, then of words unseen in training, whose ids follow."""

    unseen: Tensor

    def __init__(self, vocab: int, max_characters: int):
        super().__init__()
        # A parameter without gradient, because a run saves its parameters.
        self.weight = nn.Parameter(torch.zeros(vocab, max_characters, dtype=torch.int16), requires_grad=False)
        self.register_buffer("unseen", torch.zeros(0, max_characters, dtype=torch.int16), persistent=False)

    @torch.no_grad()
    def set_vocabulary(self, characters: np.ndarray) -> None:
        """Set the characters of the vocabulary's words, (V, C)."""
        self.weight.copy_(torch.from_numpy(characters))

    def set_unseen(self, characters: np.ndarray) -> None:
        """Replace the characters of unseen words, (U, C)."""
        self.unseen = torch.from_numpy(characters).to(self.weight.device)

    def forward(self, ids: Tensor) -> Tensor:
        """Look up the characters of words. (N,) -> (N, C)."""
        table = torch.cat([self.weight, self.unseen]) if len(self.unseen) else self.weight
        return table[ids].long()


class CharacterEmbedding(nn.Module):
    """Embeds words by their characters: CNN, highway layers, projection."""

    recordable = False  # as a CUDA graph: the number of different words changes from batch to batch

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
        """`filters` are pairs of a filter width and the number of filters of that width."""
        super().__init__()
        self.token_embedding = CharacterTable(vocab, max_characters)
        self.character_embedding = nn.Embedding(CHARACTERS, character_width, padding_idx=PADDING)
        self.filters = nn.ModuleList(nn.Conv1d(character_width, count, size) for size, count in filters)
        total = sum(count for _, count in filters)
        self.highway_layers = nn.ModuleList(Highway(total) for _ in range(highway_layers))
        self.projection = Linear(total, width)
        self.activation = ACTIVATIONS[activation]

    def forward(self, ids: Tensor) -> Tensor:
        """Embed words. Each different word is computed once, at the width of the longest word. (B, T) -> (B, T, D)."""
        different, inverse = ids.unique(return_inverse=True)
        characters = self.token_embedding(different)
        longest = max(1, int((characters != PADDING).sum(1).max()))
        return F.embedding(inverse, self.embed_characters(characters[:, :longest]))

    def embed_characters(self, characters: Tensor) -> Tensor:
        """Embed words given by their characters. (N, C) -> (N, D)."""
        # One matrix product for all filters, the narrower ones padded with zeros: cuDNN would search for an algorithm again for
        # each filter and each number of words.
        filters: Any = self.filters
        widest = max(one.weight.size(-1) for one in filters)
        weight = torch.cat([F.pad(one.weight, (0, widest - one.weight.size(-1))) for one in filters]).flatten(1)
        bias = torch.cat([one.bias for one in filters])  # (F,), and weight is (F, E x widest)
        embedded = F.pad(self.character_embedding(characters), (0, 0, 0, widest - 1))
        windows = embedded.unfold(1, widest, 1).flatten(2)  # (N, C, E x widest)
        features = F.linear(windows, weight, bias).masked_fill_((characters == PADDING)[..., None], float("-inf"))  # (N, C, F)
        x = self.activation(features.amax(1))
        for highway in self.highway_layers:
            x = highway(x)
        return self.projection(x)


class Highway(nn.Module):
    """t relu(W x) + (1 - t) x, where t = sigmoid(V x) is the transform gate."""

    def __init__(self, width: int):
        super().__init__()
        self.transform = Linear(width, width)
        self.gate = Linear(width, width)
        nn.init.constant_(self.gate.bias, GATE_BIAS)

    def forward(self, x: Tensor) -> Tensor:
        """(N, F) -> (N, F)."""
        gate = torch.sigmoid(self.gate(x))
        return gate * F.relu(self.transform(x)) + (1 - gate) * x

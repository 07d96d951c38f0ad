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
from torch.autograd.function import once_differentiable

from qkv.base.characters import CHARACTERS, PADDING
from qkv.base.rows import host_copy
from qkv.parts.activations import ACTIVATIONS
from qkv.parts.linear import Linear
from qkv.parts.products import product

# Initial bias of a transform gate: at first a highway layer mostly copies its input (Srivastava et al. 2015, section 2.2).
GATE_BIAS = -2.0
# Words of at most so many characters are computed together, and all longer ones. Of the positions that a batch of English text
# would have at the width of its longest word, that leaves 40 %; without any padding 35 % would be left.
GROUP_WIDTHS = (7, 10, 14, 20)


class CharacterTable(nn.Module):
    """The characters of each word of a vocabulary, then of words unseen in training, whose ids follow."""

    unseen: Tensor

    def __init__(self, vocab: int, max_characters: int):
        super().__init__()
        # A parameter without gradient, because a run saves its parameters.
        self.weight = nn.Parameter(torch.zeros(vocab, max_characters, dtype=torch.int16), requires_grad=False)
        self.register_buffer("unseen", torch.zeros(0, max_characters, dtype=torch.int16), persistent=False)
        self.unseen_lengths = torch.zeros(0, dtype=torch.int64)
        self._lengths: tuple[tuple[int, int], Tensor] | None = None  # address and version of the weight, and lengths of its words

    @torch.no_grad()
    def set_vocabulary(self, characters: np.ndarray) -> None:
        """Set the characters of the vocabulary's words, (V, C)."""
        self.weight.copy_(torch.from_numpy(characters))
        self._lengths = None

    def set_unseen(self, characters: np.ndarray) -> None:
        """Replace the characters of unseen words, (U, C)."""
        self.unseen = torch.from_numpy(characters).to(self.weight.device)
        self.unseen_lengths = torch.from_numpy((characters != PADDING).sum(1))

    def lengths(self) -> Tensor:
        """Return the number of characters of each word, on the host. -> (V + U,)."""
        now = self.weight.data_ptr(), 0 if self.weight.is_inference() else self.weight._version
        if self._lengths is None or self._lengths[0] != now:  # on a GPU the host has to wait for them
            self._lengths = now, (self.weight != PADDING).sum(1).cpu()
        return torch.cat([self._lengths[1], self.unseen_lengths]) if len(self.unseen_lengths) else self._lengths[1]

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
        """Embed words, each different word once, in groups of similar length. (B, T) -> (B, T, D)."""
        words, inverse, groups = self._group(host_copy(ids))
        if ids.is_cuda:  # pinned, or the copies would wait until the GPU has done all work before them
            words, inverse = words.pin_memory(), inverse.pin_memory()
        words, inverse = (index.to(ids.device, non_blocking=True) for index in (words, inverse))
        return F.embedding(inverse, self._embed_groups(self.token_embedding(words), groups))

    def _group(self, ids: Tensor) -> tuple[Tensor, Tensor, list[tuple[int, int, int]]]:
        """Sort the different words by length, on the host, which has to know the sizes of the groups.

        -> the words (N,), the index of each id among them (B, T), and for each group its start, its end and its longest word.
        """
        words, inverse = ids.unique(return_inverse=True)
        length, order = self.token_embedding.lengths()[words].sort(stable=True)
        rank = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
        widths = torch.arange(self.token_embedding.weight.size(1) + 1)
        within = torch.searchsorted(length, widths, right=True).tolist()  # words of at most this many characters
        groups, start = [], 0
        for width in (*(width for width in GROUP_WIDTHS if width < len(within)), len(within) - 1):
            if within[width] > start:
                groups.append((start, within[width], max(1, within.index(within[width]))))
                start = within[width]
        return words[order], rank[inverse], groups

    def embed_characters(self, characters: Tensor) -> Tensor:
        """Embed words given by their characters. (N, C) -> (N, D)."""
        return self._embed_groups(characters, [(0, *characters.shape)])

    def _embed_groups(self, characters: Tensor, groups: Sequence[tuple[int, int, int]]) -> Tensor:
        """Embed words in groups: where each begins and ends, and the characters of its longest word. (N, C) -> (N, D)."""
        # One matrix product for all filters, the narrower ones padded with zeros: cuDNN would search for an algorithm again for
        # each filter and each number of words.
        filters: Any = self.filters
        widest = max(one.weight.size(-1) for one in filters)
        weight = torch.cat([F.pad(one.weight, (0, widest - one.weight.size(-1))) for one in filters]).flatten(1)
        bias = torch.cat([one.bias for one in filters])  # (F,), and weight is (F, E x widest)
        longest = max(width for *_, width in groups)
        convolve = _MaxOverTime.apply if torch.is_grad_enabled() else _max_over_time
        embedded = F.pad(self.character_embedding(characters[:, :longest]), (0, 0, 0, widest - 1))
        pooled = []
        for start, end, width in groups:
            windows = embedded[start:end, : width + widest - 1].unfold(1, widest, 1).flatten(2)  # (n, width, E x widest)
            padding = (characters[start:end, :width] == PADDING)[..., None]
            pooled.append(convolve(windows, weight, bias, padding))  # (n, F)
        x = self.activation(torch.cat(pooled))
        for highway in self.highway_layers:
            x = highway(x)
        return self.projection(x)


def _replace_padding(windows: Tensor, padding: Tensor) -> Tensor:
    """Replace windows that begin in padding by their word's first, which changes no maximum. The output is far wider.

    windows (n, C, E x widest), padding (n, C, 1).
    """
    return torch.where(padding, windows[:, :1], windows)


def _max_over_time(windows: Tensor, weight: Tensor, bias: Tensor, padding: Tensor) -> Tensor:
    """Return each filter's maximum over a word, -inf for words without characters.

    windows (n, C, E x widest), weight (F, E x widest), bias (F,), padding (n, C, 1) -> (n, F).
    """
    return F.linear(_replace_padding(windows, padding), weight, bias).amax(1).masked_fill(padding[:, 0], float("-inf"))


class _MaxOverTime(torch.autograd.Function):
    """`_max_over_time` with gradients. The first of equal values gets the gradient.

    The gradient of torch's `amax` divides it among them, which takes several passes over all values (n, C, F).
    """

    @staticmethod
    def forward(ctx: Any, windows: Tensor, weight: Tensor, bias: Tensor, padding: Tensor) -> Tensor:
        device = windows.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else windows.dtype
        windows, weight = _replace_padding(windows.to(dtype), padding), weight.to(dtype)
        largest, at = F.linear(windows, weight, bias.to(dtype)).max(1)
        ctx.save_for_backward(windows, weight, at)
        return largest.masked_fill_(padding[:, 0], float("-inf"))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        windows, weight, at = ctx.saved_tensors
        grad = grads[0].new_zeros(*windows.shape[:2], len(weight)).scatter_(1, at[:, None], grads[0][:, None]).flatten(0, 1)
        grad_windows = product(grad, weight).view(windows.shape)
        return grad_windows, product(grad.T, windows.flatten(0, 1)), grads[0].sum(0, dtype=torch.float32), None


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

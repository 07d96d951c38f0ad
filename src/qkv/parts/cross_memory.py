"""The memory of an encoder-decoder in decoding: keys and values of the sources, for every layer's cross-attention.

A source's hypotheses share its memory. Sources leave when they are done, and others join.
N sources, W hypotheses of each, S source length, D width, H heads, K head width.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.base import graphs
from qkv.parts import kernels
from qkv.parts.cache import KVCache, LayerCache
from qkv.parts.dot_product import additive, attend, is_recording, join_heads
from qkv.parts.masks import AttentionMask, DenseMask, KeysValues


class CrossMemory(ABC):
    """Keys and values of sources, layer by layer, and the mask with which cross-attention reads them."""

    layers: Sequence[KeysValues]
    mask: AttentionMask

    @abstractmethod
    def __len__(self) -> int:
        """The number of sources."""

    @abstractmethod
    def select(self, sources: Tensor) -> None:
        """Keep only these sources (N,), in this order."""

    @abstractmethod
    def join(self, other: "CrossMemory") -> None:
        """Add the sources of another memory of the same kind, after the own ones."""

    def has_room(self, other: "CrossMemory") -> bool:
        """Return whether the sources of another memory can take the place of some, in the same memory."""
        return False

    def put(self, sources: Tensor, other: "CrossMemory") -> None:
        """Let them take the place of these sources."""
        raise NotImplementedError


def cross_memory(projected: Sequence[Tensor], keep: Tensor, heads: int, recorded: bool) -> CrossMemory:
    """Return the memory of sources from each layer's keys and values, (N, S, 2 D); keep (N, S) is False in padding.

    `recorded` is whether attention to it will be recorded.
    """
    recorded = recorded or is_recording() or graphs.usable(keep)  # a step that becomes a graph reads the same memory every time
    in_logs = not recorded and kernels.usable_on_cpu(projected[0])
    return LoggedMemory(projected, keep) if in_logs else DenseMemory(projected, keep, heads)


class DenseMemory(CrossMemory):
    """Padded tensors, for torch's attention."""

    layers: list[tuple[Tensor, Tensor]]  # keys and values, (N, H, S, K)

    def __init__(self, projected: Sequence[Tensor], keep: Tensor, heads: int):
        self.hidden = additive(keep[:, None, None, :], projected[0].dtype)  # (N, 1, 1, S), added to scores
        self.layers = [DenseMask(None).split_memory(kv, heads) for kv in projected]  # type: ignore[misc]

    def __len__(self) -> int:
        return len(self.hidden)

    @property
    def mask(self) -> DenseMask:  # type: ignore[override]
        return DenseMask(self.hidden)

    def select(self, sources: Tensor) -> None:
        self.layers = [(k.index_select(0, sources), v.index_select(0, sources)) for k, v in self.layers]
        self.hidden = self.hidden.index_select(0, sources)

    def join(self, other: CrossMemory) -> None:
        assert isinstance(other, DenseMemory)
        width = max(self.hidden.size(-1), other.hidden.size(-1))
        self.layers = [
            (torch.cat([_widened(k, width), _widened(more_k, width)]), torch.cat([_widened(v, width), _widened(more_v, width)]))
            for (k, v), (more_k, more_v) in zip(self.layers, other.layers, strict=True)
        ]
        self.hidden = torch.cat([_hidden_to(width, memory.hidden) for memory in (self, other)])

    def has_room(self, other: CrossMemory) -> bool:
        return isinstance(other, DenseMemory) and other.hidden.size(-1) <= self.hidden.size(-1)

    def put(self, sources: Tensor, other: CrossMemory) -> None:
        assert isinstance(other, DenseMemory)
        width = self.hidden.size(-1)
        for own, new in zip(self.layers, other.layers, strict=True):
            for mine, theirs in zip(own, new, strict=True):
                mine[sources] = _widened(theirs, width)
        self.hidden[sources] = _hidden_to(width, other.hidden)


def _widened(each: Tensor, width: int) -> Tensor:
    """Pad keys or values (N, H, S, K) to a source length."""
    return F.pad(each, (0, 0, 0, width - each.size(2)))


def _hidden_to(width: int, hidden: Tensor) -> Tensor:
    """Hide positions beyond a mask (N, 1, 1, S) up to a source length."""
    return F.pad(hidden, (0, width - hidden.size(-1)), value=torch.finfo(hidden.dtype).min)


class LoggedMemory(CrossMemory):
    """Logs without padding, one per layer, and one index, as in the KV cache: sources come and go without copies.

    All sources end side by side, and shorter ones begin later.
    """

    layers: list[LayerCache]  # type: ignore[assignment]

    def __init__(self, projected: Sequence[Tensor], keep: Tensor):
        sources, length = keep.shape
        counts = keep.sum(1)
        self.cache, self.first = KVCache(length), length - counts  # first (N,): the column at which each source begins
        self.cache.prefill(sources, length)
        self.cache.used = int(counts.sum())
        column = torch.arange(length) - self.first[:, None]
        self.cache.index = (counts.cumsum(0) - counts)[:, None] + column.clamp(min=0)
        self.layers = [LayerCache(self.cache) for _ in projected]
        for layer, kv in zip(self.layers, projected, strict=True):
            layer.log = kv[keep]
        self._changed()

    def __len__(self) -> int:
        return len(self.first)

    def select(self, sources: Tensor) -> None:
        self.cache.select(sources)
        self.first = self.first.index_select(0, sources)
        if self.cache.wasteful:
            rows = self.cache.compact()
            for layer in self.layers:
                layer.keep(rows)
        self._changed()

    def join(self, other: CrossMemory) -> None:
        assert isinstance(other, LoggedMemory)
        counts = len(self), len(other)
        for own, new in zip(self.layers, other.layers, strict=True):
            own.join(new)
        before = self.cache.join(other.cache, counts, self.first.device)
        self.first = torch.cat([memory.first + more for memory, more in zip((self, other), before, strict=True)])
        self._changed()

    def _changed(self) -> None:
        unused = int(self.first.min()) if len(self) else 0
        self.cache.trim(unused)
        self.first = self.first - unused
        self.mask = LoggedMask(self.cache, self.first)


class LoggedMask(AttentionMask):
    """Cross-attention to logs: by our kernel, or by torch's where there is little to read."""

    def __init__(self, cache: KVCache, first: Tensor):
        self.cache, self.first = cache, first
        self._dense: dict[LayerCache, KeysValues] = {}  # keys and values of layers that torch reads, (N, H, S, K)

    def dense(self) -> Tensor:
        return (torch.arange(self.cache.length) >= self.first[:, None])[:, None, None]

    def attend_cross(self, q: Tensor, memory: KeysValues, heads: int) -> Tensor:
        """q (N, W, D), memory a `LayerCache` -> (N, W, D)."""
        assert isinstance(memory, LayerCache) and memory.log is not None
        index = self.cache.row_index(q.device)
        if q.size(1) * index.numel() >= kernels.MANY_POSITIONS:
            return kernels.load_cpu_kernel()(q.flatten(0, 1), memory.log, index, self.first, heads).view_as(q)
        if memory not in self._dense:
            self._dense[memory] = memory.keys_values(heads)
        k, v = self._dense[memory]
        return join_heads(attend(q.unflatten(-1, (heads, -1)).transpose(1, 2), k, v, self.dense()))

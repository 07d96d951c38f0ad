"""Decoding token by token: the states that attention models carry from step to step; on a GPU, their steps become CUDA graphs.

N sources, W hypotheses of each side by side, R = N x W in all, S source length, D width, H heads, K head width, V vocabulary.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from qkv.base import graphs
from qkv.base.rows import Rows
from qkv.parts import kernels
from qkv.parts.cache import KVCache, LayerCache, StaticKVCache
from qkv.parts.context import PrefillContext
from qkv.parts.cross_memory import CrossMemory
from qkv.parts.dot_product import is_recording
from qkv.parts.products import product

SPAN = 32  # positions that the first static cache has room for; each further one has twice as many
MIN_STEPS_LEFT = 8  # a graph pays for its recording if at least this many steps may follow


def token_logits(output: Any, hidden: Tensor) -> Tensor:
    """Return the logits of a linear output layer in float32. (R, D) -> (R, V)."""
    if hidden.is_cuda and hidden.dtype == torch.bfloat16:  # rounded to bf16, many logits would be equal
        logits = product(hidden, output.weight.T)
        return logits if output.bias is None else logits + output.bias
    return output(hidden).float()


@dataclass(kw_only=True)
class AttentionState:
    """The state of a model that decodes with a KV cache."""

    run: Callable[[Tensor, Any], Tensor]  # the model's decode step: tokens (R,), this state -> logits (R, V)
    cache: KVCache
    layer_caches: list[LayerCache]
    rows: int  # R
    positions: Tensor  # (max_length, D) position vectors, or a scalar of their dtype and device if there are none
    want_attention: bool = False
    fused: bool = True  # whether our own kernel can attend to the cache
    shift: Tensor | None = None  # positions without a token before each text, (R,) or (N,); None if all are equally long
    attention: Tensor | None = None  # (R, S): the last step's attention to a source, if there is one and it is wanted
    recorder: graphs.GraphRecorder[graphs.GraphedFunction] = field(
        # Steps on growing memory have loaded the kernels: one step on static memory is enough.
        default_factory=lambda: graphs.GraphRecorder("a decoding step", warm_up=1)
    )

    def step(self, tokens: Tensor) -> Tensor:
        """Return the logits of the next tokens (R, V); on a GPU by a graph, once steps repeat."""
        graphed = graphs.usable(tokens) and not self.want_attention and not is_recording()
        graph = self._graph(tokens) if graphed else None
        self._compact()
        logits = self.run(tokens, self) if graph is None else graph(tokens)
        self.cache.count_step()
        return logits

    def _graph(self, tokens: Tensor) -> graphs.GraphedFunction | None:
        """Return the step's graph: memory becomes static at the second step of a shape, and the third one is recorded."""
        cache, worthwhile = self.cache, self.cache.max_length - self.cache.length >= MIN_STEPS_LEFT
        if isinstance(cache, StaticKVCache):
            if cache.length == cache.span and not self._trim(cache.span // 4):
                self._make_static(2 * cache.span)
            elif cache.used + cache.hypotheses > self._capacity:
                self._make_static(cache.span)
        elif cache.length and cache.hypotheses == len(tokens) and worthwhile:
            # Our own kernel reads only positions that are filled; torch's reads all, so it gets as few as possible.
            fused = self.fused and kernels.usable(self.positions)
            self._make_static(cache.max_length if fused else max(SPAN, 2 ** cache.length.bit_length()))
        if not isinstance(self.cache, StaticKVCache):
            return None
        return self.recorder.recording(
            self.cache, lambda: graphs.GraphedFunction(lambda newest: self.run(newest, self), tokens.clone()), worthwhile
        )

    def _make_static(self, span: int) -> None:
        """Move to a static cache with room for `span` positions."""
        if isinstance(self.cache, StaticKVCache):
            self.cache = self.cache.growing()
        self._compact()
        self.cache = StaticKVCache(self.cache, span, self.positions)
        self.recorder.forget()
        for layer in self.layer_caches:
            layer.shared = self.cache
            layer.reserve(self.cache.rows_needed)

    def _compact(self) -> None:
        """Drop what hypotheses have left in the logs that are gone, if it is most of them."""
        if self.cache.wasteful:
            rows = self.cache.compact()
            for layer in self.layer_caches:
                layer.keep(rows)

    def _trim(self, least: int) -> bool:
        """Forget the first positions if no text has a token there; return whether these are at least so many."""
        first = 0 if self.shift is None else int(self.shift.min())
        if first < max(1, least):
            return False
        assert self.shift is not None
        self.cache.trim(first)
        self.shift -= first
        return True

    @property
    def _capacity(self) -> int:
        """Rows that the logs have room for."""
        log = self.layer_caches[0].log
        return 0 if log is None else log.size(0)

    def select(self, rows: Tensor) -> None:
        """Make row i the old row rows[i]; the number of rows may change."""
        self._move(rows, same=self.cache.length > 0 and len(rows) == self.cache.hypotheses)

    def _move(self, rows: Tensor, same: bool) -> None:
        """Select rows (R,) of the cache; a static one moves to other memory unless all shapes stay the same."""
        self.rows = len(rows)
        self.cache.select(rows)
        if not same and isinstance(self.cache, StaticKVCache):
            self._make_static(self.cache.span)

    def retire(self, texts: Tensor) -> None:
        """Note that some texts are done, though their rows stay: others may take their place."""
        if self.shift is not None:
            self.shift[texts] = self.cache.length

    def _put(self, texts: Tensor, rows: Tensor, other: "AttentionState") -> bool:
        """Let another state's rows take the place of some in static memory; return whether there is room for them."""
        cache, new = self.cache, other.cache
        if not isinstance(cache, StaticKVCache) or self.shift is None or new.length > cache.length:
            return False
        if len(other.positions) > len(self.positions) or cache.used + new.used + cache.hypotheses > self._capacity:
            return False
        for own, layer in zip(self.layer_caches, other.layer_caches, strict=True):
            own.join(layer)
        cache.put(rows, new)
        self.shift[texts] = cache.length - new.length + (0 if other.shift is None else other.shift)
        return True

    def _join(self, other: "AttentionState", texts: tuple[int, int]) -> None:
        """Add another state's rows to the caches; so many texts of each state begin at different positions from now on."""
        device = self.positions.device
        if isinstance(self.cache, StaticKVCache):
            self.cache = self.cache.growing()
            self.recorder.forget()
        for own, new in zip(self.layer_caches, other.layer_caches, strict=True):
            own.shared = self.cache
            own.join(new)
        before = self.cache.join(other.cache, (self.rows, other.rows), device)
        shifts = [
            (torch.zeros(count, dtype=torch.long, device=device) if state.shift is None else state.shift) + more
            for state, count, more in zip((self, other), texts, before, strict=True)
        ]
        self.shift, self.rows = torch.cat(shifts), self.rows + other.rows
        self._trim(1)
        if len(other.positions) > len(self.positions):
            self.positions = other.positions


@dataclass(kw_only=True)
class PromptState(AttentionState):
    """The state of a model that continues prompts: they end side by side and begin at different positions."""

    def prefill(self, layers: Iterable[nn.Module], x: Tensor, context: PrefillContext) -> Tensor:
        """Run the layers over the next tokens of prompts, (R, T, D) -> (R, T, D), and store their keys and values."""
        self.cache.prefill(x.size(0), x.size(1))
        for layer, cache in zip(layers, self.layer_caches, strict=True):
            x = layer(x, context, cache)
        return x

    def select(self, rows: Tensor) -> None:
        """Make row i the old row rows[i]; the number of rows may change."""
        if self.shift is not None:
            chosen = self.shift.index_select(0, rows)
            # A graph reads it at its address.
            self.shift = self.shift.copy_(chosen) if chosen.shape == self.shift.shape else chosen
        super().select(rows)

    def join(self, other: "PromptState") -> None:
        """Add the rows of another state of the same model, after the own ones."""
        self._join(other, (self.rows, other.rows))

    def replace(self, texts: Tensor, other: "PromptState") -> bool:
        """Let another state's texts take the place of some, in the same memory; return whether that was possible."""
        return self._put(texts, texts, other)


@dataclass(kw_only=True)
class UnreadPromptState(PromptState):
    """A state whose first steps read the prompts, in pieces: the last of them reads the newest tokens too."""

    read: Callable[[Tensor, Any], Tensor]  # the model's pass over the next tokens (R, T), this state -> logits after them (R, V)
    piece: int | None  # tokens of all prompts together that are read at once; None reads whole prompts
    on_read: Callable[[int, Tensor], None] | None = None  # receives the first position and the states (R, T, D) of a piece
    unread: Tensor | None  # (R, T) tokens of the prompts, padded at the beginning; None once a step has been taken
    between_layers: Callable[[], object] | None = None  # called after each layer of a step

    @property
    def reading(self) -> bool:
        """Whether no step has been taken yet."""
        return self.unread is not None

    def read_piece(self) -> bool:
        """Read a piece of the prompts, unless the next step reads all that is left; return whether it does."""
        size = None if self.piece is None else max(1, self.piece // self.rows)
        if self.unread is None or size is None or self.unread.size(1) < size:
            return True
        piece, self.unread = self.unread[:, :size], self.unread[:, size:]
        self.read(piece, self)
        return False

    def step(self, tokens: Tensor) -> Tensor:
        """Return the logits of the next tokens (R, V); the first step reads what is left of the prompts."""
        if self.unread is None:
            return super().step(tokens)
        logits = self.read(torch.cat([self.unread, tokens[:, None]], 1), self)
        self.unread = None
        return logits

    def _read_rest(self) -> None:
        """Read the prompts to the end: rows may then move, or stand beside others, before the first step."""
        if self.unread is not None and self.unread.size(1):
            self.read(self.unread, self)
        self.unread = None

    def select(self, rows: Tensor) -> None:
        """Make row i the old row rows[i]; the number of rows may change."""
        self._read_rest()
        super().select(rows)

    def join(self, other: "UnreadPromptState") -> None:  # type: ignore[override]
        """Add the rows of another state of the same model, after the own ones."""
        for state in (self, other):
            state._read_rest()
        super().join(other)

    def replace(self, texts: Tensor, other: "UnreadPromptState") -> bool:  # type: ignore[override]
        """Let another state's texts take the place of some, in the same memory; return whether that was possible."""
        for state in (self, other):
            state._read_rest()
        return super().replace(texts, other)


def left_padded(ids: Tensor, shift: Tensor) -> Rows:
    """Move the padding of texts (R, T) from their ends to their beginnings; shift (R,) is the padding of each."""
    position = torch.arange(ids.size(1), device=ids.device) - shift[:, None]
    real = position >= 0
    position = position.clamp(min=0)
    return Rows(ids.gather(1, position), real.long(), position)


def left_padded_step(cache: KVCache, shift: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mask of the newest tokens (R, 1, 1, L), their positions (R, 1), and those of all tokens (R, L)."""
    newest, numbers = cache.positions(shift.device)  # (1, 1), (1, L)
    keys = numbers - shift[:, None]
    return ((keys >= 0) & (numbers <= newest))[:, None, None], newest - shift[:, None], keys


@dataclass(kw_only=True)
class DecoderState(AttentionState):
    """The state of an encoder-decoder; `attention` is the last layer's cross-attention, averaged over heads."""

    memory: CrossMemory

    @property
    def sources(self) -> int:
        return len(self.memory)

    def select(self, rows: Tensor) -> None:
        """Make row i the old row rows[i]; the number of rows may change. From now on each row has its own source."""
        self.regroup(rows[:, None], rows // (self.rows // self.sources))

    def regroup(self, rows: Tensor, sources: Tensor | None) -> None:
        """Select rows (N, W), the hypotheses of a source side by side; keep only these sources (N,), or all if None."""
        same = sources is None and self.cache.length > 0 and rows.numel() == self.cache.hypotheses
        self._move(rows.flatten(), same)
        if self.attention is not None:
            self.attention = self.attention.index_select(0, rows.flatten())
        if sources is not None:
            self.memory.select(sources)
            self.shift = None if self.shift is None else self.shift.index_select(0, sources)

    def replace(self, texts: Tensor, other: "DecoderState") -> bool:
        """Let another state's texts take the place of some, in the same memory; return whether that was possible."""
        width = self.rows // self.sources
        if other.rows != width * other.sources or not self.memory.has_room(other.memory):
            return False
        rows = (texts[:, None] * width + torch.arange(width, device=texts.device)).flatten()
        if not self._put(texts, rows, other):
            return False
        self.memory.put(texts, other.memory)
        return True

    def join(self, other: "DecoderState") -> None:
        """Add the rows of another state of the same model, after the own ones: equally many of each source."""
        self._join(other, (self.sources, other.sources))
        self.memory.join(other.memory)

"""Decoding step by step: what a decoder carries from word to word; on a GPU, its steps become a CUDA graph.

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
from qkv.parts.cache import Cache, FixedPast, Past
from qkv.parts.context import PrefillContext
from qkv.parts.products import product

SPAN = 32  # places that the first graph can hold; each further one holds twice as many
PAYS = 8  # steps to come from which a graph may pay for its making


def word_scores(output: Any, hidden: Tensor) -> Tensor:
    """Scores of every word by a linear output, in float32. (R, D) -> (R, V)."""
    if hidden.is_cuda and hidden.dtype == torch.bfloat16:  # rounded to bf16, many words would seem equal
        scores = product(hidden, output.weight.T)
        return scores if output.bias is None else scores + output.bias
    return output(hidden).float()


@dataclass(kw_only=True)
class Steps:
    """What decoding carries from step to step in any model that looks at its past."""

    run: Callable[[Tensor, Any], Tensor]  # the model's step: words (R,), these steps -> scores (R, V)
    past: Past
    caches: list[Cache]  # one per layer
    positions: Tensor  # (longest, D), or one number for all dimensions: the positions
    want_attention: bool = False
    fused: bool = True  # whether our own kernel can look at the past
    attention: Tensor | None = None  # (R, S): the last step's attention to a source, where there is one and it is wanted
    recorder: graphs.GraphRecorder[graphs.GraphedFunction] = field(
        # Steps on growing memory have loaded the kernels: one step on static memory is enough.
        default_factory=lambda: graphs.GraphRecorder("a decoding step", warm_up=1)
    )

    def step(self, words: Tensor) -> Tensor:
        """Scores of the next words (R, V); on a GPU by a graph, once steps have come to look the same."""
        graph = self._graph(words) if graphs.usable(words) and not self.want_attention else None
        scores = self.run(words, self) if graph is None else graph(words)
        self.past.count()
        return scores

    def _graph(self, words: Tensor) -> graphs.GraphedFunction | None:
        """Go over to fixed memory at the second step of a shape, and to a graph at the third, if enough are to come."""
        past, pays = self.past, self.past.longest - self.past.length >= PAYS
        if isinstance(past, FixedPast):
            if past.length == past.span:
                self._fix(2 * past.span)
        elif past.length and past.hypotheses == len(words) and pays:
            # Our own kernel reads no more places than there are; torch's reads them all, so that it gets as few as will do.
            self._fix(past.longest if self.fused and kernels.usable(self.positions) else max(SPAN, 2 ** past.length.bit_length()))
        if not isinstance(self.past, FixedPast):
            return None
        return self.recorder.recording(
            self.past, lambda: graphs.GraphedFunction(lambda newest: self.run(newest, self), words.clone()), worthwhile=pays
        )

    def _fix(self, span: int) -> None:
        past = self.past = FixedPast(self.past, span, self.positions)
        self.recorder.forget()
        for cache in self.caches:
            cache.past = past
            cache.reserve(past.rows_needed)

    def select(self, rows: Tensor) -> None:
        """Row i becomes the old row rows[i]; the number of rows may change."""
        same = self.past.length > 0 and len(rows) == self.past.hypotheses
        self._move(rows, same)

    def _move(self, rows: Tensor, same: bool) -> None:
        """Let rows (R,) of the past go on; on fixed memory, go over to other memory unless all is as large as it was."""
        self.past.select(rows)
        if not same and isinstance(self.past, FixedPast):
            self._fix(self.past.span)


@dataclass(kw_only=True)
class PromptState(Steps):
    """What goes on from prompts that were read together: they end side by side, and where they begin differs."""

    shift: Tensor | None  # (R,) places without a token before each prompt; None where all are equally long

    def read(self, layers: Iterable[nn.Module], x: Tensor, context: PrefillContext) -> None:
        """Have the caches keep what layers make of prompts. x (R, T, D)."""
        self.past.begin(x.size(0), x.size(1))
        for layer, cache in zip(layers, self.caches, strict=True):
            x = layer(x, context, cache)

    def select(self, rows: Tensor) -> None:
        """Row i becomes the old row rows[i]; the number of rows may change."""
        if self.shift is not None:
            chosen = self.shift.index_select(0, rows)
            # A graph reads it where it lies.
            self.shift = self.shift.copy_(chosen) if chosen.shape == self.shift.shape else chosen
        super().select(rows)


def ending_together(ids: Tensor, shift: Tensor) -> Rows:
    """Texts padded at their ends, (R, T), as rows that have the padding in front, so many places (R,) each."""
    position = torch.arange(ids.size(1), device=ids.device) - shift[:, None]
    real = position >= 0
    position = position.clamp(min=0)
    return Rows(ids.gather(1, position), real.long(), position)


def among_different(past: Past, shift: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where the newest places may look, (R, 1, 1, L), their numbers, (R, 1), and those of their past, (R, L)."""
    newest, numbers = past.positions(shift.device)  # (1, 1), (1, L)
    keys = numbers - shift[:, None]
    return ((keys >= 0) & (numbers <= newest))[:, None, None], newest - shift[:, None], keys


@dataclass(kw_only=True)
class DecoderState(Steps):
    """What decoding from sources carries from step to step; `attention` is cross-attention, last layer, mean over heads."""

    memories: list[tuple[Tensor, Tensor]]  # keys and values of the sources, one per layer, each (N, H, S, K)
    may_source: Tensor  # (N, 1, 1, S), added to scores

    @property
    def sources(self) -> int:
        return self.may_source.size(0)

    def select(self, rows: Tensor) -> None:
        """Row i becomes the old row rows[i]; the number of rows may change. Each row has its source to itself from now on."""
        width = self.past.hypotheses // self.sources if self.past.length else 1
        self.regroup(rows[:, None], rows // width)

    def regroup(self, rows: Tensor, sources: Tensor | None) -> None:
        """As select of rows (N, W), those of a source side by side, where only these sources go on, or None for all."""
        same = sources is None and self.past.length > 0 and rows.numel() == self.past.hypotheses
        self._move(rows.flatten(), same)
        if self.attention is not None:
            self.attention = self.attention.index_select(0, rows.flatten())
        if sources is not None:
            self.memories = [(k.index_select(0, sources), v.index_select(0, sources)) for k, v in self.memories]
            self.may_source = self.may_source.index_select(0, sources)

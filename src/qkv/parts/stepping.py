"""Decoding step by step: what a decoder carries from word to word; on a GPU, its steps become a CUDA graph.

N sources, W hypotheses of each side by side, R = N x W in all, S source length, D width, H heads, K head width, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from qkv.base import graphs
from qkv.parts import kernels
from qkv.parts.cache import Cache, FixedPast, Past

SPAN = 32  # places that the first graph can hold; each further one holds twice as many
PAYS = 8  # steps to come from which a graph may pay for its making


@dataclass
class DecoderState:
    """What decoding carries from step to step."""

    run: Callable[[Tensor, "DecoderState"], Tensor]  # the model's step: words (R,) -> scores (R, V)
    past: Past
    caches: list[Cache]  # one per layer
    memories: list[tuple[Tensor, Tensor]]  # keys and values of the sources, one per layer, each (N, H, S, K)
    may_source: Tensor  # (N, 1, 1, S), added to scores
    places: Tensor  # (longest, D), or one number for all dimensions: the positions
    want_attention: bool
    fused: bool = True  # whether our own kernel can look at the past
    attention: Tensor | None = None  # (R, S): the last step's cross-attention, last layer, mean over heads
    graph: graphs.Graph | None = None
    warm: bool = False  # whether a step has been taken on the present fixed memory, as a graph needs before it is recorded

    @property
    def sources(self) -> int:
        return self.may_source.size(0)

    def step(self, words: Tensor) -> Tensor:
        """Scores of the next words (R, V); on a GPU by a graph, once steps have come to look the same."""
        if graphs.pay(words) and not self.want_attention:
            self._look_for_repetition(words)
        scores = self.run(words, self) if self.graph is None else self.graph(words)
        self.past.count()
        return scores

    def _look_for_repetition(self, words: Tensor) -> None:
        """Go over to fixed memory at the second step of a shape, and to a graph at the third, if enough are to come."""
        past, pays = self.past, self.past.longest - self.past.length >= PAYS
        if isinstance(past, FixedPast):
            if past.length == past.span:
                self._fix(2 * past.span)
            elif self.graph is None and self.warm and pays:
                self.graph = graphs.Graph(lambda newest: self.run(newest, self), words.clone())
            self.warm = True
        elif past.length and past.hypotheses == len(words) and pays:
            # Our own kernel reads no more places than there are; torch's reads them all, so that it gets as few as will do.
            self._fix(past.longest if self.fused and kernels.usable(self.places) else max(SPAN, 2 ** past.length.bit_length()))
            self.warm = True

    def _fix(self, span: int) -> None:
        past = self.past = FixedPast(self.past, span, self.places)
        for cache in self.caches:
            cache.past = past
            cache.reserve(past.rows_needed)
        self.graph, self.warm = None, False

    def select(self, rows: Tensor) -> None:
        """Row i becomes the old row rows[i]; the number of rows may change. Each row has its source to itself from now on."""
        width = self.past.hypotheses // self.sources if self.past.length else 1
        self.regroup(rows[:, None], rows // width)

    def regroup(self, rows: Tensor, sources: Tensor | None) -> None:
        """As select of rows (N, W), those of a source side by side, where only these sources go on, or None for all."""
        same = sources is None and self.past.length > 0 and rows.numel() == self.past.hypotheses
        self.past.select(rows.flatten())
        if not same and isinstance(self.past, FixedPast):
            self._fix(self.past.span)
        if self.attention is not None:
            self.attention = self.attention.index_select(0, rows.flatten())
        if sources is not None:
            self.memories = [(k.index_select(0, sources), v.index_select(0, sources)) for k, v in self.memories]
            self.may_source = self.may_source.index_select(0, sources)

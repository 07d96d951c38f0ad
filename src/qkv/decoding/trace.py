"""The record of a search for one output: which tokens were considered in each step, and which were taken.

A search writes it where `DecodingBatch.trace` is set, and does nothing for it otherwise. The figures are those by which the
search itself decides. W live hypotheses, C continuations, V vocabulary.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from qkv.decoding.hypothesis import DEAD, Continuations

Likely = list[tuple[int, float]]  # tokens and their probabilities, best first


class Candidate(NamedTuple):
    """A continuation of a hypothesis that a search considered."""

    parent: int  # which of the step's hypotheses it continues
    token: int
    logprob: float  # of all its tokens
    score: float  # with the penalties of its length
    kept: bool  # whether it is a hypothesis of the next step, or has ended


class Draw(NamedTuple):
    """The distribution that a token was drawn from, after temperature, top-k and top-p."""

    top: Likely
    choices: int  # how many tokens could be drawn
    probability: float  # of the token that was drawn


class SearchStep(NamedTuple):
    """One step of a search."""

    top: list[Likely]  # for each hypothesis: the most probable next tokens by the model itself
    candidates: list[Candidate]  # the best continuations, best first
    hypotheses: list[int]  # for each hypothesis of the next step: its number among the candidates
    draw: Draw | None = None  # where the token is drawn


@dataclass
class SearchTrace:
    """The steps of the search for one output."""

    top: int  # most probable tokens that are recorded for each hypothesis
    steps: list[SearchStep] = field(default_factory=list)

    def add_beam(
        self, logits: Tensor, found: Continuations, score: Tensor, next_live: Continuations, beam: int, eos: int
    ) -> None:
        """Add a step of beam search: its continuations (1, C) with their scores, and those that are the next hypotheses."""
        columns = [each[0].tolist() for each in (found.parent, found.token, found.logprob, score)]
        listed = [row for row in zip(*columns, strict=True) if row[2] > DEAD]
        numbers = {(parent, token): number for number, (parent, token, *_) in enumerate(listed)}
        live = [each[0, :beam].tolist() for each in (next_live.parent, next_live.token, next_live.logprob)]
        hypotheses = [numbers[parent, token] for parent, token, logprob in zip(*live, strict=True) if logprob > DEAD]
        ended = {number for number, row in enumerate(listed[:beam]) if row[1] == eos}
        candidates = [
            Candidate(parent, token, logprob, value, n in ended or n in hypotheses)
            for n, (parent, token, logprob, value) in enumerate(listed)
        ]
        self.steps.append(SearchStep(self._likely(logits), candidates, hypotheses))

    def add_token(
        self, logits: Tensor, chosen: Tensor, logprob: float, score: float, drawn_from: tuple[Tensor, Tensor] | None
    ) -> None:
        """Add a step that takes one token: logits (1, V), the token (1,), and the probabilities and tokens it was drawn from."""
        draw = None
        if drawn_from is not None:
            weight, tokens = drawn_from
            probability = weight[0] / weight[0].sum()
            order = probability.topk(min(self.top, len(probability))).indices
            top = [(int(tokens[0, n]), float(probability[n])) for n in order if probability[n] > 0]
            draw = Draw(top, int((weight[0] > 0).sum()), float(probability[tokens[0] == chosen[0]].sum()))
        candidate = Candidate(0, int(chosen[0]), logprob, score, True)
        self.steps.append(SearchStep(self._likely(logits), [candidate], [0], draw))

    def _likely(self, logits: Tensor) -> list[Likely]:
        best = logits.float().softmax(-1).topk(min(self.top, logits.size(1)))
        rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [list(zip(*row, strict=True)) for row in rows]

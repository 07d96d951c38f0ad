"""Hypotheses: the result of decoding, and the tensors in which a search keeps the best of them.

N inputs, W live hypotheses of each, C continuations, K hypotheses kept for each input, M new ones, T tokens, L longest output.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.base.transfer import on_device

NONE = -1  # fills tensors of tokens where there is no token
DEAD = float("-inf")  # the log-probability of a slot without a hypothesis


@dataclass(frozen=True)
class Hypothesis:
    """A text that the model proposes for an input."""

    ids: list[int]  # without bos and eos
    score: float  # ranks hypotheses: the log-probability with its penalties
    logprob: float  # log-probability of the tokens, and of the end if it was reached
    finished: bool  # False if the length limit came first, or constraints allowed no further token


@dataclass
class Continuations:
    """Continuations of hypotheses by one token, best first."""

    parent: Tensor  # (N, C) which of the W hypotheses each continues
    token: Tensor  # (N, C)
    logprob: Tensor  # (N, C)


@dataclass
class BestHypotheses:
    """The best hypotheses of each input so far, best first; an empty slot scores DEAD."""

    tokens: Tensor  # (N, K, L), which NONE fills on both sides
    logprob: Tensor  # (N, K)
    score: Tensor  # (N, K)
    finished: Tensor  # (N, K)

    @classmethod
    def empty(cls, inputs: int, slots: int, max_length: int, device: torch.device) -> "BestHypotheses":
        """Return empty slots for each input."""
        dead = torch.full((inputs, slots), DEAD, device=device)
        tokens = torch.full((inputs, slots, max_length), NONE, device=device)
        return cls(tokens, dead, dead.clone(), torch.zeros_like(dead, dtype=torch.bool))

    def add(self, tokens: Tensor, logprob: Tensor, score: Tensor) -> None:
        """Merge M finished hypotheses (N, M, T) of each input; ties go to the one found first."""
        merged = self._with(tokens, logprob, score, finished=True)
        best = merged._ordered(merged.score.sort(dim=-1, descending=True, stable=True).indices, self.score.size(1))
        self.tokens, self.logprob, self.score, self.finished = best.tokens, best.logprob, best.score, best.finished

    def fill(self, inputs: Tensor, tokens: Tensor, logprob: Tensor, score: Tensor) -> None:
        """Put M unfinished hypotheses (I, M, T) of some inputs (I,) into the slots that no finished one holds."""
        here = BestHypotheses(self.tokens[inputs], self.logprob[inputs], self.score[inputs], self.finished[inputs])
        merged = here._with(tokens, logprob, score, finished=False)
        by_score = merged.score.sort(dim=-1, descending=True, stable=True).indices
        unfinished = (~merged.finished & (merged.score > DEAD)).gather(1, by_score)
        vacant = (merged.score == DEAD).gather(1, by_score)
        group = unfinished.long() + 2 * vacant.long()
        best = merged._ordered(by_score.gather(1, group.sort(dim=-1, stable=True).indices), self.score.size(1))
        self.tokens = filled(self.tokens, best.tokens.size(-1))
        self.tokens[inputs], self.logprob[inputs] = best.tokens, best.logprob
        self.score[inputs], self.finished[inputs] = best.score, best.finished

    def pick(self, rows: np.ndarray) -> "BestHypotheses":
        """Return those of some of the inputs."""
        chosen = on_device(rows, self.score.device)
        return BestHypotheses(self.tokens[chosen], self.logprob[chosen], self.score[chosen], self.finished[chosen])

    def join(self, other: "BestHypotheses") -> "BestHypotheses":
        """Return those of the inputs of both."""
        width = max(self.tokens.size(-1), other.tokens.size(-1))
        return BestHypotheses(
            torch.cat([filled(self.tokens, width), filled(other.tokens, width)]),
            torch.cat([self.logprob, other.logprob]),
            torch.cat([self.score, other.score]),
            torch.cat([self.finished, other.finished]),
        )

    def _with(self, tokens: Tensor, logprob: Tensor, score: Tensor, finished: bool) -> "BestHypotheses":
        """Return these hypotheses followed by the new ones. -> (N, K + M)."""
        width = max(self.tokens.size(-1), tokens.size(-1))
        return BestHypotheses(
            torch.cat([filled(self.tokens, width), filled(tokens, width)], 1),
            torch.cat([self.logprob, logprob], 1),
            torch.cat([self.score, score], 1),
            torch.cat([self.finished, torch.full_like(logprob, finished, dtype=torch.bool)], 1),
        )

    def _ordered(self, order: Tensor, slots: int) -> "BestHypotheses":
        """Return the first hypotheses in this order, (N, K + M)."""
        order = order[:, :slots]
        return BestHypotheses(
            self.tokens.gather(1, order[..., None].expand(-1, -1, self.tokens.size(-1))),
            self.logprob.gather(1, order),
            self.score.gather(1, order),
            self.finished.gather(1, order),
        )

    def hypotheses(self, rows: np.ndarray) -> list[list[Hypothesis]]:
        """Return the hypotheses of some inputs as plain values: finished before unfinished, then by score."""
        results, here = [], self.pick(rows)
        columns = (here.tokens.tolist(), here.score.tolist(), here.logprob.tolist(), here.finished.tolist())
        for row in zip(*columns, strict=True):
            found = [
                Hypothesis([token for token in tokens if token != NONE], score, logprob, finished)
                for tokens, score, logprob, finished in zip(*row, strict=True)
                if score > DEAD
            ]
            results.append(best_first(found))
        return results


def best_first(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Return finished hypotheses before unfinished ones, each by score."""
    return sorted(hypotheses, key=lambda one: (not one.finished, -one.score))


def filled(tokens: Tensor, width: int) -> Tensor:
    """Fill tokens (..., T) with NONE to this width."""
    return F.pad(tokens, (0, width - tokens.size(-1)), value=NONE)

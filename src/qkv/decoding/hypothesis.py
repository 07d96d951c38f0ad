"""Hypotheses: the result of decoding, and the tensors in which a search keeps the best of them.

B inputs, N inputs still searched, W live hypotheses of each, C continuations, K hypotheses kept for each input, M new ones,
T tokens, L longest output.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

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
    """The best hypotheses of each of B inputs so far, best first; an empty slot scores DEAD."""

    tokens: Tensor  # (B, K, L)
    logprob: Tensor  # (B, K)
    score: Tensor  # (B, K)
    finished: Tensor  # (B, K)

    @classmethod
    def empty(cls, inputs: int, slots: int, max_length: int, device: torch.device) -> "BestHypotheses":
        """Return empty slots for each input."""
        dead = torch.full((inputs, slots), DEAD, device=device)
        tokens = torch.full((inputs, slots, max_length), NONE, device=device)
        return cls(tokens, dead, dead.clone(), torch.zeros_like(dead, dtype=torch.bool))

    def add(self, inputs: Tensor, tokens: Tensor, logprob: Tensor, score: Tensor) -> None:
        """Merge M finished hypotheses (N, M, T) of the inputs (N,); ties go to the one found first."""
        merged = self._with(inputs, tokens, logprob, score, finished=True)
        self._take(inputs, merged, merged.score.sort(dim=-1, descending=True, stable=True).indices)

    def fill(self, inputs: Tensor, tokens: Tensor, logprob: Tensor, score: Tensor) -> None:
        """Put M unfinished hypotheses (N, M, T) into the slots that no finished one holds."""
        merged = self._with(inputs, tokens, logprob, score, finished=False)
        by_score = merged.score.sort(dim=-1, descending=True, stable=True).indices
        unfinished = (~merged.finished & (merged.score > DEAD)).gather(1, by_score)
        vacant = (merged.score == DEAD).gather(1, by_score)
        group = unfinished.long() + 2 * vacant.long()
        self._take(inputs, merged, by_score.gather(1, group.sort(dim=-1, stable=True).indices))

    def _with(self, inputs: Tensor, tokens: Tensor, logprob: Tensor, score: Tensor, finished: bool) -> "BestHypotheses":
        """Return the hypotheses of the inputs (N,) followed by the new ones. -> (N, K + M)."""
        tokens = F.pad(tokens, (0, self.tokens.size(-1) - tokens.size(-1)), value=NONE)
        flags = torch.full_like(logprob, finished, dtype=torch.bool)
        return BestHypotheses(
            torch.cat([self.tokens[inputs], tokens], 1),
            torch.cat([self.logprob[inputs], logprob], 1),
            torch.cat([self.score[inputs], score], 1),
            torch.cat([self.finished[inputs], flags], 1),
        )

    def _take(self, inputs: Tensor, merged: "BestHypotheses", order: Tensor) -> None:
        """Keep the first K of the merged hypotheses in this order, (N, K + M)."""
        order = order[:, : self.score.size(1)]
        self.tokens[inputs] = merged.tokens.gather(1, order[..., None].expand(-1, -1, self.tokens.size(-1)))
        self.logprob[inputs] = merged.logprob.gather(1, order)
        self.score[inputs] = merged.score.gather(1, order)
        self.finished[inputs] = merged.finished.gather(1, order)

    def hypotheses(self) -> list[list[Hypothesis]]:
        """Return the hypotheses of each input as plain values: finished before unfinished, then by score."""
        results = []
        columns = (self.tokens.tolist(), self.score.tolist(), self.logprob.tolist(), self.finished.tolist())
        for row in zip(*columns, strict=True):
            found = [
                Hypothesis([token for token in tokens if token != NONE], score, logprob, finished)
                for tokens, score, logprob, finished in zip(*row, strict=True)
                if score > DEAD
            ]
            results.append(sorted(found, key=lambda one: (not one.finished, -one.score)))
        return results

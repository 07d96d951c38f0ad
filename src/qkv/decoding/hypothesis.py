"""Hypotheses: what decoding returns, and the tensors in which a search keeps its best.

N inputs still searched, B inputs in all, K kept for each, M new ones, T words, L room for words.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

NONE = -1  # fills word tensors where there is no word
DEAD = float("-inf")  # the log-probability of a place that holds no hypothesis


@dataclass(frozen=True)
class Hypothesis:
    """One text that a model proposes for an input."""

    ids: list[int]  # without bos and eos
    score: float  # what hypotheses are ranked by: the log-probability with its penalties
    logprob: float  # log-probability of the words, and of the end if it was reached
    finished: bool  # False where the length limit, or a dead end among the constraints, came first


@dataclass
class Kept:
    """The best hypotheses found so far for each of B inputs, best first; a vacant place scores DEAD."""

    words: Tensor  # (B, K, L)
    logprob: Tensor  # (B, K)
    score: Tensor  # (B, K)
    finished: Tensor  # (B, K)

    @classmethod
    def empty(cls, inputs: int, positions: int, room: int, device: torch.device) -> "Kept":
        """Nothing found yet."""
        dead = torch.full((inputs, positions), DEAD, device=device)
        words = torch.full((inputs, positions, room), NONE, device=device)
        return cls(words, dead, dead.clone(), torch.zeros_like(dead, dtype=torch.bool))

    def add(self, inputs: Tensor, words: Tensor, logprob: Tensor, score: Tensor) -> None:
        """Merge M finished hypotheses (N, M, T) of the inputs (N,); of equal scores the one found first stays ahead."""
        merged = self._with(inputs, words, logprob, score, finished=True)
        self._take(inputs, merged, merged.score.sort(dim=-1, descending=True, stable=True).indices)

    def fill(self, inputs: Tensor, words: Tensor, logprob: Tensor, score: Tensor) -> None:
        """Let M unfinished hypotheses (N, M, T) take the places that no finished one holds."""
        merged = self._with(inputs, words, logprob, score, finished=False)
        by_score = merged.score.sort(dim=-1, descending=True, stable=True).indices
        unfinished = (~merged.finished & (merged.score > DEAD)).gather(1, by_score)
        vacant = (merged.score == DEAD).gather(1, by_score)
        group = unfinished.long() + 2 * vacant.long()
        self._take(inputs, merged, by_score.gather(1, group.sort(dim=-1, stable=True).indices))

    def _with(self, inputs: Tensor, words: Tensor, logprob: Tensor, score: Tensor, finished: bool) -> "Kept":
        words = F.pad(words, (0, self.words.size(-1) - words.size(-1)), value=NONE)
        flags = torch.full_like(logprob, finished, dtype=torch.bool)
        return Kept(
            torch.cat([self.words[inputs], words], 1),
            torch.cat([self.logprob[inputs], logprob], 1),
            torch.cat([self.score[inputs], score], 1),
            torch.cat([self.finished[inputs], flags], 1),
        )

    def _take(self, inputs: Tensor, merged: "Kept", order: Tensor) -> None:
        order = order[:, : self.score.size(1)]
        self.words[inputs] = merged.words.gather(1, order[..., None].expand(-1, -1, self.words.size(-1)))
        self.logprob[inputs] = merged.logprob.gather(1, order)
        self.score[inputs] = merged.score.gather(1, order)
        self.finished[inputs] = merged.finished.gather(1, order)

    def hypotheses(self) -> list[list[Hypothesis]]:
        """All that was found, as plain values: for each input finished before unfinished, then by score."""
        columns = (self.words.tolist(), self.score.tolist(), self.logprob.tolist(), self.finished.tolist())
        return [_ranked(*row) for row in zip(*columns, strict=True)]


def _ranked(words: list[list[int]], scores: list[float], logprobs: list[float], finished: list[bool]) -> list[Hypothesis]:
    found = [
        Hypothesis([word for word in ids if word != NONE], score, logprob, done)
        for ids, score, logprob, done in zip(words, scores, logprobs, finished, strict=True)
        if score > DEAD
    ]
    return sorted(found, key=lambda one: (not one.finished, -one.score))

"""Scores: the penalties that rank hypotheses (Wu et al. 2016, section 7), and the probabilities of given targets.

B inputs, S source length.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from qkv.base.errors import DataError, TrainingError
from qkv.decoding.protocol import Decodable

BROKEN_MODEL = "the model's logits are no probabilities (NaN or infinite); its weights are damaged, use an earlier checkpoint"


def length_penalty(length: Tensor, alpha: float) -> Tensor:
    """Return the divisor of log-probabilities; a length counts the end if it was reached."""
    return ((5 + length) / 6) ** alpha


@functools.lru_cache(maxsize=64)
def length_penalties(longest: int, penalty: float) -> np.ndarray:
    """Return the length penalty of each length up to the longest, made once: others join at every few steps."""
    return length_penalty(torch.arange(longest + 1), penalty).numpy()


def coverage_penalty(covered: Tensor, keep: Tensor, beta: float) -> Tensor:
    """Return beta times the sum over source tokens of log(min(attention received, 1)). covered, keep (..., S) -> (...)."""
    tiny = torch.finfo(covered.dtype).tiny  # a token without attention costs much, but not everything
    return beta * covered.clamp(tiny, 1).log().masked_fill(~keep, 0).sum(-1)


class TokenStatistics(NamedTuple):
    """Probabilities of a target's tokens, its end among them, given the source; most are sums, so that parts of a text add up."""

    source_length: int
    target_length: int  # the end included
    logprob: float  # of the whole target
    lowest: float  # log-probability of the least probable token
    entropy: float  # of the distributions of all tokens, summed, in nats
    end: float  # log-probability of the end
    covered: float | None  # attention that the source tokens received, at most 1 each, summed; None without cross-attention
    unknown: int = 0  # <unk> in source and target

    @classmethod
    def pooled(cls, parts: "Sequence[TokenStatistics]") -> "TokenStatistics":
        """Return the statistics of a text that consists of these parts: sums, the lowest token, and the least certain end."""
        source, target, logprob, lowest, entropy, end, covered, unknown = zip(*parts, strict=True)
        all_covered = None if None in covered else sum(covered)
        return cls(sum(source), sum(target), sum(logprob), min(lowest), sum(entropy), min(end), all_covered, sum(unknown))


@torch.no_grad()
def score(
    model: Decodable, ids: Tensor, keep: Tensor, targets: Sequence[list[int]], *, bos: int, eos: int
) -> list[TokenStatistics]:
    """Return the statistics of each target, its end included, given its source; ids and keep (B, S)."""
    if len(targets) != ids.size(0):
        raise DataError(f"got {len(targets)} targets for {ids.size(0)} inputs; give one target for each input")
    if not targets:
        return []
    lengths, device = torch.tensor([len(target) + 1 for target in targets]), ids.device
    max_length = int(lengths.max())
    padded = torch.tensor([[*target, *[eos] * (max_length - len(target))] for target in targets])
    state = model.start(ids, keep, max_length, attention=True)
    rows, last = torch.arange(len(targets)), torch.full_like(lengths, bos)
    total, entropy, end = torch.zeros(3, len(targets), device=device)
    lowest, covered = torch.full_like(total, float("inf")), torch.zeros(keep.shape, device=device)
    for t in range(max_length):
        logits = model.step(last.to(device), state)
        vocabulary = logits.size(-1)
        if t == 0 and (padded.min() < 0 or padded.max() >= vocabulary):
            wrong = int(padded.max()) if padded.max() >= vocabulary else int(padded.min())
            raise DataError(f"target id {wrong} is not in the model's vocabulary of {vocabulary}; use the model's own tokenizer")
        last, here = padded[rows, t], rows.to(device)
        logs = torch.log_softmax(logits, -1, dtype=torch.float32)
        gain = logs.gather(1, last.to(device)[:, None])[:, 0]
        total[here] += gain
        lowest[here] = torch.minimum(lowest[here], gain)
        entropy[here] += torch.special.entr(logs.exp()).sum(-1)
        end[here] = gain  # the last token of each row stays
        if state.attention is not None:
            covered[here] += state.attention
        stay = (lengths[rows] > t + 1).nonzero()[:, 0]  # known on the host, so that it need not wait for the device
        if 0 < len(stay) < len(rows):
            state.select(stay.to(device))
        rows, last = rows[stay], last[stay]
    attended = covered.clamp(max=1).masked_fill(~keep, 0).sum(1)
    figures = torch.stack([total, lowest, entropy, end, attended]).T.tolist()
    found = []
    for position, (logprob, low, spread, last_gain, seen) in enumerate(figures):
        if logprob != logprob:
            raise TrainingError(f"input {position}: {BROKEN_MODEL}")
        sizes = int(keep[position].sum()), int(lengths[position])
        found.append(TokenStatistics(*sizes, logprob, low, spread, last_gain, None if state.attention is None else seen))
    return found

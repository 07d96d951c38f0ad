"""Scores: the penalties that rank hypotheses (Wu et al. 2016, section 7), and the log-probability of given targets.

B inputs, S source length.
"""

import torch
from torch import Tensor

from qkv.base.errors import DataError, TrainingError
from qkv.decoding.protocol import Decodable

BROKEN_MODEL = "the model's logits are no probabilities (NaN or infinite); its weights are damaged, use an earlier checkpoint"


def length_penalty(length: Tensor, alpha: float) -> Tensor:
    """Return the divisor of log-probabilities; a length counts the end if it was reached."""
    return ((5 + length) / 6) ** alpha


def coverage_penalty(covered: Tensor, keep: Tensor, beta: float) -> Tensor:
    """Return beta times the sum over source tokens of log(min(attention received, 1)). covered, keep (..., S) -> (...)."""
    tiny = torch.finfo(covered.dtype).tiny  # a token without attention costs much, but not everything
    return beta * covered.clamp(tiny, 1).log().masked_fill(~keep, 0).sum(-1)


@torch.no_grad()
def score(model: Decodable, ids: Tensor, keep: Tensor, targets: list[list[int]], *, bos: int, eos: int) -> list[float]:
    """Return the log-probability of each target, its end included, given its source; ids and keep (B, S)."""
    if len(targets) != ids.size(0):
        raise DataError(f"got {len(targets)} targets for {ids.size(0)} inputs; give one target for each input")
    if not targets:
        return []
    lengths = torch.tensor([len(target) + 1 for target in targets])
    max_length = int(lengths.max())
    padded = torch.tensor([[*target, *[eos] * (max_length - len(target))] for target in targets])
    state = model.start(ids, keep, max_length)
    rows, last = torch.arange(len(targets)), torch.full_like(lengths, bos)
    total = torch.zeros(len(targets), device=ids.device)
    for t in range(max_length):
        logits = model.step(last.to(ids.device), state)
        vocabulary = logits.size(-1)
        if t == 0 and (padded.min() < 0 or padded.max() >= vocabulary):
            wrong = int(padded.max()) if padded.max() >= vocabulary else int(padded.min())
            raise DataError(f"target id {wrong} is not in the model's vocabulary of {vocabulary}; use the model's own tokenizer")
        last = padded[rows, t]
        gain = torch.log_softmax(logits, -1, dtype=torch.float32).gather(1, last.to(ids.device)[:, None])
        total[rows.to(ids.device)] += gain[:, 0]
        stay = (lengths[rows] > t + 1).nonzero()[:, 0]  # known on the host, so that it need not wait for the device
        if 0 < len(stay) < len(rows):
            state.select(stay.to(ids.device))
        rows, last = rows[stay], last[stay]
    totals = total.tolist()
    for position, value in enumerate(totals):
        if value != value:
            raise TrainingError(f"input {position}: {BROKEN_MODEL}")
    return totals

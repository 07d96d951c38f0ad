"""Scores: the penalties that rank hypotheses (Wu et al. 2016, section 7), and a model's score of given targets."""

import torch
from torch import Tensor

from qkv.base.errors import DataError, TrainingError
from qkv.decoding.protocol import Decodable

BROKEN_MODEL = "the model's logits are no probabilities (NaN or infinite); its weights are damaged, use an earlier checkpoint"


def length_penalty(length: Tensor, alpha: float) -> Tensor:
    """What log-probabilities are divided by; a length counts the end, if it was reached."""
    return ((5 + length) / 6) ** alpha


def coverage_penalty(covered: Tensor, keep: Tensor, beta: float) -> Tensor:
    """beta * the sum over source words of log(min(attention received, 1)); covered (..., S), keep (..., S) -> (...)."""
    tiny = torch.finfo(covered.dtype).tiny  # a word that got none at all costs much, but not everything
    return beta * covered.clamp(tiny, 1).log().masked_fill(~keep, 0).sum(-1)


@torch.no_grad()
def score(model: Decodable, ids: Tensor, keep: Tensor, targets: list[list[int]], *, bos: int, eos: int) -> list[float]:
    """The log-probability that the model gives each target, its end included, for each source; ids and keep (B, S)."""
    if len(targets) != ids.size(0):
        raise DataError(f"got {len(targets)} targets for {ids.size(0)} inputs; give one target for each input")
    if not targets:
        return []
    lengths = torch.tensor([len(target) + 1 for target in targets])
    longest = int(lengths.max())
    padded = torch.tensor([[*target, *[eos] * (longest - len(target))] for target in targets])
    state = model.start(ids, keep, longest)
    rows, last = torch.arange(len(targets)), torch.full_like(lengths, bos)
    total = torch.zeros(len(targets), device=ids.device)
    for t in range(longest):
        logits = model.step(last.to(ids.device), state)
        if t == 0:
            _check_vocabulary(padded, logits.size(-1))
        last = padded[rows, t]
        gain = torch.log_softmax(logits, -1, dtype=torch.float32).gather(1, last.to(ids.device)[:, None])
        total[rows.to(ids.device)] += gain[:, 0]
        stay = (lengths[rows] > t + 1).nonzero()[:, 0]  # on the host: no word of this comes from the device
        if 0 < len(stay) < len(rows):
            state.select(stay.to(ids.device))
        rows, last = rows[stay], last[stay]
    return _checked(total.tolist())


def _check_vocabulary(targets: Tensor, size: int) -> None:
    if targets.min() < 0 or targets.max() >= size:
        wrong = int(targets.max()) if targets.max() >= size else int(targets.min())
        raise DataError(f"target id {wrong} is not in the model's vocabulary of {size}; use the model's own tokenizer")


def _checked(totals: list[float]) -> list[float]:
    for position, total in enumerate(totals):
        if total != total:
            raise TrainingError(f"input {position}: {BROKEN_MODEL}")
    return totals

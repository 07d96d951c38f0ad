"""Frequency and presence penalties, as in OpenAI's API: each row has its own.

R rows, V vocabulary.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def penalise(logits: Tensor, counts: Tensor, frequency: Tensor, presence: Tensor) -> Tensor:
    """Return logits (R, V) that are lower for tokens that a row has generated already, `counts` (R, V) times.

    A row's `frequency` penalty (R,) is subtracted once for each time, its `presence` penalty (R,) once in all.
    """
    return logits - frequency[:, None] * counts - presence[:, None] * (counts > 0)


def counts_of(outputs: Sequence[Sequence[int]], vocabulary: int, device: torch.device) -> Tensor:
    """Return how often each row has generated each token, given its tokens. -> (R, V)."""
    counts = torch.zeros(len(outputs), vocabulary, dtype=torch.int16)
    for row, tokens in zip(counts, outputs, strict=True):
        row += torch.bincount(torch.tensor(tokens, dtype=torch.long), minlength=vocabulary).to(row.dtype)
    return counts.to(device)


def count_tokens(counts: Tensor, tokens: Tensor) -> None:
    """Add the newest token of each row (R,) to its counts (R, V), in place."""
    counts.scatter_add_(1, tokens[:, None], torch.ones_like(tokens, dtype=counts.dtype)[:, None])

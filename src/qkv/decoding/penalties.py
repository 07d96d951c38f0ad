"""Frequency and presence penalties, as in OpenAI's API: each row has its own.

R rows, V vocabulary.
"""

import torch
from torch import Tensor


def penalise(logits: Tensor, counts: Tensor, frequency: Tensor, presence: Tensor) -> Tensor:
    """Return logits (R, V) that are lower for tokens that a row has generated already, `counts` (R, V) times.

    A row's `frequency` penalty (R,) is subtracted once for each time, its `presence` penalty (R,) once in all.
    """
    return logits - frequency[:, None] * counts - presence[:, None] * (counts > 0)


def empty_counts(rows: int, vocabulary: int, device: torch.device) -> Tensor:
    """Return counts for rows that have generated nothing yet. -> (R, V)."""
    return torch.zeros(rows, vocabulary, dtype=torch.int16, device=device)


def count_tokens(counts: Tensor, tokens: Tensor) -> None:
    """Add the newest token of each row (R,) to its counts (R, V), in place."""
    counts.scatter_add_(1, tokens[:, None], torch.ones_like(tokens, dtype=counts.dtype)[:, None])

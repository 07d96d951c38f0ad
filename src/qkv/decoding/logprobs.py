"""Log-probabilities of generated tokens and of their alternatives, by the model's own distribution.

Temperature, penalties and constraints change which token is taken, not these figures. R rows, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor


class TokenLogprob(NamedTuple):
    """A token, its log-probability, and the most probable tokens in its position with theirs, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass
class LogprobRecord:
    """Log-probabilities of the tokens of one output, added while it is generated."""

    alternatives: int  # most probable tokens that are recorded for each position
    tokens: list[TokenLogprob] = field(default_factory=list)


def token_logprobs(logits: Tensor, tokens: Tensor, alternatives: Sequence[int | None]) -> list[TokenLogprob | None]:
    """Return the log-probability of the token (R,) that each row of logits (R, V) took, with some alternatives.

    `alternatives` is their number for each row; None: nothing is wanted of this row.
    """
    wanted = [row for row, count in enumerate(alternatives) if count is not None]
    found: list[TokenLogprob | None] = [None] * len(alternatives)
    if not wanted:
        return found
    logprobs = torch.log_softmax(logits[wanted], -1, dtype=torch.float32)
    chosen = tokens[wanted]
    most = min(max(alternatives[row] or 0 for row in wanted), logits.size(1))
    best, ids = logprobs.topk(most)
    columns = (chosen.tolist(), logprobs.gather(1, chosen[:, None])[:, 0].tolist(), ids.tolist(), best.tolist())
    for row, token, logprob, others, values in zip(wanted, *columns, strict=True):
        count = alternatives[row] or 0
        found[row] = TokenLogprob(token, logprob, tuple(zip(others[:count], values[:count], strict=True)))
    return found

"""Log-probabilities of the tokens of given texts, for comparing texts.

There are two modes. `left`: each token given the tokens before it, so that the sum is the text's log-probability. `each`: each
token given all others, one after the other; the sum is the pseudo-log-likelihood of Salazar et al. 2020 ("Masked Language Model
Scoring", section 2). `Family.token_scores` has a function for each mode of a family. Models read control tokens without scores.
B rows, T positions, K scored tokens, D width, V vocabulary.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX, Rows
from qkv.parts.heads import ModelWithHeads
from qkv.parts.loss import log_probabilities

ScoringMode = Literal["left", "each"]


class TokenScores(NamedTuple):
    """Log-probabilities of tokens of rows."""

    logs: Tensor  # (B, K) in nats; 0 where no token is scored
    labels: Tensor  # (B, K) the scored tokens; IGNORE_INDEX where there is none


class ControlTokens(NamedTuple):
    """Ids of the control tokens that scoring needs."""

    mask: int | None
    unknown: int
    special: tuple[int, ...]  # models read them, but they get no score


ScoreTokens = Callable[[ModelWithHeads, Rows, ControlTokens], TokenScores]


def masked_each(model: ModelWithHeads, rows: Rows, control: ControlTokens) -> TokenScores:
    """Score each token with [MASK] in its place, one position after the other in all rows at once."""

    def hidden_at(position: int) -> Tensor:
        masked = rows.ids.masked_fill(rows.position == position, control.mask)  # type: ignore[arg-type]
        return model.encoder(rows._replace(ids=masked))[:, position : position + 1]

    return one_by_one(model, "masked", hidden_at, scored_tokens(rows, control))


def one_by_one(model: ModelWithHeads, head: str, hidden_at: Callable[[int], Tensor], labels: Tensor) -> TokenScores:
    """Score rows of one text each, a position at a time: `hidden_at` gives the hidden states (B, 1, D) of a position."""
    logs = torch.zeros(labels.shape, device=labels.device)
    for position in range(labels.size(1)):
        if bool((labels[:, position] != IGNORE_INDEX).any()):
            scores = score_with_head(model, head, hidden_at(position), labels[:, position : position + 1])
            logs[:, position] = scores.logs[:, 0]
    return TokenScores(logs, labels)


def scored_tokens(rows: Rows, control: ControlTokens) -> Tensor:
    """Return the ids of rows as labels, with IGNORE_INDEX at control tokens and padding. -> (B, T)."""
    return without_control(rows.ids.masked_fill(rows.text == 0, IGNORE_INDEX), control)


def without_control(labels: Tensor, control: ControlTokens) -> Tensor:
    """Replace control tokens by IGNORE_INDEX."""
    return labels.masked_fill(torch.isin(labels, torch.tensor(control.special, device=labels.device)), IGNORE_INDEX)


def score_with_head(model: ModelWithHeads, name: str, hidden: Tensor, labels: Tensor) -> TokenScores:
    """Score tokens by a language model head. hidden (B, K, D), labels (B, K)."""
    head: Any = model.heads[name]
    return score_with_weights(head.features(hidden), head.weight, head.bias, labels)


def score_with_weights(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> TokenScores:
    """Score tokens by an output layer. hidden (B, K, D), weight (V, D), bias (V,), labels (B, K)."""
    return TokenScores(log_probabilities(hidden.flatten(0, 1), weight, labels.flatten(), bias).view_as(labels), labels)

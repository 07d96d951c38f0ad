"""How likely a model finds the tokens of texts as they stand, which is how texts are compared.

In two ways. `left`: each token from those before it, so that the sum is the log-probability of the text. `each`: each token from
all others, one after the other, so that the sum is no probability of the text, but tells likelier texts from others as one would
(Salazar et al. 2020, "Masked Language Model Scoring", section 2). Which of them a model can say:

    gpt      left
    unilm    left, with [MASK] in the place of each token and the segment of that way; each, as below
    xlnet    left, in the order of the text, of which its end alone is known before; each, as the last one of an order
    elmo     left, by the layers that read forward; each: the mean of both directions, which do not know of each other
    others   each, with [MASK] in the place of a token

Control tokens are read and not told; to an ELMo all words beyond those of its softmax are one.
B rows, T places, K tokens told, D width of the model, V vocabulary.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from qkv.base.errors import ConfigError
from qkv.base.rows import IGNORE_INDEX, Rows
from qkv.objectives.bidirectional import tokens_before
from qkv.objectives.causal import next_tokens
from qkv.parts.heads import ModelWithHeads
from qkv.parts.loss import log_probabilities
from qkv.parts.two_stream import with_summary_last

Way = Literal["left", "each"]


class Told(NamedTuple):
    """What a model says of rows."""

    logs: Tensor  # (B, K) log-probabilities in nats, 0 where nothing is told
    answer: Tensor  # (B, K) of which tokens; SKIP where of none


class Control(NamedTuple):
    """What must be known of a tokenizer's control tokens."""

    mask: int | None  # the id of [MASK]
    unknown: int
    special: tuple[int, ...]  # ids that are not told


Tell = Callable[[ModelWithHeads, Rows, Control], Told]


def usual_way(kind: str) -> Way:
    """How a model of that kind tells texts best: as it was trained."""
    return "left" if kind == "gpt" else "each"


def teller(kind: str, how: Way) -> Tell:
    """The function for a kind of model and a way; refused where there is none."""
    tell = WAYS.get((kind, how), EACH if how == "each" and kind != "gpt" else None)
    if tell is None:
        other = "left" if how == "each" else "each"
        raise ConfigError(f"a {kind} cannot tell how likely a text is by how={how}; say how={other}")
    return tell


# From left to right


def _gpt_left(model: ModelWithHeads, rows: Rows, control: Control) -> Told:
    encoder: Any = model.encoder
    return _told(encoder(rows), encoder.embedding.words.weight, None, next_tokens(rows))


def _unilm_left(model: ModelWithHeads, rows: Rows, control: Control) -> Told:
    encoder: Any = model.encoder
    return _by_head(model, "masked", encoder.before(rows, control.mask), _answers(rows, control))


def _xlnet_left(model: ModelWithHeads, rows: Rows, control: Control) -> Told:
    rows, segment, _ = with_summary_last(rows, None)
    answer = _answers(rows, control)
    rank = torch.where(answer == IGNORE_INDEX, 0, rows.position + 1)
    where = torch.arange(rows.ids.size(1), device=rows.ids.device).expand_as(rows.ids)
    encoder: Any = model.encoder
    return _by_head(model, "words", encoder.guess(rows, segment, rank, where)[0], answer)


def _elmo_left(model: ModelWithHeads, rows: Rows, control: Control) -> Told:
    *_, (ahead, _) = model.encoder.each_way(rows)  # type: ignore[operator]
    return _neighbours(model, ahead, _but_special(next_tokens(rows), control), control)


# From all others


def _elmo_each(model: ModelWithHeads, rows: Rows, control: Control) -> Told:
    *_, (ahead, back) = model.encoder.each_way(rows)  # type: ignore[operator]
    sides = [(ahead, next_tokens(rows)), (back, tokens_before(rows))]
    told = [_neighbours(model, known, _but_special(answer, control), control) for known, answer in sides]
    return Told(torch.cat([side.logs for side in told], 1) / 2, torch.cat([side.answer for side in told], 1))


def _xlnet_each(model: ModelWithHeads, rows: Rows, control: Control) -> Told:
    rows, segment, _ = with_summary_last(rows, None)
    encoder: Any = model.encoder

    def known(position: int) -> Tensor:
        last = (rows.position == position).long()
        return encoder.guess(rows, segment, last, torch.full_like(rows.ids[:, :1], position))[0]

    return _one_by_one(model, "words", known, _answers(rows, control))


def _masked_each(model: ModelWithHeads, rows: Rows, control: Control) -> Told:
    def known(position: int) -> Tensor:
        hidden = rows.ids.masked_fill(rows.position == position, control.mask)  # type: ignore[arg-type]
        return model.encoder(rows._replace(ids=hidden))[:, position : position + 1]

    return _one_by_one(model, "masked", known, _answers(rows, control))


def _one_by_one(model: ModelWithHeads, head: str, known: Callable[[int], Tensor], answer: Tensor) -> Told:
    """Of rows with one text each: `known` gives (B, 1, D) at a place."""
    positions = [position for position in range(answer.size(1)) if bool((answer[:, position] != IGNORE_INDEX).any())]
    logs = torch.zeros(answer.shape, device=answer.device)
    for position in positions:
        logs[:, position] = _by_head(model, head, known(position), answer[:, position : position + 1]).logs[:, 0]
    return Told(logs, answer)


# What all have in common


def _answers(rows: Rows, control: Control) -> Tensor:
    """The tokens themselves, but for control tokens and padding. -> (B, T)."""
    return _but_special(rows.ids.masked_fill(rows.text == 0, IGNORE_INDEX), control)


def _but_special(answer: Tensor, control: Control) -> Tensor:
    return answer.masked_fill(torch.isin(answer, torch.tensor(control.special, device=answer.device)), IGNORE_INDEX)


def _by_head(model: ModelWithHeads, name: str, known: Tensor, answer: Tensor) -> Told:
    head: Any = model.heads[name]
    return _told(head.features(known), head.weight, head.bias, answer)


def _neighbours(model: ModelWithHeads, known: Tensor, answer: Tensor, control: Control) -> Told:
    head: Any = model.heads["neighbours"]
    return _told(known, head.weight, head.bias, answer.masked_fill(answer >= len(head.weight), control.unknown))


def _told(known: Tensor, weight: Tensor, bias: Tensor | None, answer: Tensor) -> Told:
    """known (B, K, D), weight (V, D), bias (V,), answer (B, K)."""
    return Told(log_probabilities(known.flatten(0, 1), weight, answer.flatten(), bias).view_as(answer), answer)


EACH: Tell = _masked_each
WAYS: dict[tuple[str, Way], Tell] = {
    ("gpt", "left"): _gpt_left,
    ("unilm", "left"): _unilm_left,
    ("xlnet", "left"): _xlnet_left,
    ("elmo", "left"): _elmo_left,
    ("xlnet", "each"): _xlnet_each,
    ("elmo", "each"): _elmo_each,
}
HEADS: dict[str, str | None] = {"gpt": None, "xlnet": "words", "elmo": "neighbours"}  # by which words are told; else "masked"

"""Which continuations a beam keeps where outputs must contain phrases: dynamic beam allocation (Post and Vilar 2018).

Hypotheses that have met equally many tokens of their phrases form a bank and compete with each other alone. The beam takes the
best of each bank, then the second best, and so on, as the vectorised form of Hu et al. (2019) does. Where there are more banks
than slots, we prefer the more probable ones, and always keep the bank that has met most; the papers prefer those that have met
most, which makes hypotheses begin with their phrases. Two more departures: hypotheses whose most probable continuation is the
end may only advance their phrases, and hypotheses without room for their phrases come last.

N inputs still searched, W live hypotheses of each, A tokens in phrases, V vocabulary, C continuations.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from qkv.decoding.hypothesis import DEAD, NONE, Continuations
from qkv.decoding.phrases import PhraseProgress
from qkv.decoding.topk import topk

NEVER = 1 << 60  # the key of a continuation that is not kept
FAR = 1 << 20  # more than all phrases of an input have tokens


@dataclass
class Candidates:
    """Continuations that compete for the beam, by log-probability, best first; each tensor (N, C)."""

    logprob: Tensor
    token: Tensor
    parent: Tensor
    left: Tensor  # fewest tokens that complete all phrases after this one
    idle: Tensor  # whether the parent wants to end and this does not advance its phrases


def expand_with_phrases(
    progress: PhraseProgress,
    logprob: Tensor,
    logprobs: Tensor,
    constrain: Callable[[Tensor], None],
    forced: Tensor,
    room: Tensor,
    beam: int,
    eos: int,
) -> Continuations:
    """Return the best continuations of hypotheses (N, W) by next-token logprobs (N * W, V): those that end, and `beam` more.

    `constrain` forbids tokens in logprobs, in place; tokens that advance a phrase are allowed nevertheless, unless the input's
    token is `forced` (N,) by a prefix. `room` (N,) is the number of tokens that may follow the next one.
    """
    left, repeats = progress.moves()  # (N, W, A + 1) each
    now, alphabet = progress.left, progress.alphabet.clamp(min=0)  # padding repeats token 0, and advances nothing
    symbols = alphabet[:, None].expand(left[..., :-1].shape)  # (N, W, A)
    offered = logprobs.gather(1, symbols.flatten(0, 1)).view(symbols.shape)
    banned = torch.where(repeats[..., :-1], DEAD, -DEAD).flatten(0, 1)
    logprobs.scatter_reduce_(1, symbols.flatten(0, 1), banned, "amin")
    ends = logprobs[:, eos].view(now.shape).clone()
    constrain(logprobs)
    offered = offered.masked_fill((left[..., :-1] >= now[..., None]) | repeats[..., :-1] | forced[:, None, None], DEAD)
    logprobs[:, eos] = logprobs[:, eos].masked_fill(now.flatten() > 0, DEAD)
    found = _candidates(progress, logprob, logprobs, offered, left, ends, beam)
    return _choose(found, progress.tables.constrained[progress.inputs], room, beam, eos)


def _candidates(
    progress: PhraseProgress, logprob: Tensor, logprobs: Tensor, offered: Tensor, left: Tensor, ends: Tensor, beam: int
) -> Candidates:
    """Return the best continuations of each hypothesis and those that advance a phrase, in the order of `beam.expand`."""
    size = min(beam + 1, logprobs.size(1))
    best, tokens = topk(logprobs, size)
    tokens, order = tokens.sort(-1)
    best, tokens = best.gather(1, order).view(*logprob.shape, size), tokens.view(*logprob.shape, size)
    symbols = progress.alphabet[:, None].expand_as(offered)
    twice = (symbols[..., None] == tokens.masked_fill(best == DEAD, NONE)[:, :, None]).any(-1)
    offered = offered.masked_fill(twice, DEAD)
    after = torch.cat([left.gather(-1, progress.symbols(tokens)), left[..., :-1]], -1)
    now = progress.left[..., None]
    idle = (ends > best.amax(-1))[..., None] & (after >= now) & (now > 0)
    total = (logprob[..., None] + torch.cat([best, offered], -1)).masked_fill(logprob[..., None] == DEAD, DEAD)
    total, order = total.flatten(1).sort(dim=-1, descending=True, stable=True)
    token, after, idle = (
        values.flatten(1).gather(1, order) for values in (torch.cat([tokens, symbols.clamp(min=0)], -1), after, idle)
    )
    return Candidates(total, token, order // (size + offered.size(-1)), after, idle)


def _choose(found: Candidates, constrained: Tensor, room: Tensor, beam: int, eos: int) -> Continuations:
    """Return the continuations that end and the `beam` that the banks get; where nothing constrains, just the best.

    A hypothesis may end if the end is among the first `beam` continuations of those that have met all phrases.
    """
    count = found.logprob.size(1)
    position = torch.arange(count, device=room.device).expand_as(found.token)
    alive, end = found.logprob != DEAD, found.token == eos
    lives = alive & ~end
    group = torch.where(found.left > room[:, None], 2, found.idle.long())
    bank = (group * FAR + found.left).masked_fill(~lives, NEVER)
    key = group * count * count + _rank_within(bank) * count + position
    lead = (bank * count + position).masked_fill(~lives, NEVER).argmin(-1, keepdim=True)  # the first of those that have met most
    key = key.scatter(1, lead, -1).masked_fill(~lives, NEVER)
    kept = lives & (key <= key.kthvalue(min(beam, count), dim=-1, keepdim=True).values)
    ended = alive & end & ((found.left == 0) & alive).cumsum(-1).le(beam)
    order = torch.where(ended, position - count, torch.where(kept, position, NEVER))
    order, chosen = torch.where(constrained[:, None], order, position).sort(dim=-1)
    order, chosen = order[:, : 2 * beam], chosen[:, : 2 * beam]
    logprob = found.logprob.gather(1, chosen).masked_fill(order == NEVER, DEAD)
    return Continuations(found.parent.gather(1, chosen), found.token.gather(1, chosen), logprob)


def _rank_within(bank: Tensor) -> Tensor:
    """Return how many continuations before each one are in the same bank, (N, C)."""
    ordered, order = bank.sort(dim=-1, stable=True)
    position = torch.arange(bank.size(1), device=bank.device).expand_as(bank)
    first = torch.nn.functional.pad(ordered[:, 1:] != ordered[:, :-1], (1, 0), value=True)
    begin = torch.where(first, position, 0).cummax(-1).values
    return torch.zeros_like(bank).scatter(1, order, position - begin)

"""Which continuations a beam keeps where outputs must contain phrases: dynamic beam allocation (Post and Vilar 2018).

Hypotheses that have met equally many tokens of their phrases form a bank and compete with each other alone. The beam takes the
best of each bank, then the second best, and so on, as the vectorised form of Hu et al. (2019) does. Where there are more banks
than slots, we prefer the more probable ones, and always keep the bank that has met most; the papers prefer those that have met
most, which makes hypotheses begin with their phrases. Two more departures: hypotheses whose most probable continuation is the
end may only advance their phrases, and hypotheses without room for their phrases come last.

The device computes on the vocabulary, and the host chooses among the few candidates.

N inputs still searched, W live hypotheses of each, A tokens in phrases, V vocabulary, C continuations.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from qkv.decoding.hypothesis import DEAD, Continuations
from qkv.decoding.phrases import PhraseProgress
from qkv.decoding.topk import topk

NEVER = 1 << 60  # the key of a continuation that is not kept
FAR = 1 << 20  # more than all phrases of an input have tokens


@dataclass
class Candidates:
    """Continuations that compete for the beam, by log-probability, best first; each array (N, C)."""

    logprob: np.ndarray
    token: np.ndarray
    parent: np.ndarray
    left: np.ndarray  # fewest tokens that complete all phrases after this one
    idle: np.ndarray  # whether the parent wants to end and this does not advance its phrases


def expand_with_phrases(
    progress: PhraseProgress,
    logprob: Tensor,
    logprobs: Tensor,
    constrain: Callable[[Tensor], None],
    forced: np.ndarray,
    room: np.ndarray,
    beam: int,
    eos: int,
) -> Continuations:
    """Return the best continuations of hypotheses (N, W) by next-token logprobs (N * W, V): those that end, and `beam` more.

    `constrain` forbids tokens in logprobs, in place; tokens that advance a phrase are allowed nevertheless, unless the input's
    token is `forced` (N,) by a prefix. `room` (N,) is the number of tokens that may follow the next one.
    """
    alphabet = torch.from_numpy(progress.alphabet).to(logprobs.device)  # (N, A + 1)
    alphabet = alphabet.repeat_interleave(logprob.size(1), 0)
    index = alphabet.clamp(min=0)
    before = logprobs.gather(1, index)
    constrain(logprobs)
    after = logprobs.gather(1, index)
    # The tokens of the alphabet compete beside the others; NONE, which fills it, forbids nothing.
    logprobs.scatter_reduce_(1, index, torch.where(alphabet < 0, -DEAD, DEAD), "amin")
    best, tokens = topk(logprobs, min(beam + 1, logprobs.size(1)))
    values = torch.cat([best, before, after, logprob.view(-1, 1)], 1).cpu().numpy()
    found = _candidates(progress, values, tokens.cpu().numpy(), forced)
    chosen = _choose(found, progress.constrained, room, beam, eos)
    return Continuations(*(torch.from_numpy(each).to(logprobs.device) for each in chosen))


def _candidates(progress: PhraseProgress, values: np.ndarray, tokens: np.ndarray, forced: np.ndarray) -> Candidates:
    """Return the best continuations of each hypothesis, those by each token of the alphabet, and its end.

    values (N * W, M + 2 (A + 1) + 1) holds the log-probabilities of M other tokens (N * W, M), of the alphabet before and after
    constraints, and of the hypothesis.
    """
    inputs, width = progress.node.shape
    values, tokens = values.reshape(inputs, width, -1), tokens.reshape(inputs, width, -1)
    size, alphabet = tokens.shape[-1], progress.alphabet[:, None]
    best, before, after, logprob = np.split(values, np.cumsum([size, *[alphabet.shape[-1]] * 2]), -1)
    left, repeats = progress.moves()  # (N, W, A + 1) each
    now, forced = progress.left[..., None], forced[:, None, None]
    offered = np.where((left < now) & ~forced, before, after)
    offered[(repeats & ~forced) | (alphabet < 0)] = DEAD
    offered[..., -1:][now > 0] = DEAD  # the end
    offered[(left >= now) & (offered < best[..., -1:])] = DEAD  # no phrase needs these, and the others are better
    left = np.concatenate([np.broadcast_to(left[..., -1:], best.shape), left], -1)
    offered = np.concatenate([best, offered], -1)
    idle = (before[..., -1:] > offered.max(-1, keepdims=True)) & (left >= now) & (now > 0)
    total = np.where(logprob == DEAD, DEAD, logprob + offered).reshape(inputs, -1)
    tokens = np.concatenate([tokens, np.broadcast_to(alphabet, (inputs, width, alphabet.shape[-1]))], -1)
    # In the order of `beam.expand`: a value that is not a number first, ties by parent and token.
    tie = (tokens + np.arange(width)[:, None] * (tokens.max() + 1)).reshape(inputs, -1)
    order = np.lexsort((tie, np.where(np.isnan(total), DEAD, -total)))
    rows = np.arange(inputs)[:, None]
    token, left, idle = (each.reshape(inputs, -1)[rows, order] for each in (tokens, left, idle))
    return Candidates(total[rows, order], token.clip(min=0), order // offered.shape[-1], left, idle)


def _choose(
    found: Candidates, constrained: np.ndarray, room: np.ndarray, beam: int, eos: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return parent, token and log-probability of the continuations that end and of the `beam` that the banks get.

    Where nothing constrains, these are just the best.
    """
    count = found.token.shape[1]
    position, rows = np.arange(count), np.arange(len(room))[:, None]
    alive, end = found.logprob != DEAD, found.token == eos
    group = np.where(found.left > room[:, None], 2, found.idle)
    bank = np.where(alive & ~end, group * FAR + found.left, NEVER)
    by_bank = bank.argsort(-1, kind="stable")
    bank = bank[rows, by_bank]
    first = np.pad(bank[:, 1:] != bank[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    rank = position - np.maximum.accumulate(np.where(first, position, 0), -1)  # within its bank
    key = bank // FAR * count * count + rank * count + by_bank
    key[:, 0] = -1  # the best of those that have met most
    key[bank == NEVER] = NEVER
    best = key.argsort(-1)[:, :beam]
    kept = np.zeros_like(alive)
    kept[rows, by_bank[rows, best]] = key[rows, best] < NEVER
    ended = alive & end & (((found.left == 0) & alive).cumsum(-1) <= beam)
    order = np.where(ended, position - count, np.where(kept, position, NEVER))
    order = np.where(constrained[:, None], order, position)
    chosen = order.argsort(-1, kind="stable")[:, : 2 * beam]
    logprob = np.where(order[rows, chosen] == NEVER, np.float32(DEAD), found.logprob[rows, chosen])
    return found.parent[rows, chosen], found.token[rows, chosen], logprob

"""Beam search with exact stopping.

All live hypotheses of an input have the same length, so they compete by log-probability alone; penalties (Wu et al.
2016) rank those that have ended. A hypothesis ends when eos is among the first `beam` of all continuations. An input is
done when no live hypothesis could still overtake the last of the n best that ended: log-probability only falls, so the
most that one can reach is its present value under the penalty of the longest length, with full coverage.
Of equal scores the earlier hypothesis goes first, then the lower word id.

N inputs still searched, W live hypotheses of each (1 at first, then up to `beam`), C continuations, T words, S source
length, V vocabulary.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from qkv.base.errors import ConfigError
from qkv.decoding.hypothesis import DEAD, Kept
from qkv.decoding.protocol import Decodable
from qkv.decoding.scoring import coverage_penalty
from qkv.decoding.task import AT_LIMIT, BROKEN, DONE, GO_ON, STUCK, Task, logprobs, read_fates, rows_with


@dataclass
class Live:
    """The hypotheses that may still grow, best first."""

    inputs: Tensor  # (N,) which input of the task
    words: Tensor  # (N, W, T)
    logprob: Tensor  # (N, W)
    covered: Tensor | None  # (N, W, S) attention that each source word has received, where coverage counts

    def pick(self, rows: Tensor) -> "Live":
        """Those of some of the N inputs only."""
        covered = None if self.covered is None else self.covered[rows]
        return Live(self.inputs[rows], self.words[rows], self.logprob[rows], covered)

    def owners(self) -> Tensor:
        """The input of each hypothesis, (N * W,)."""
        return self.inputs.repeat_interleave(self.logprob.size(1))


@dataclass
class Continuations:
    """One-word continuations, best first."""

    parent: Tensor  # (N, C) which of the W hypotheses each goes on from
    word: Tensor  # (N, C)
    logprob: Tensor  # (N, C)


def beam_search(model: Decodable, task: Task) -> Kept:
    """The n best hypotheses that a beam finds for each input."""
    state = model.start(task.ids, task.keep, task.room, attention=task.config.coverage_penalty > 0)
    live = _begin(task)
    kept = Kept.empty(len(live.inputs), task.config.n_best, task.room, task.ids.device)
    last = torch.full_like(live.inputs, task.bos)
    for step in range(task.room):
        scores, broken = logprobs(model.step(last, state))
        broken = broken.view_as(live.logprob) & (live.logprob > DEAD)
        live.covered = _cover(live.covered, state.attention)
        task.limits.apply(scores, live.words.flatten(0, 1), live.owners())
        found = expand(live, scores, task.config.beam)
        _finish(kept, live, found, task)
        found = survivors(found, task)
        grown = grow(live, found)
        told = read_fates(_fates(grown, broken.any(-1), kept, task), live.inputs, task, step)
        _give_up(kept, live, grown, told, task)
        rows = found.parent + torch.arange(len(live.inputs), device=task.ids.device)[:, None] * live.logprob.size(1)
        live = grown
        if (told != GO_ON).any():
            stay = rows_with(told, GO_ON, task.ids.device)
            live, rows = grown.pick(stay), rows[stay]
            if not len(stay):
                break
        state.select(rows.flatten())
        last = live.words[..., -1].flatten()
    return kept


def _begin(task: Task) -> Live:
    inputs = torch.arange(task.ids.size(0), device=task.ids.device)
    covered = torch.zeros(task.ids.shape, device=inputs.device)[:, None] if task.config.coverage_penalty else None
    return Live(inputs, inputs.new_empty(len(inputs), 1, 0), torch.zeros(len(inputs), 1, device=inputs.device), covered)


def _cover(covered: Tensor | None, attention: Tensor | None) -> Tensor | None:
    if covered is None:
        return None
    if attention is None:
        raise ConfigError("coverage_penalty needs a model that tells its attention, and this one does not; set it to 0")
    return covered + attention.view_as(covered)


def expand(live: Live, scores: Tensor, beam: int) -> Continuations:
    """All continuations that can matter, given log-probabilities (N * W, V): of each hypothesis `beam` and eos."""
    size = min(beam + 1, scores.size(1))
    best, words = scores.topk(size, sorted=False)
    words, order = words.sort(-1)  # so that the stable sort below leaves equal ones in the order of their ids
    total = live.logprob[..., None] + best.gather(1, order).view(*live.logprob.shape, size)
    total = torch.where(live.logprob[..., None] > DEAD, total, DEAD)  # a dead hypothesis may have any logits, NaN too
    total, order = total.flatten(1).sort(dim=-1, descending=True, stable=True)
    return Continuations(order // size, words.view_as(total).gather(1, order), total)


def survivors(found: Continuations, task: Task) -> Continuations:
    """The first `beam` that have not ended; where there are fewer, dead ones fill up."""
    ended = found.word == task.eos
    order = ended.byte().sort(dim=-1, stable=True).indices[:, : task.config.beam]
    logprob = found.logprob.masked_fill(ended, DEAD).gather(1, order)
    word = found.word.gather(1, order).masked_fill(logprob == DEAD, task.bos)  # a harmless word to step on with
    return Continuations(found.parent.gather(1, order), word, logprob)


def grow(live: Live, found: Continuations) -> Live:
    """The live hypotheses of the next step."""
    words = torch.cat([_of_parents(live.words, found.parent), found.word[..., None]], -1)
    covered = None if live.covered is None else _of_parents(live.covered, found.parent)
    return Live(live.inputs, words, found.logprob, covered)


def _of_parents(values: Tensor, parent: Tensor) -> Tensor:
    """Rows of values (N, W, X) by number: (N, C) -> (N, C, X)."""
    return values.gather(1, parent[..., None].expand(-1, -1, values.size(-1)))


def _finish(kept: Kept, live: Live, found: Continuations, task: Task) -> None:
    """Keep the hypotheses that end here: those with eos among the first `beam` continuations."""
    parent, word = found.parent[:, : task.config.beam], found.word[:, : task.config.beam]
    logprob = found.logprob[:, : task.config.beam].masked_fill(word != task.eos, DEAD)
    score = _score(live, logprob, live.words.size(-1) + 1, parent, task)
    kept.add(live.inputs, _of_parents(live.words, parent), logprob, score)


def _score(live: Live, logprob: Tensor, length: int, parent: Tensor, task: Task) -> Tensor:
    score = logprob / task.penalty[length]
    if live.covered is None:
        return score
    penalty = coverage_penalty(live.covered, task.keep[live.inputs][:, None], task.config.coverage_penalty)
    return score + penalty.gather(1, parent)


def _fates(grown: Live, broken: Tensor, kept: Kept, task: Task) -> Tensor:
    ends_at, best = task.ends_at[grown.inputs], grown.logprob[:, 0]
    attainable = best / task.penalty[ends_at]
    fates = torch.where(grown.words.size(-1) >= ends_at, AT_LIMIT, GO_ON)
    fates = torch.where(attainable <= kept.score[grown.inputs, -1], DONE, fates)
    fates = torch.where(best == DEAD, STUCK, fates)
    return torch.where(broken, BROKEN, fates)


def _give_up(kept: Kept, live: Live, grown: Live, told: np.ndarray, task: Task) -> None:
    """Keep unfinished what reached the length limit, and what no word may follow if its input has nothing better."""
    if (told == AT_LIMIT).any():
        _keep_unfinished(kept, grown.pick(rows_with(told, AT_LIMIT, task.ids.device)), task)
    if (told == STUCK).any():
        stuck = live.pick(rows_with(told, STUCK, task.ids.device))
        found = kept.score[stuck.inputs, :1] > DEAD
        stuck.logprob = stuck.logprob.masked_fill(found, DEAD)
        _keep_unfinished(kept, stuck, task)


def _keep_unfinished(kept: Kept, left: Live, task: Task) -> None:
    parent = torch.arange(left.logprob.size(1), device=task.ids.device).expand_as(left.logprob)
    score = _score(left, left.logprob, left.words.size(-1), parent, task)
    kept.fill(left.inputs, left.words, left.logprob, score)

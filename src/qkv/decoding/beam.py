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
from functools import partial

import numpy as np
import torch
from torch import Tensor

from qkv.base.errors import ConfigError
from qkv.base.graphs import FunctionRecorder
from qkv.decoding.hypothesis import DEAD, Kept
from qkv.decoding.protocol import Decodable, State
from qkv.decoding.scoring import coverage_penalty
from qkv.decoding.task import AT_LIMIT, DONE, GO_ON, GONE, STUCK, Task, check, to_host, worth_leaving
from qkv.decoding.top import top


@dataclass
class Live:
    """The hypotheses that may still grow, best first."""

    here: np.ndarray  # (N,) which input of the task, on the host
    inputs: Tensor  # (N,) the same on the device
    words: Tensor  # (N, W, T)
    logprob: Tensor  # (N, W)
    covered: Tensor | None = None  # (N, W, S) attention that each source word has received, where coverage counts
    gone: np.ndarray | None = None  # (N,) which inputs are done, and only wait to leave

    def pick(self, rows: np.ndarray) -> "Live":
        """Those of some of the N inputs only."""
        chosen = torch.from_numpy(rows).to(self.inputs.device)
        covered = None if self.covered is None else self.covered[chosen]
        return Live(self.here[rows], self.inputs[chosen], self.words[chosen], self.logprob[chosen], covered)


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
    kept = Kept.empty(len(live.here), task.config.n_best, task.room, task.ids.device)
    bar = np.full(len(live.here), DEAD, dtype=np.float32)  # the score of the last of each input's n best
    numbers, last, recorder = live.inputs, task.begin, FunctionRecorder("a step of beam search")
    for step in range(task.room):
        logits = model.step(last, state)
        live.covered = _cover(live.covered, state.attention)
        found, outlook = recorder(partial(_look, live, task, step), logits, live.logprob, key=task.limits.plain(step))
        best, end = outlook.cpu().numpy()
        check(best, live.here, task, step)
        if (end > DEAD).any():
            _finish(kept, live, found, task)
            found = survivors(found, task)
            best, bar[live.here] = to_host(found.logprob[:, 0], kept.score[live.inputs, -1])
        fates = _fates(best, bar[live.here], live, task)
        grown = grow(live, found, task.config.beam)
        _give_up(kept, live, grown, fates, task)
        if (fates != GO_ON).all():
            break
        rows = torch.add(found.parent[:, : task.config.beam], numbers[: len(live.here), None], alpha=live.logprob.size(1))
        last, live = _go_on(state, grown, rows, fates)
    return kept


def _begin(task: Task) -> Live:
    inputs = torch.arange(task.ids.size(0), device=task.ids.device)
    covered = torch.zeros(task.ids.shape, device=inputs.device)[:, None] if task.config.coverage_penalty else None
    logprob = torch.zeros(len(inputs), 1, device=inputs.device)
    return Live(np.arange(len(inputs)), inputs, inputs.new_empty(len(inputs), 1, 0), logprob, covered)


def _cover(covered: Tensor | None, attention: Tensor | None) -> Tensor | None:
    if covered is None:
        return None
    if attention is None:
        raise ConfigError("coverage_penalty needs a model that tells its attention, and this one does not; set it to 0")
    return covered + attention.view_as(covered)


def _look(live: Live, task: Task, step: int, logits: Tensor, logprob: Tensor) -> tuple[Continuations, Tensor]:
    """Continuations, and for each input the best log-probability and that of the best end, (2, N)."""
    scores = torch.log_softmax(logits, -1, dtype=torch.float32)
    task.limits.apply(scores, step, live.words.flatten(0, 1) if task.limits.need_words else None, live.inputs)
    found = expand(logprob, scores, task.config.beam)
    return found, torch.stack([found.logprob[:, 0], found.logprob.masked_fill(found.word != task.eos, DEAD).amax(-1)])


def expand(logprob: Tensor, scores: Tensor, beam: int) -> Continuations:
    """All continuations that can matter, of hypotheses (N, W) by scores (N * W, V): `beam` of them, and as many that end."""
    size = min(beam + 1, scores.size(1))
    best, words = top(scores, size)
    words, order = words.sort(-1)  # so that the stable sort below leaves equal ones in the order of their ids
    total = logprob[..., None] + best.gather(1, order).view(*logprob.shape, size)
    total = total.masked_fill(logprob[..., None] == DEAD, DEAD)  # a dead hypothesis may have any logits, NaN too
    total, order = total.flatten(1).sort(dim=-1, descending=True, stable=True)
    total, order = total[:, : 2 * beam], order[:, : 2 * beam]
    return Continuations(order // size, words.view(len(total), -1).gather(1, order), total)


def survivors(found: Continuations, task: Task) -> Continuations:
    """Those that have not ended, and dead ones in place of the others."""
    logprob = found.logprob.masked_fill(found.word == task.eos, DEAD)
    logprob, order = logprob.sort(dim=-1, descending=True, stable=True)
    word = found.word.gather(1, order).masked_fill(logprob == DEAD, task.bos)  # a harmless word to step on with
    return Continuations(found.parent.gather(1, order), word, logprob)


def grow(live: Live, found: Continuations, beam: int) -> Live:
    """The live hypotheses of the next step: the first `beam` of those found."""
    parent, word = found.parent[:, :beam], found.word[:, :beam, None]
    words = torch.cat([_of_parents(live.words, parent), word], -1)
    covered = None if live.covered is None else _of_parents(live.covered, parent)
    logprob = found.logprob[:, :beam].clone()  # what was found may lie where the next step's will
    return Live(live.here, live.inputs, words, logprob, covered, live.gone)


def _go_on(state: State, grown: Live, rows: Tensor, fates: np.ndarray) -> tuple[Tensor, Live]:
    """Make the state that of the grown hypotheses, which come from rows (N, W); gives their last words, (N * W,), and them."""
    going, stay = fates == GO_ON, None
    if worth_leaving(going, rows.device):
        grown = grown.pick(np.flatnonzero(going))
        stay = torch.from_numpy(np.flatnonzero(going)).to(rows.device)
        rows = rows[stay]
    elif not going.all():
        grown.gone = ~going
        grown.logprob = grown.logprob.masked_fill(torch.from_numpy(~going).to(rows.device)[:, None], DEAD)
    if hasattr(state, "regroup"):
        state.regroup(rows, stay)
    else:
        state.select(rows.flatten())
    return grown.words[..., -1].flatten(), grown


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


def _fates(best: np.ndarray, bar: np.ndarray, live: Live, task: Task) -> np.ndarray:
    """What becomes of each input, from its best live log-probability and the score to beat."""
    ends_at = task.ends_at[live.here]
    fates = np.where(live.words.size(-1) + 1 >= ends_at, AT_LIMIT, GO_ON)
    fates[best / task.penalty_on_host[ends_at] <= bar] = DONE
    fates[best == DEAD] = STUCK
    if live.gone is not None:
        fates[live.gone] = GONE
    return fates


def _give_up(kept: Kept, live: Live, grown: Live, fates: np.ndarray, task: Task) -> None:
    """Keep unfinished what reached the length limit, and what no word may follow if its input has nothing better."""
    if (fates == AT_LIMIT).any():
        _keep_unfinished(kept, grown.pick(np.flatnonzero(fates == AT_LIMIT)), task)
    if (fates == STUCK).any():
        stuck = live.pick(np.flatnonzero(fates == STUCK))
        found = kept.score[stuck.inputs, :1] > DEAD
        stuck.logprob = stuck.logprob.masked_fill(found, DEAD)
        _keep_unfinished(kept, stuck, task)


def _keep_unfinished(kept: Kept, left: Live, task: Task) -> None:
    parent = torch.arange(left.logprob.size(1), device=task.ids.device).expand_as(left.logprob)
    score = _score(left, left.logprob, left.words.size(-1), parent, task)
    kept.fill(left.inputs, left.words, left.logprob, score)

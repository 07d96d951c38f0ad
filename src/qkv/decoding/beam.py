"""Beam search with exact stopping.

All live hypotheses of an input have the same length, so they compete by log-probability alone; penalties (Wu et al.
2016) rank those that have ended. A hypothesis ends when eos is among the first `beam` of all continuations. The search for an
input is done when no live hypothesis could still overtake the last of the n best that ended: log-probability only falls, so the
upper bound is its present value under the penalty of the maximum length, with full coverage.

Outputs that must contain phrases are far less probable than the live hypotheses that lack them, and that bound would hardly ever
let their search end. It takes the penalty of the length at which a hypothesis could end soonest instead: after its missing
tokens. So this search overlooks a hypothesis that scores best only because it is longer than that, and is exact without a length
penalty alone.

Ties go to the earlier hypothesis, then to the lower token id.

N inputs still searched, W live hypotheses of each (1 at first, then up to `beam`), C continuations, T tokens, S source
length, V vocabulary.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.base.errors import ConfigError
from qkv.base.graphs import FunctionRecorder
from qkv.base.transfer import on_device
from qkv.decoding.banks import expand_with_phrases
from qkv.decoding.batch import (
    AT_LIMIT,
    CONTINUE,
    DONE,
    GONE,
    STUCK,
    DecodingBatch,
    check,
    joined_rows,
    take_places,
    to_host,
    worth_leaving,
)  # fmt: skip
from qkv.decoding.constraints import check_id
from qkv.decoding.hypothesis import DEAD, NONE, BestHypotheses, Continuations, Hypothesis
from qkv.decoding.phrases import PhraseProgress
from qkv.decoding.protocol import Decodable, Joinable, Replaceable
from qkv.decoding.scoring import coverage_penalty
from qkv.decoding.topk import topk


@dataclass
class LiveHypotheses:
    """The hypotheses that may still grow, best first."""

    tokens: Tensor  # (N, W, T), NONE before those of inputs that joined later
    logprob: Tensor  # (N, W)
    covered: Tensor | None = None  # (N, W, S) attention that each source token has received, if coverage is penalised
    progress: PhraseProgress | None = None  # in the phrases that outputs must contain

    def pick(self, rows: np.ndarray) -> "LiveHypotheses":
        """Return the hypotheses of some of the N inputs."""
        chosen = on_device(rows, self.logprob.device)
        covered = None if self.covered is None else self.covered[chosen]
        progress = None if self.progress is None else self.progress.pick(rows)
        return LiveHypotheses(self.tokens[chosen], self.logprob[chosen], covered, progress)

    def widened(self, width: int) -> "LiveHypotheses":
        """Return as many hypotheses for each input, the new ones dead."""
        more = width - self.logprob.size(1)
        return LiveHypotheses(F.pad(self.tokens, (0, 0, 0, more), value=NONE), F.pad(self.logprob, (0, more), value=DEAD))

    def join(self, other: "LiveHypotheses") -> "LiveHypotheses":
        """Return the hypotheses of the inputs of both, equally many of each."""
        tokens = joined_rows(self.tokens, other.tokens, NONE, left=True)
        return LiveHypotheses(tokens, torch.cat([self.logprob, other.logprob]))


class BeamSearch:
    """The search for the n best outputs of each input; others may join between two steps."""

    def __init__(self, model: Decodable, batch: DecodingBatch, ids: Tensor, keep: Tensor):
        """Read the sources of a batch, ids and keep (N, S)."""
        config, device, inputs = batch.config, batch.device, len(batch)
        self.model, self.batch = model, batch
        self.state = model.start(ids, keep, int(batch.limit.max()), attention=config.coverage_penalty > 0)
        covered = torch.zeros(ids.shape, device=device)[:, None] if config.coverage_penalty else None
        progress = None if batch.constraints.phrases is None else batch.constraints.phrases.begin()
        empty = torch.empty(inputs, 1, 0, dtype=torch.long, device=device)
        self.live = LiveHypotheses(empty, torch.zeros(inputs, 1, device=device), covered, progress)
        self.best = BestHypotheses.empty(inputs, config.n_best, int(batch.limit.max()), device)
        self.bar = np.full(inputs, DEAD, dtype=np.float32)  # the score of the last of each input's n best
        self.gone = np.zeros(inputs, dtype=bool)  # which inputs are done and only wait to leave the batch
        self.last = batch.first_tokens  # (N * W,) the newest tokens
        self.recorder = FunctionRecorder("a step of beam search")
        self.logits: Tensor | None = None  # of the last step: memory that is in use tells the recorder that others are new

    def __len__(self) -> int:
        """The number of inputs that are not done."""
        return len(self.batch) - int(self.gone.sum())

    def joins(self, other: object) -> bool:
        """Return whether another search can join this one: its options must be the same."""
        if not isinstance(other, BeamSearch) or not isinstance(self.state, Joinable):
            return False
        searches = (self, other)
        plain = all(search.live.covered is None and search.live.progress is None for search in searches)
        return plain and self.batch.config == other.batch.config

    def join(self, other: "BeamSearch") -> None:
        """Add the inputs of a new search that `joins`, which is not used any more."""
        for search in (self, other):
            search._widen()
        order = None
        if self._has_places:
            order = take_places(self.state, self.gone, other.state, len(other.batch), self.last.device)
        if order is None:
            self._leave()
            self.state.join(other.state)  # type: ignore[attr-defined]
        self.live, self.batch = self.live.join(other.live), self.batch.join(other.batch)
        self.best = self.best.join(other.best)
        self.last = torch.cat([self.last, other.last])
        self.bar, self.gone = np.concatenate([self.bar, other.bar]), np.concatenate([self.gone, other.gone])
        if order is not None:
            self._pick(order)
            width = self.live.logprob.size(1)
            self.last = self.last.view(-1, width)[on_device(order, self.last.device)].flatten()

    def drop(self, owners: Iterable[Any]) -> None:
        """End the search for some owners, of which nobody wants to know any more."""
        unwanted = set(owners)
        self.gone |= np.array([owner in unwanted for owner in self.batch.owners], dtype=bool)

    def step(self) -> list[tuple[Any, list[Hypothesis]]]:
        """Continue all hypotheses by one token; return the best of each input that is done, with its owner."""
        batch, live = self.batch, self.live
        self.logits = logits = self.model.step(self.last, self.state)
        if live.covered is not None:
            if self.state.attention is None:
                raise ConfigError("coverage_penalty needs a model that returns its attention, and this one does not; set it to 0")
            live.covered = live.covered + self.state.attention.view_as(live.covered)
        # The graph reads the logits and the log-probabilities; everything else that it depends on is in the key.
        key = batch.constraints.key(batch.lengths)
        found, outlook = self.recorder(partial(_search_step, live, batch), logits, live.logprob, key=key)
        highest, end = outlook.cpu().numpy()
        check(highest, batch)
        considered = found
        if (end > DEAD).any():
            self._add_finished(found)
            found = survivors(found, batch)
            highest, self.bar = to_host(found.logprob[:, 0], self.best.score[:, -1])
        if batch.trace is not None:
            score = _score(live, considered.logprob, self._next_lengths(), considered.parent, batch)
            batch.trace.add_beam(logits, considered, score, found, batch.config.beam, batch.eos)
        grown = grow(live, found, batch.config.beam)
        status = self._status(highest, grown)
        self._add_unfinished(grown, status)
        batch.lengths[status != GONE] += 1
        return self._advance(grown, found.parent[:, : batch.config.beam], status)

    def _add_finished(self, found: Continuations) -> None:
        """Add the hypotheses that end here: those with eos among the first `beam` continuations."""
        beam = self.batch.config.beam
        parent, token = found.parent[:, :beam], found.token[:, :beam]
        logprob = found.logprob[:, :beam].masked_fill(token != self.batch.eos, DEAD)
        score = _score(self.live, logprob, self._next_lengths(), parent, self.batch)
        self.best.add(_of_parents(self.live.tokens, parent), logprob, score)

    def _next_lengths(self) -> np.ndarray:
        """Return the length of each input's hypotheses after this step."""
        return np.minimum(self.batch.lengths + 1, self.batch.limit)  # an input that is done may wait at its limit

    def _status(self, highest: np.ndarray, grown: LiveHypotheses) -> np.ndarray:
        """Return the status of each input, from its highest live log-probability and the score to beat."""
        batch = self.batch
        status = np.where(batch.lengths + 1 >= batch.limit, AT_LIMIT, CONTINUE)
        bound = highest / batch.penalty[batch.limit]
        if grown.progress is not None and (self.bar > DEAD).any():
            bound = _bound_with_phrases(grown, grown.progress, batch)
        status[bound <= self.bar] = DONE
        status[highest == DEAD] = STUCK
        status[self.gone] = GONE
        return status

    def _add_unfinished(self, grown: LiveHypotheses, status: np.ndarray) -> None:
        """Add hypotheses at the length limit, and those that no token may follow if their input has nothing better."""
        for which, live, length in ((AT_LIMIT, grown, 1), (STUCK, self.live, 0)):
            rows = np.flatnonzero(status == which)
            if not len(rows):
                continue
            some, batch = live.pick(rows), self.batch.pick(rows)
            chosen = on_device(rows, some.logprob.device)
            if which == STUCK:
                some.logprob = some.logprob.masked_fill(self.best.score[chosen, :1] > DEAD, DEAD)
            if some.progress is not None:  # of those, only the ones that lack the fewest phrases
                lacking = on_device((~some.progress.met).sum(-1), some.logprob.device)
                lacking = lacking.masked_fill(some.logprob == DEAD, some.progress.met.shape[-1])
                some.logprob = some.logprob.masked_fill(lacking > lacking.amin(-1, keepdim=True), DEAD)
            parent = torch.arange(some.logprob.size(1), device=chosen.device).expand_as(some.logprob)
            score = _score(some, some.logprob, batch.lengths + length, parent, batch)
            self.best.fill(chosen, some.tokens, some.logprob, score)

    def _advance(self, grown: LiveHypotheses, parent: Tensor, status: np.ndarray) -> list[tuple[Any, list[Hypothesis]]]:
        """Move to the grown hypotheses, which continue those of parent (N, W); return the best of inputs that are done."""
        done = np.flatnonzero((status != CONTINUE) & (status != GONE))
        found = (
            list(zip((self.batch.owners[row] for row in done.tolist()), self.best.hypotheses(done), strict=True))
            if len(done)
            else []
        )
        active, stay = status == CONTINUE, None
        rows = torch.arange(len(active), device=parent.device)[:, None] * self.live.logprob.size(1) + parent
        self.live, self.gone = grown, ~active
        if not active.any():
            return found
        if worth_leaving(active, rows.device):
            kept = np.flatnonzero(active)
            self._pick(kept)
            stay = on_device(kept, rows.device)
            rows = rows[stay]
        elif not active.all():
            ended = on_device(np.flatnonzero(~active), rows.device)
            self.live.logprob = grown.logprob.index_fill(0, ended, DEAD)
            if self._has_places:
                self.state.retire(ended)  # type: ignore[attr-defined]
        self._move(rows, stay)
        self.last = self.live.tokens[..., -1].flatten()
        return found

    @property
    def _has_places(self) -> bool:
        """Whether new inputs can take the places of those that are done: the state must know which rows are one input's."""
        return isinstance(self.state, Replaceable) and hasattr(self.state, "regroup")

    def _pick(self, kept: np.ndarray) -> None:
        """Keep only some inputs, in all but the model's state."""
        self.live, self.batch, self.best = self.live.pick(kept), self.batch.pick(kept), self.best.pick(kept)
        self.bar, self.gone = self.bar[kept], self.gone[kept]

    def _move(self, rows: Tensor, sources: Tensor | None) -> None:
        """Move the model's state to rows (N, W), the hypotheses of these sources, or of all if None."""
        if hasattr(self.state, "regroup"):
            self.state.regroup(rows, sources)
        else:
            self.state.select(rows.flatten())

    def _leave(self) -> None:
        """Take the inputs that are done out of the batch."""
        if not self.gone.any():
            return
        kept, width = np.flatnonzero(~self.gone), self.live.logprob.size(1)
        self._pick(kept)
        stay = on_device(kept, self.last.device)
        self._move(stay[:, None] * width + torch.arange(width, device=stay.device), stay)
        self.last = self.last.view(-1, width)[stay].flatten()

    def _widen(self) -> None:
        """Let each input have as many hypotheses as the beam: an input has one at first."""
        beam, width = self.batch.config.beam, self.live.logprob.size(1)
        if width == beam:
            return
        first = torch.arange(len(self.batch), device=self.last.device)[:, None] * width
        slots = torch.arange(beam, device=self.last.device)
        self._move(first + torch.where(slots < width, slots, 0), None)
        self.live, before = self.live.widened(beam), self.last.view(-1, width)
        self.last = torch.cat([before, before[:, :1].expand(-1, beam - width)], 1).flatten()


def _search_step(live: LiveHypotheses, batch: DecodingBatch, logits: Tensor, logprob: Tensor) -> tuple[Continuations, Tensor]:
    """Return the continuations, and for each input the highest log-probability and that of the best end, (2, N)."""
    logprobs = torch.log_softmax(logits, -1, dtype=torch.float32)
    tokens = live.tokens.flatten(0, 1) if batch.constraints.need_tokens else None
    if live.progress is None:
        batch.constraints.apply(logprobs, batch.lengths, tokens)
        found = expand(logprob, logprobs, batch.config.beam)
    else:
        for token in live.progress.tables.extremes:
            check_id(token, logits.size(1), "a phrase")
        constrain = partial(batch.constraints.apply, lengths=batch.lengths, tokens=tokens)
        forced = batch.constraints.forced(batch.lengths)
        room = batch.limit - batch.lengths - 2  # after this token, and without the end
        found = expand_with_phrases(live.progress, logprob, logprobs, constrain, forced, room, batch.config.beam, batch.eos)
    return found, torch.stack([found.logprob[:, 0], found.logprob.masked_fill(found.token != batch.eos, DEAD).amax(-1)])


def expand(logprob: Tensor, logprobs: Tensor, beam: int) -> Continuations:
    """Return the best continuations of hypotheses (N, W) by next-token logprobs (N * W, V): `beam`, and as many that may end."""
    size = min(beam + 1, logprobs.size(1))
    best, tokens = topk(logprobs, size)
    tokens, order = tokens.sort(-1)  # so that the stable sort below keeps ties in the order of their ids
    total = logprob[..., None] + best.gather(1, order).view(*logprob.shape, size)
    total = total.masked_fill(logprob[..., None] == DEAD, DEAD)  # a dead hypothesis may have any logits, even NaN
    total, order = total.flatten(1).sort(dim=-1, descending=True, stable=True)
    total, order = total[:, : 2 * beam], order[:, : 2 * beam]
    return Continuations(order // size, tokens.view(len(total), -1).gather(1, order), total)


def survivors(found: Continuations, batch: DecodingBatch) -> Continuations:
    """Return the continuations that have not ended, followed by dead ones in place of the others."""
    logprob = found.logprob.masked_fill(found.token == batch.eos, DEAD)
    logprob, order = logprob.sort(dim=-1, descending=True, stable=True)
    token = found.token.gather(1, order).masked_fill(logprob == DEAD, batch.bos)  # a harmless token for the next step
    return Continuations(found.parent.gather(1, order), token, logprob)


def grow(live: LiveHypotheses, found: Continuations, beam: int) -> LiveHypotheses:
    """Return the live hypotheses of the next step: the first `beam` continuations."""
    parent, token = found.parent[:, :beam], found.token[:, :beam, None]
    tokens = torch.cat([_of_parents(live.tokens, parent), token], -1)
    covered = None if live.covered is None else _of_parents(live.covered, parent)
    logprob = found.logprob[:, :beam].clone()  # a graph may write the next step's over them
    progress = None if live.progress is None else live.progress.advance(*torch.stack([parent, token[..., 0]]).cpu().numpy())
    return LiveHypotheses(tokens, logprob, covered, progress)


def _of_parents(values: Tensor, parent: Tensor) -> Tensor:
    """Gather values (N, W, X) of each continuation's parent. parent (N, C) -> (N, C, X)."""
    return values.gather(1, parent[..., None].expand(-1, -1, values.size(-1)))


def _score(live: LiveHypotheses, logprob: Tensor, lengths: np.ndarray, parent: Tensor, batch: DecodingBatch) -> Tensor:
    """Return log-probabilities (N, C) of continuations with the penalties of these lengths (N,)."""
    score = logprob / on_device(batch.penalty[lengths], logprob.device)[:, None]
    if live.covered is None:
        return score
    assert batch.keep is not None
    penalty = coverage_penalty(live.covered, batch.keep[:, None], batch.config.coverage_penalty)
    return score + penalty.gather(1, parent)


def _bound_with_phrases(grown: LiveHypotheses, progress: PhraseProgress, batch: DecodingBatch) -> np.ndarray:
    """Return the score that each input's live hypotheses will hardly exceed, and without phrases cannot. -> (N,)."""
    limit = batch.limit[:, None]
    soonest = np.minimum(batch.lengths[:, None] + 1 + progress.left + 1, limit)
    length = np.where(progress.constrained[:, None], soonest, limit)
    return (grown.logprob.cpu().numpy() / batch.penalty[length]).max(-1)

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

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from qkv.base.errors import ConfigError
from qkv.base.graphs import FunctionRecorder
from qkv.decoding.banks import expand_with_phrases
from qkv.decoding.batch import AT_LIMIT, CONTINUE, DONE, GONE, STUCK, DecodingBatch, check, to_host, worth_leaving
from qkv.decoding.constraints import check_id
from qkv.decoding.hypothesis import DEAD, BestHypotheses, Continuations
from qkv.decoding.phrases import PhraseProgress
from qkv.decoding.protocol import Decodable, DecodingState
from qkv.decoding.scoring import coverage_penalty
from qkv.decoding.topk import topk


@dataclass
class LiveHypotheses:
    """The hypotheses that may still grow, best first."""

    here: np.ndarray  # (N,) their inputs' positions in the batch, on the host
    inputs: Tensor  # (N,) the same on the device
    tokens: Tensor  # (N, W, T)
    logprob: Tensor  # (N, W)
    covered: Tensor | None = None  # (N, W, S) attention that each source token has received, if coverage is penalised
    gone: np.ndarray | None = None  # (N,) which inputs are done and only wait to leave the batch
    progress: PhraseProgress | None = None  # in the phrases that outputs must contain

    def pick(self, rows: np.ndarray) -> "LiveHypotheses":
        """Return the hypotheses of some of the N inputs."""
        chosen = torch.from_numpy(rows).to(self.inputs.device)
        covered = None if self.covered is None else self.covered[chosen]
        progress = None if self.progress is None else self.progress.pick(rows)
        return LiveHypotheses(
            self.here[rows], self.inputs[chosen], self.tokens[chosen], self.logprob[chosen], covered, progress=progress
        )


def beam_search(model: Decodable, batch: DecodingBatch) -> BestHypotheses:
    """Return the n best hypotheses that a beam finds for each input."""
    config = batch.config
    state = model.start(batch.ids, batch.keep, batch.max_length, attention=config.coverage_penalty > 0)
    live = _first_hypotheses(batch)
    best = BestHypotheses.empty(len(live.here), config.n_best, batch.max_length, batch.ids.device)
    bar = np.full(len(live.here), DEAD, dtype=np.float32)  # the score of the last of each input's n best
    numbers, last, recorder = live.inputs, batch.first, FunctionRecorder("a step of beam search")
    for step in range(batch.max_length):
        logits = model.step(last, state)
        if live.covered is not None:
            if state.attention is None:
                raise ConfigError("coverage_penalty needs a model that returns its attention, and this one does not; set it to 0")
            live.covered = live.covered + state.attention.view_as(live.covered)
        # The graph reads the logits and the log-probabilities; everything else that it depends on is in the key.
        found, outlook = recorder(partial(_search_step, live, batch, step), logits, live.logprob, key=batch.constraints.key(step))
        highest, end = outlook.cpu().numpy()
        check(highest, live.here, batch, step)
        if (end > DEAD).any():
            _add_finished(best, live, found, batch)
            found = survivors(found, batch)
            highest, bar[live.here] = to_host(found.logprob[:, 0], best.score[live.inputs, -1])
        grown = grow(live, found, config.beam)
        status = _status(highest, bar[live.here], live, grown, batch)
        _add_unfinished(best, live, grown, status, batch)
        if (status != CONTINUE).all():
            break
        rows = torch.add(found.parent[:, : config.beam], numbers[: len(live.here), None], alpha=live.logprob.size(1))
        last, live = _advance(state, grown, rows, status)
    return best


def _first_hypotheses(batch: DecodingBatch) -> LiveHypotheses:
    """Return one empty hypothesis for each input."""
    inputs = torch.arange(batch.ids.size(0), device=batch.ids.device)
    covered = torch.zeros(batch.ids.shape, device=inputs.device)[:, None] if batch.config.coverage_penalty else None
    logprob = torch.zeros(len(inputs), 1, device=inputs.device)
    progress = None if batch.constraints.phrases is None else batch.constraints.phrases.begin()
    tokens = inputs.new_empty(len(inputs), 1, 0)
    return LiveHypotheses(np.arange(len(inputs)), inputs, tokens, logprob, covered, progress=progress)


def _search_step(
    live: LiveHypotheses, batch: DecodingBatch, step: int, logits: Tensor, logprob: Tensor
) -> tuple[Continuations, Tensor]:
    """Return the continuations, and for each input the highest log-probability and that of the best end, (2, N)."""
    logprobs = torch.log_softmax(logits, -1, dtype=torch.float32)
    tokens = live.tokens.flatten(0, 1) if batch.constraints.need_tokens else None
    if live.progress is None:
        batch.constraints.apply(logprobs, step, tokens, live.inputs)
        found = expand(logprob, logprobs, batch.config.beam)
    else:
        for token in live.progress.tables.extremes:
            check_id(token, logits.size(1), "a phrase")
        constrain = partial(batch.constraints.apply, length=step, tokens=tokens, inputs=live.inputs)
        forced = batch.constraints.forced(step, live.here)
        room = batch.limit[live.here] - step - 2  # after this token, and without the end
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
    return LiveHypotheses(live.here, live.inputs, tokens, logprob, covered, live.gone, progress)


def _advance(state: DecodingState, grown: LiveHypotheses, rows: Tensor, status: np.ndarray) -> tuple[Tensor, LiveHypotheses]:
    """Move the state to the grown hypotheses, which continue rows (N, W); return their last tokens (N * W,) and them."""
    active, stay = status == CONTINUE, None
    if worth_leaving(active, rows.device):
        grown = grown.pick(np.flatnonzero(active))
        stay = torch.from_numpy(np.flatnonzero(active)).to(rows.device)
        rows = rows[stay]
    elif not active.all():
        grown.gone = ~active
        grown.logprob = grown.logprob.masked_fill(torch.from_numpy(~active).to(rows.device)[:, None], DEAD)
    if hasattr(state, "regroup"):
        state.regroup(rows, stay)
    else:
        state.select(rows.flatten())
    return grown.tokens[..., -1].flatten(), grown


def _of_parents(values: Tensor, parent: Tensor) -> Tensor:
    """Gather values (N, W, X) of each continuation's parent. parent (N, C) -> (N, C, X)."""
    return values.gather(1, parent[..., None].expand(-1, -1, values.size(-1)))


def _add_finished(best: BestHypotheses, live: LiveHypotheses, found: Continuations, batch: DecodingBatch) -> None:
    """Add the hypotheses that end here: those with eos among the first `beam` continuations."""
    beam = batch.config.beam
    parent, token = found.parent[:, :beam], found.token[:, :beam]
    logprob = found.logprob[:, :beam].masked_fill(token != batch.eos, DEAD)
    score = _score(live, logprob, live.tokens.size(-1) + 1, parent, batch)
    best.add(live.inputs, _of_parents(live.tokens, parent), logprob, score)


def _score(live: LiveHypotheses, logprob: Tensor, length: int, parent: Tensor, batch: DecodingBatch) -> Tensor:
    """Return log-probabilities (N, C) of continuations of this length with their penalties."""
    score = logprob / batch.penalty[length]
    if live.covered is None:
        return score
    penalty = coverage_penalty(live.covered, batch.keep[live.inputs][:, None], batch.config.coverage_penalty)
    return score + penalty.gather(1, parent)


def _status(
    highest: np.ndarray, bar: np.ndarray, live: LiveHypotheses, grown: LiveHypotheses, batch: DecodingBatch
) -> np.ndarray:
    """Return the status of each input, from its highest live log-probability and the score to beat."""
    limit = batch.limit[live.here]
    status = np.where(live.tokens.size(-1) + 1 >= limit, AT_LIMIT, CONTINUE)
    bound = highest / batch.penalty_on_host[limit]
    if grown.progress is not None and (bar > DEAD).any():
        bound = _bound_with_phrases(grown, grown.progress, batch)
    status[bound <= bar] = DONE
    status[highest == DEAD] = STUCK
    if live.gone is not None:
        status[live.gone] = GONE
    return status


def _bound_with_phrases(grown: LiveHypotheses, progress: PhraseProgress, batch: DecodingBatch) -> np.ndarray:
    """Return the score that each input's live hypotheses will hardly exceed, and without phrases cannot. -> (N,)."""
    limit = batch.limit[grown.here][:, None]
    soonest = np.minimum(grown.tokens.size(-1) + progress.left + 1, limit)
    length = np.where(progress.constrained[:, None], soonest, limit)
    return (grown.logprob.cpu().numpy() / batch.penalty_on_host[length]).max(-1)


def _add_unfinished(
    best: BestHypotheses, live: LiveHypotheses, grown: LiveHypotheses, status: np.ndarray, batch: DecodingBatch
) -> None:
    """Add hypotheses at the length limit, and those that no token may follow if their input has nothing better."""
    left = []
    if (status == AT_LIMIT).any():
        left.append(grown.pick(np.flatnonzero(status == AT_LIMIT)))
    if (status == STUCK).any():
        stuck = live.pick(np.flatnonzero(status == STUCK))
        stuck.logprob = stuck.logprob.masked_fill(best.score[stuck.inputs, :1] > DEAD, DEAD)
        left.append(stuck)
    for some in left:
        if some.progress is not None:  # of those, only the ones that lack the fewest phrases
            lacking = torch.from_numpy((~some.progress.met).sum(-1)).to(some.logprob.device)
            lacking = lacking.masked_fill(some.logprob == DEAD, some.progress.met.shape[-1])
            some.logprob = some.logprob.masked_fill(lacking > lacking.amin(-1, keepdim=True), DEAD)
        parent = torch.arange(some.logprob.size(1), device=batch.ids.device).expand_as(some.logprob)
        score = _score(some, some.logprob, some.tokens.size(-1), parent, batch)
        best.fill(some.inputs, some.tokens, some.logprob, score)

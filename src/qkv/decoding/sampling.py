"""One word at a time, never taken back: greedy, and sampling with temperature, top-k and top-p (Holtzman et al. 2020).

Random numbers come from (seed, number of the input), so a sample does not depend on the batch around it.
R hypotheses still going, B inputs, V vocabulary.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from qkv.base.seeds import rng_at
from qkv.decoding.config import DecodingConfig
from qkv.decoding.hypothesis import DEAD, NONE, Kept
from qkv.decoding.limits import Repeats
from qkv.decoding.protocol import Decodable
from qkv.decoding.task import Task, check, to_host, worth_leaving
from qkv.decoding.top import highest

Choose = Callable[[Tensor, Tensor, int], Tensor]  # scores (R, V), rows (R,), step -> words (R,)


def greedy(model: Decodable, task: Task) -> Kept:
    """The most probable next word, until it is the end; of equal words the lowest id."""
    return _walk(model, task, 1, lambda scores, rows, step: highest(scores))


def sample(model: Decodable, task: Task) -> Kept:
    """n_best independent texts for each input, drawn from the model's distribution as the config shapes it."""
    uniform = _uniform(task).to(task.ids.device)
    return _walk(model, task, task.config.n_best, lambda scores, rows, step: draw(scores, uniform[rows, step], task.config))


def draw(scores: Tensor, uniform: Tensor, config: DecodingConfig) -> Tensor:
    """One word for each row of log-probabilities (R, V), where `uniform` (R,) falls in the cumulative distribution."""
    size = min(config.top_k or scores.size(1), scores.size(1))
    if size < scores.size(1):
        ordered, words = scores.topk(size)
    elif config.top_p < 1:
        ordered, words = scores.sort(dim=-1, descending=True, stable=True)
    else:  # the whole distribution needs no order
        ordered, words = scores, torch.arange(scores.size(1), device=scores.device).expand_as(scores)
    share = torch.softmax(ordered.double() / config.temperature, -1)
    if config.top_p < 1:
        share = share.masked_fill(share.cumsum(-1) - share >= config.top_p, 0)
    edges = share.cumsum(-1)
    # float32 stays at least 2**-24 below 1, so the target stays below the last edge, and a share of 0 is never hit.
    position = torch.searchsorted(edges, uniform.double()[:, None] * edges[:, -1:], right=True)
    return words.gather(1, position.clamp(max=size - 1))[:, 0]


def _uniform(task: Task) -> Tensor:
    """Numbers in [0, 1) for each sample of each input, (B * n_best, room); sample i is the same whatever n_best is."""
    samples = task.config.n_best
    numbers = torch.zeros(len(task.index), samples, task.room)
    for row, index, steps in zip(numbers, task.index, task.longest, strict=True):
        drawn = rng_at(task.seed, "sample", index).random((samples, steps), dtype="float32")
        row[:, :steps] = torch.from_numpy(drawn)
    return numbers.flatten(0, 1)


def _walk(model: Decodable, task: Task, copies: int, choose: Choose) -> Kept:
    """Let `choose` say each next word of so many copies of each input, until all have ended."""
    device = task.ids.device
    state = model.start(task.ids, task.keep, task.room)
    walk = Walk(task, copies)
    rows = torch.arange(len(walk.origin), device=device)
    inputs = rows // copies
    if copies > 1:
        state.select(inputs)
    last, said = task.begin[inputs], rows[:, None][:, :0] if task.limits.need_words else None
    repeats: Repeats | None = None
    for step in range(task.room):
        logits = model.step(last, state)
        if task.config.repetition_penalty != 1:
            repeats = repeats or Repeats(task.config.repetition_penalty, task.said(inputs), logits.size(1), device)
            logits = repeats.apply(logits)
        scores = torch.log_softmax(logits, -1, dtype=torch.float32)
        sound = scores[:, 0].clone()  # one logit that is not finite makes the whole row NaN
        task.limits.apply(scores, step, said, inputs)
        last = choose(scores, rows, step)
        going = walk.note(step, *to_host(last, scores.gather(1, last[:, None])[:, 0], sound))
        said = None if said is None else torch.cat([said, last[:, None]], 1)
        if repeats is not None:
            repeats.add(last)
        if not going.any():
            break
        if worth_leaving(going, device):
            stay = torch.from_numpy(walk.leave()).to(device)
            rows, inputs, last, said = rows[stay], inputs[stay], last[stay], None if said is None else said[stay]
            state.select(stay)
            if repeats is not None:
                repeats.select(stay)
    return walk.kept()


class Walk:
    """What has been said, kept on the host: the words come there anyway, to see which are the end."""

    def __init__(self, task: Task, copies: int):
        self.task = task
        self.origin = np.arange(task.ids.size(0)).repeat(copies)  # the input of each row
        self.words = np.full((len(self.origin), task.room), NONE)
        self.logprob = np.zeros(len(self.origin), dtype=np.float32)
        self.here = np.arange(len(self.origin))  # (R,) the rows still in the batch
        self.going = np.ones(len(self.origin), dtype=bool)  # (R,) those of them that have not ended

    def note(self, step: int, words: np.ndarray, gain: np.ndarray, sound: np.ndarray) -> np.ndarray:
        """Note the next word of each row and its log-probability; gives the rows that go on, (R,)."""
        inputs = self.origin[self.here]
        check(sound[self.going], inputs[self.going], self.task, step)
        said = self.going & (gain > DEAD)  # where no word is allowed, none was said, and it ends there
        self.words[self.here[said], step] = words[said]
        self.logprob[self.here[said]] += gain[said]
        self.going = said & (words != self.task.eos) & (step + 1 < self.task.ends_at[inputs])
        if self.task.listener is not None:
            for position in np.flatnonzero(said & (words != self.task.eos)):
                self.going[position] &= not self.task.listener(int(self.here[position]), int(words[position]))
        return self.going

    def leave(self) -> np.ndarray:
        """Let the rows that have ended leave the batch; gives the places of the others."""
        stay = np.flatnonzero(self.going)
        self.here, self.going = self.here[stay], self.going[stay]
        return stay

    def kept(self) -> Kept:
        """All rows as the hypotheses of their inputs, the end taken off."""
        ended = self.words == self.task.eos
        score = self.logprob / self.task.penalty_on_host[(self.words != NONE).sum(-1)]
        columns = (np.where(ended, NONE, self.words), self.logprob, score, ended.any(-1))
        shape = (self.task.ids.size(0), -1)
        words, logprob, score, finished = (torch.from_numpy(column) for column in columns)
        return Kept(words.view(*shape, self.task.room), logprob.view(shape), score.view(shape), finished.view(shape))

"""One word at a time, never taken back: greedy, and sampling with temperature, top-k and top-p.

Random numbers come from (seed, number of the input), so a sample does not depend on the batch around it.
R hypotheses still going, B inputs, V vocabulary.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from qkv.base.seeds import rng_at
from qkv.decoding.config import DecodingConfig
from qkv.decoding.hypothesis import DEAD, NONE, Kept
from qkv.decoding.protocol import Decodable
from qkv.decoding.task import AT_LIMIT, BROKEN, DONE, GO_ON, STUCK, Task, logprobs, read_fates, rows_with

Choose = Callable[[Tensor, Tensor, int], Tensor]  # scores (R, V), rows (R,), step -> words (R,)


def greedy(model: Decodable, task: Task) -> Kept:
    """The most probable next word, until it is the end; of equal words the lowest id."""
    return _walk(model, task, 1, lambda scores, rows, step: scores.argmax(-1))


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
    place = torch.searchsorted(edges, uniform.double()[:, None] * edges[:, -1:], right=True)
    return words.gather(1, place.clamp(max=size - 1))[:, 0]


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
    origin = torch.arange(task.ids.size(0), device=device).repeat_interleave(copies)
    if copies > 1:
        state.select(origin)
    words = torch.full((len(origin), task.room), NONE, device=device)
    logprob = torch.zeros(len(origin), device=device)
    rows, last = torch.arange(len(origin), device=device), torch.full_like(origin, task.bos)
    for step in range(task.room):
        scores, broken = logprobs(model.step(last, state))
        inputs = origin[rows]
        task.limits.apply(scores, words[rows, :step], inputs)
        last = choose(scores, rows, step)
        gain = scores.gather(1, last[:, None])[:, 0]
        stuck = gain == DEAD
        words[rows, step] = torch.where(stuck, NONE, last)
        logprob[rows] += torch.where(stuck, 0, gain)
        fates = _fates(last == task.eos, step + 1 >= task.ends_at[inputs], stuck, broken)
        told = read_fates(fates, inputs, task, step)
        if (told != GO_ON).any():
            stay = rows_with(told, GO_ON, device)
            rows, last = rows[stay], last[stay]
            if not len(rows):
                break
            state.select(stay)
    return _gathered(words, logprob, task)


def _fates(ended: Tensor, at_limit: Tensor, stuck: Tensor, broken: Tensor) -> Tensor:
    fates = torch.where(at_limit, AT_LIMIT, GO_ON)
    fates = torch.where(ended, DONE, fates)
    fates = torch.where(stuck, STUCK, fates)
    return torch.where(broken, BROKEN, fates)


def _gathered(words: Tensor, logprob: Tensor, task: Task) -> Kept:
    """All rows as the hypotheses of their inputs, the end taken off."""
    length = (words != NONE).sum(-1)
    ended = words == task.eos
    score = logprob / task.penalty[length]
    shape = (task.ids.size(0), -1)
    return Kept(
        words.masked_fill(ended, NONE).view(*shape, task.room),
        logprob.view(shape),
        score.view(shape),
        ended.any(-1).view(shape),
    )

"""Decoding that never takes a token back: greedy, and sampling with temperature, top-k and top-p (Holtzman et al. 2020).

Random numbers come from (seed, number of the input), so a sample does not depend on the batch around it.
N outputs, V vocabulary.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from qkv.base.graphs import FunctionRecorder
from qkv.base.hardware import widest_float
from qkv.base.seeds import rng_at
from qkv.base.transfer import on_device
from qkv.decoding.batch import DecodingBatch, check, joined_rows, take_places, worth_leaving
from qkv.decoding.config import DecodingConfig
from qkv.decoding.constraints import RepetitionPenalty
from qkv.decoding.hypothesis import DEAD, NONE, Hypothesis
from qkv.decoding.logprobs import TokenLogprob, token_logprobs
from qkv.decoding.penalties import count_tokens, counts_of, penalise
from qkv.decoding.protocol import Decodable, Joinable, ReadsPieces, Replaceable
from qkv.decoding.topk import argmax


class SamplingOptions(NamedTuple):
    """How the next token is chosen; outputs of one batch may differ in it."""

    sampling: bool
    temperature: float
    top_k: int
    top_p: float
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0

    @property
    def penalises(self) -> bool:
        """Whether tokens that were generated become less or more likely."""
        return self.frequency_penalty != 0 or self.presence_penalty != 0


def sampling_options(config: DecodingConfig) -> SamplingOptions:
    """Return the part of a config in which outputs of one batch may differ."""
    penalties = config.frequency_penalty, config.presence_penalty
    return SamplingOptions(config.sampling, config.temperature, config.top_k, config.top_p, *penalties)


def draw(logprobs: Tensor, uniform: Tensor, options: SamplingOptions | DecodingConfig) -> Tensor:
    """Return the token of each row of log-probabilities (N, V) at which the cumulative distribution passes `uniform` (N,)."""
    probability, tokens = drawn_from(logprobs, options)
    edges = probability.cumsum(-1)
    # float32 stays at least 2**-24 below 1, so the target stays below the last edge, and a probability of 0 is never hit.
    position = torch.searchsorted(edges, uniform.to(edges.dtype)[:, None] * edges[:, -1:], right=True)
    return tokens.gather(1, position.clamp(max=tokens.size(1) - 1))[:, 0]


def drawn_from(logprobs: Tensor, options: SamplingOptions | DecodingConfig) -> tuple[Tensor, Tensor]:
    """Return the weights with which tokens of each row (N, V) are drawn, and these tokens. -> (N, C) each."""
    size = min(options.top_k or logprobs.size(1), logprobs.size(1))
    if size < logprobs.size(1):
        ordered, tokens = logprobs.topk(size)
    elif options.top_p < 1:
        ordered, tokens = logprobs.sort(dim=-1, descending=True, stable=True)
    else:  # the whole distribution needs no order
        ordered, tokens = logprobs, torch.arange(logprobs.size(1), device=logprobs.device).expand_as(logprobs)
    probability = torch.softmax(ordered.to(widest_float(ordered.device)) / options.temperature, -1)
    if options.top_p < 1:
        probability = probability.masked_fill(probability.cumsum(-1) - probability >= options.top_p, 0)
    return probability, tokens


class TokenSearch:
    """Outputs that grow by one token a step: the most probable one, or one that is drawn. Others may join between two steps."""

    def __init__(self, model: Decodable, batch: DecodingBatch, ids: Tensor, keep: Tensor, copies: int = 1):
        """Start `copies` outputs of each input, ids and keep (N, S).

        Where there are several, owners are their numbers, input by input.
        """
        self.model, self.state = model, model.start(ids, keep, int(batch.limit.max()))
        # Protocols are slow to ask.
        self.unread = self.state if isinstance(self.state, ReadsPieces) else None
        self.replaceable = self.state if isinstance(self.state, Replaceable) else None
        if copies > 1:
            rows = np.arange(len(batch)).repeat(copies)
            batch = batch.pick(rows)
            batch.owners = range(len(rows))
            self.state.select(on_device(rows, batch.device))
        self.batch, self.last = batch, batch.first_tokens  # last (N,): the newest token of each output
        self.options = [sampling_options(batch.config)] * len(batch)
        self.groups = _rows_by_options(self.options)
        self.uniform = _uniform_numbers(batch, copies)  # (N, steps), on the host
        self.outputs: list[list[int]] = [[] for _ in range(len(batch))]
        self.logprob = np.zeros(len(batch), dtype=np.float32)
        self.active = np.ones(len(batch), dtype=bool)  # (N,) those that have not ended
        self.tokens = self.last[:, None][:, :0] if batch.constraints.need_tokens else None  # (N, T), NONE before short outputs
        self.repetition: RepetitionPenalty | None = None  # made when the vocabulary is known
        self.counts: Tensor | None = None  # (N, V) of the tokens of each output; None while no penalty needs them
        self.recorder = FunctionRecorder("the choice of tokens")
        self.logits: Tensor | None = None  # of the last step: memory that is in use tells the recorder that others are new

    def __len__(self) -> int:
        """The number of outputs that have not ended."""
        return int(self.active.sum())

    def joins(self, other: object) -> bool:
        """Return whether another search can join this one: only the choice of tokens may differ."""
        if not isinstance(other, TokenSearch) or not isinstance(self.state, Joinable):
            return False
        return without_sampling(self.batch.config) == without_sampling(other.batch.config)

    def join(self, other: "TokenSearch") -> None:
        """Add the outputs of a new search that `joins`, which is not used any more."""
        order = take_places(self.state, ~self.active, other.state, len(other.batch), self.last.device)
        if order is None:
            self._leave()
            self.state.join(other.state)  # type: ignore[attr-defined]
        if self.repetition is not None:
            self.repetition.join(other._repetition(self.repetition.seen.size(1)))
        self.batch = self.batch.join(other.batch)
        self.last = torch.cat([self.last, other.last])
        self.options = [*self.options, *other.options]
        self.groups = _rows_by_options(self.options)
        self.uniform = joined_rows(torch.from_numpy(self.uniform), torch.from_numpy(other.uniform)).numpy()
        self.outputs += other.outputs
        self.counts = None  # counted again from all outputs
        self.logprob = np.concatenate([self.logprob, other.logprob])
        self.active = np.concatenate([self.active, other.active])
        if self.tokens is not None and other.tokens is not None:
            self.tokens = joined_rows(self.tokens, other.tokens, NONE, left=True)
        if order is not None:
            self._pick(order)

    def drop(self, owners: Iterable[Any]) -> None:
        """End the outputs of some owners, of which nobody wants to know any more."""
        gone = set(owners)
        self.active &= np.array([owner not in gone for owner in self.batch.owners], dtype=bool)

    def step(self) -> list[tuple[Any, list[Hypothesis]]]:
        """Add a token to each output, or read a piece of long inputs; return the outputs that ended, with their owners."""
        if self.unread is not None and not self.unread.read_piece():
            return []
        batch, groups = self.batch, self.groups
        self.logits = own = self.model.step(self.last, self.state)
        logits = self._penalised(own)
        # The graph reads the logits and the numbers; everything else that it depends on is in the key.
        constraints = None if logits is not own or len(groups) > 1 else batch.constraints.key(batch.lengths)
        key = None if constraints is None else (constraints, self.options[0])
        choice = partial(_choose, batch, self.tokens, groups)
        self.last, found = self.recorder(choice, logits, self._numbers(), key=key)
        details: Sequence[TokenLogprob | None] = ()
        if batch.records is not None:
            wanted = [None if record is None else record.alternatives for record in batch.records]
            details = token_logprobs(own, self.last, wanted)
        tokens, logprob, whole = found.cpu().numpy()
        if batch.trace is not None and logprob[0] > DEAD:
            total = self.logprob[0] + logprob[0]
            drawn = drawn_from(_allowed(batch, self.tokens, logits)[0], self.options[0]) if self.options[0].sampling else None
            batch.trace.add_token(own, self.last, float(total), float(total / batch.penalty[batch.lengths[0] + 1]), drawn)
        ended = self._add(tokens, logprob, whole, details)
        if self.tokens is not None:
            self.tokens = torch.cat([self.tokens, self.last[:, None]], 1)
        if self.repetition is not None:
            self.repetition.add(self.last)
        if self.counts is not None:
            count_tokens(self.counts, self.last)
        if self.active.any() and worth_leaving(self.active, self.last.device):
            self._leave()
        elif ended and self.replaceable is not None:
            self.replaceable.retire(on_device(np.flatnonzero(~self.active), self.last.device))
        return ended

    def _penalised(self, logits: Tensor) -> Tensor:
        """Return logits (N, V) with the penalties of the tokens that each output has; the same tensor where there are none."""
        if self.batch.config.repetition_penalty != 1:
            self.repetition = self.repetition or self._repetition(logits.size(1))
            logits = self.repetition.apply(logits)
        if not any(options.penalises for options in self.options):
            return logits
        if self.counts is None:
            self.counts = counts_of(self.outputs, logits.size(1), logits.device)
        penalties = [(options.frequency_penalty, options.presence_penalty) for options in self.options]
        return penalise(logits, self.counts, *torch.tensor(penalties, device=logits.device).T)

    def _numbers(self) -> Tensor:
        """Return the random number of each output's next token, (N,); (N, 0) if none samples."""
        if not self.uniform.shape[1]:
            return on_device(self.uniform, self.last.device)
        lengths = np.minimum(self.batch.lengths, self.uniform.shape[1] - 1)  # an output that has ended waits to leave
        return on_device(self.uniform[np.arange(len(lengths)), lengths], self.last.device)

    def _add(
        self, tokens: np.ndarray, logprob: np.ndarray, sound: np.ndarray, details: Sequence[TokenLogprob | None]
    ) -> list[tuple[Any, list[Hypothesis]]]:
        """Add the next token of each output and its log-probability; return the outputs that end.

        `details` are the log-probabilities to record, if any output wants them.
        """
        batch, before = self.batch, self.active
        check(sound, batch, before)
        added = before & (logprob > DEAD)  # an output ends where no token is allowed
        self.logprob[added] += logprob[added]
        batch.lengths[added] += 1
        at_end = added & (tokens == batch.eos)
        self.active = added & ~at_end & (batch.lengths < batch.limit)
        for row in np.flatnonzero(added & ~at_end).tolist():
            token = int(tokens[row])
            self.outputs[row].append(token)
            if details and (record := batch.all_records[row]) is not None and (detail := details[row]) is not None:
                record.tokens.append(detail)
            if batch.on_token is not None:
                self.active[row] &= not batch.on_token(batch.owners[row], token)
        ended = np.flatnonzero(before & ~self.active).tolist()
        return [(batch.owners[row], [self._hypothesis(row, bool(at_end[row]))]) for row in ended]

    def _hypothesis(self, row: int, finished: bool) -> Hypothesis:
        logprob = self.logprob[row]
        return Hypothesis(
            self.outputs[row], float(logprob / self.batch.penalty[self.batch.lengths[row]]), float(logprob), finished
        )

    def _leave(self) -> None:
        """Take the outputs that have ended out of the batch."""
        if not self.active.all():
            stay = np.flatnonzero(self.active)
            self.state.select(on_device(stay, self.last.device))
            self._pick(stay)

    def _pick(self, stay: np.ndarray) -> None:
        """Keep only some outputs, in this order, in all but the model's state."""
        rows = on_device(stay, self.last.device)
        self.batch, self.last, self.uniform = self.batch.pick(stay), self.last[rows], self.uniform[stay]
        self.options, self.outputs = [self.options[row] for row in stay], [self.outputs[row] for row in stay]
        self.groups = _rows_by_options(self.options)
        self.logprob, self.active = self.logprob[stay], self.active[stay]
        self.tokens = None if self.tokens is None else self.tokens[rows]
        self.counts = None if self.counts is None else self.counts[rows]
        if self.repetition is not None:
            self.repetition.select(rows)

    def _repetition(self, vocabulary: int) -> RepetitionPenalty:
        assert self.batch.prompts is not None
        previous = [[*prompt, *output] for prompt, output in zip(self.batch.prompts, self.outputs, strict=True)]
        return RepetitionPenalty(self.batch.config.repetition_penalty, previous, vocabulary, self.last.device)


def _choose(
    batch: DecodingBatch, tokens: Tensor | None, groups: Mapping[SamplingOptions, list[int]], logits: Tensor, numbers: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the next token of each output, (N,), by its own options; and tokens, log-probabilities and a check, (3, N).

    Ties of greedy search go to the lowest id. A check is NaN if some logit of the row is not finite.
    """
    logprobs, sound = _allowed(batch, tokens, logits)
    if len(groups) == 1:
        chosen = _next_tokens(logprobs, numbers, next(iter(groups)))
    else:
        chosen = torch.empty(len(logits), dtype=torch.long, device=logits.device)
        for options, members in groups.items():
            rows = torch.tensor(members, device=chosen.device)
            chosen[rows] = _next_tokens(logprobs[rows], numbers[rows], options)
    # All numbers in one tensor: copying it is a step's only wait for the device.
    return chosen, torch.stack([chosen.float(), logprobs.gather(1, chosen[:, None])[:, 0], sound])


def _allowed(batch: DecodingBatch, tokens: Tensor | None, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return log-probabilities (N, V) without those of tokens that may not follow, and the check of each row, (N,)."""
    logprobs = torch.log_softmax(logits, -1, dtype=torch.float32)
    sound = logprobs[:, 0].clone()  # one logit that is not finite makes the whole row NaN
    batch.constraints.apply(logprobs, batch.lengths, tokens)
    return logprobs, sound


def _next_tokens(logprobs: Tensor, numbers: Tensor, options: SamplingOptions) -> Tensor:
    """Return the most probable token of each row (N, V), or the one drawn by `numbers` (N,)."""
    return draw(logprobs, numbers, options) if options.sampling else argmax(logprobs)


def _rows_by_options(options: Sequence[SamplingOptions]) -> dict[SamplingOptions, list[int]]:
    """Return the rows of outputs with equal options."""
    groups: dict[SamplingOptions, list[int]] = {}
    for row, one in enumerate(options):
        groups.setdefault(one, []).append(row)
    return groups


def _uniform_numbers(batch: DecodingBatch, copies: int) -> np.ndarray:
    """Return a number in [0, 1) for each step of each output, (N, steps); sample i does not depend on how many there are."""
    if not batch.config.sampling:
        return np.zeros((len(batch), 0), dtype=np.float32)
    numbers = np.zeros((len(batch), int(batch.limit.max())), dtype=np.float32)
    for first in range(0, len(batch), copies):
        steps = int(batch.limit[first])
        drawn = rng_at(batch.seed, "sample", batch.numbers[first]).random((copies, steps), dtype="float32")
        numbers[first : first + copies, :steps] = drawn
    return numbers


def without_sampling(config: DecodingConfig) -> DecodingConfig:
    """Return a config without what `SamplingOptions` holds, and without the seed."""
    plain = {"sampling": False, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 0}
    return config.model_copy(update={**plain, "frequency_penalty": 0.0, "presence_penalty": 0.0})

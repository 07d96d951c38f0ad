"""Decoding that never takes a token back: greedy, and sampling with temperature, top-k and top-p (Holtzman et al. 2020).

Random numbers come from (seed, number of the input), so a sample does not depend on the batch around it.
R hypotheses still active, B inputs, V vocabulary.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from qkv.base.seeds import rng_at
from qkv.decoding.batch import DecodingBatch, check, to_host, worth_leaving
from qkv.decoding.config import DecodingConfig
from qkv.decoding.constraints import RepetitionPenalty
from qkv.decoding.hypothesis import DEAD, NONE, BestHypotheses
from qkv.decoding.logprobs import TokenLogprob, token_logprobs
from qkv.decoding.penalties import count_tokens, empty_counts, penalise
from qkv.decoding.protocol import Decodable
from qkv.decoding.topk import argmax

Choose = Callable[[Tensor, Tensor, int], Tensor]  # log-probabilities (R, V), rows (R,), step -> tokens (R,)


def greedy(model: Decodable, batch: DecodingBatch) -> BestHypotheses:
    """Take the most probable token at each step; ties go to the lowest id."""
    return _generate(model, batch, 1, lambda logprobs, rows, step: argmax(logprobs))


def sample(model: Decodable, batch: DecodingBatch) -> BestHypotheses:
    """Draw n_best independent texts for each input from the model's distribution, shaped by the config."""
    samples = batch.config.n_best
    numbers = torch.zeros(len(batch.index), samples, batch.max_length)  # in [0, 1); sample i does not depend on n_best
    for row, index, steps in zip(numbers, batch.index, batch.max_lengths, strict=True):
        drawn = rng_at(batch.seed, "sample", index).random((samples, steps), dtype="float32")
        row[:, :steps] = torch.from_numpy(drawn)
    uniform = numbers.flatten(0, 1).to(batch.ids.device)
    return _generate(model, batch, samples, lambda logprobs, rows, step: draw(logprobs, uniform[rows, step], batch.config))


def draw(logprobs: Tensor, uniform: Tensor, config: DecodingConfig) -> Tensor:
    """Return the token of each row of log-probabilities (R, V) at which the cumulative distribution passes `uniform` (R,)."""
    size = min(config.top_k or logprobs.size(1), logprobs.size(1))
    if size < logprobs.size(1):
        ordered, tokens = logprobs.topk(size)
    elif config.top_p < 1:
        ordered, tokens = logprobs.sort(dim=-1, descending=True, stable=True)
    else:  # the whole distribution needs no order
        ordered, tokens = logprobs, torch.arange(logprobs.size(1), device=logprobs.device).expand_as(logprobs)
    probability = torch.softmax(ordered.double() / config.temperature, -1)
    if config.top_p < 1:
        probability = probability.masked_fill(probability.cumsum(-1) - probability >= config.top_p, 0)
    edges = probability.cumsum(-1)
    # float32 stays at least 2**-24 below 1, so the target stays below the last edge, and a probability of 0 is never hit.
    position = torch.searchsorted(edges, uniform.double()[:, None] * edges[:, -1:], right=True)
    return tokens.gather(1, position.clamp(max=size - 1))[:, 0]


def _generate(model: Decodable, batch: DecodingBatch, copies: int, choose: Choose) -> BestHypotheses:
    """Generate `copies` outputs for each input until all have ended; `choose` picks each next token."""
    device = batch.ids.device
    state = model.start(batch.ids, batch.keep, batch.max_length)
    outputs = Outputs(batch, copies)
    rows = torch.arange(len(outputs.origin), device=device)
    inputs = rows // copies
    if copies > 1:
        state.select(inputs)
    last, tokens = batch.first[inputs], rows[:, None][:, :0] if batch.constraints.need_tokens else None
    repetition: RepetitionPenalty | None = None
    frequency, presence = (
        torch.full((len(rows),), value, device=device)
        for value in (batch.config.frequency_penalty, batch.config.presence_penalty)
    )
    counts: Tensor | None = None  # of the tokens that each row has generated
    for step in range(batch.max_length):
        logits = own = model.step(last, state)
        if batch.config.repetition_penalty != 1:
            repetition = repetition or RepetitionPenalty(
                batch.config.repetition_penalty, batch.previous_tokens(inputs), logits.size(1), device
            )
            logits = repetition.apply(logits)
        if batch.config.frequency_penalty or batch.config.presence_penalty:
            counts = empty_counts(len(rows), logits.size(1), device) if counts is None else counts
            logits = penalise(logits, counts, frequency, presence)
        logprobs = torch.log_softmax(logits, -1, dtype=torch.float32)
        sound = logprobs[:, 0].clone()  # one logit that is not finite makes the whole row NaN
        batch.constraints.apply(logprobs, step, tokens, inputs)
        last = choose(logprobs, rows, step)
        details = token_logprobs(own, last, outputs.alternatives()) if batch.records is not None else ()
        taken, logprob, whole = to_host(last, logprobs.gather(1, last[:, None])[:, 0], sound)
        active = outputs.add(step, taken, logprob, whole, details)
        tokens = None if tokens is None else torch.cat([tokens, last[:, None]], 1)
        if repetition is not None:
            repetition.add(last)
        if counts is not None:
            count_tokens(counts, last)
        if not active.any():
            break
        if worth_leaving(active, device):
            stay = torch.from_numpy(outputs.drop_ended()).to(device)
            rows, inputs, last, tokens = rows[stay], inputs[stay], last[stay], None if tokens is None else tokens[stay]
            state.select(stay)
            if repetition is not None:
                repetition.select(stay)
            frequency, presence, counts = frequency[stay], presence[stay], None if counts is None else counts[stay]
    return outputs.hypotheses()


class Outputs:
    """The tokens generated so far, on the host, which reads them anyway to see which outputs have ended."""

    def __init__(self, batch: DecodingBatch, copies: int):
        self.batch = batch
        self.origin = np.arange(batch.ids.size(0)).repeat(copies)  # the input of each row
        self.tokens = np.full((len(self.origin), batch.max_length), NONE)
        self.logprob = np.zeros(len(self.origin), dtype=np.float32)
        self.here = np.arange(len(self.origin))  # (R,) the rows still in the batch
        self.active = np.ones(len(self.origin), dtype=bool)  # (R,) those of them that have not ended

    def alternatives(self) -> list[int | None]:
        """Return how many alternatives to record for the next token of each row in the batch; None for no record."""
        records = [self.batch.records[row] for row in self.here.tolist()] if self.batch.records is not None else []
        return [None if record is None else record.alternatives for record in records]

    def add(
        self,
        step: int,
        tokens: np.ndarray,
        logprob: np.ndarray,
        sound: np.ndarray,
        details: Sequence[TokenLogprob | None] = (),
    ) -> np.ndarray:
        """Add the next token of each row and its log-probability; return which rows are still active, (R,).

        `details` are the log-probabilities to record, if any are wanted.
        """
        inputs = self.origin[self.here]
        check(sound[self.active], inputs[self.active], self.batch, step)
        added = self.active & (logprob > DEAD)  # a row ends where no token is allowed
        self.tokens[self.here[added], step] = tokens[added]
        self.logprob[self.here[added]] += logprob[added]
        self.active = added & (tokens != self.batch.eos) & (step + 1 < self.batch.limit[inputs])
        for row, detail, is_text in zip(self.here.tolist(), details, added & (tokens != self.batch.eos), strict=False):
            record = self.batch.records[row] if self.batch.records is not None else None
            if record is not None and detail is not None and is_text:
                record.tokens.append(detail)
        if self.batch.on_token is not None:
            for position in np.flatnonzero(added & (tokens != self.batch.eos)):
                self.active[position] &= not self.batch.on_token(int(self.here[position]), int(tokens[position]))
        return self.active

    def drop_ended(self) -> np.ndarray:
        """Drop rows that have ended from the batch; return the positions of the others."""
        stay = np.flatnonzero(self.active)
        self.here, self.active = self.here[stay], self.active[stay]
        return stay

    def hypotheses(self) -> BestHypotheses:
        """Return all rows as hypotheses of their inputs, without the end."""
        ended = self.tokens == self.batch.eos
        score = self.logprob / self.batch.penalty_on_host[(self.tokens != NONE).sum(-1)]
        columns = (np.where(ended, NONE, self.tokens), self.logprob, score, ended.any(-1))
        shape = (self.batch.ids.size(0), -1)
        tokens, logprob, score, finished = (torch.from_numpy(column) for column in columns)
        return BestHypotheses(
            tokens.view(*shape, self.batch.max_length), logprob.view(shape), score.view(shape), finished.view(shape)
        )

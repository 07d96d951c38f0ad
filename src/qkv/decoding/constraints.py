"""Constraints on outputs: they set forbidden log-probabilities to minus infinity, in place. And the repetition penalty.

R hypotheses, V vocabulary, T tokens so far, B inputs, N inputs still searched, P longest prefix.
"""

import itertools
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from qkv.base.errors import DataError
from qkv.decoding.config import DecodingConfig
from qkv.decoding.hypothesis import DEAD, NONE
from qkv.decoding.phrases import PhraseTables


def ban_repeats(logprobs: Tensor, tokens: Tensor, size: int) -> None:
    """Forbid each token that would complete an n-gram of this size that is already among the tokens (R, T)."""
    if tokens.size(1) < size:
        return
    ngrams = tokens.unfold(1, size, 1)  # (R, T - size + 1, size)
    tail = tokens[:, tokens.size(1) - size + 1 :]
    again = (ngrams[..., :-1] == tail[:, None]).all(-1)
    # A token may complete one n-gram that matches and one that does not: the minimum of both is the ban.
    logprobs.scatter_reduce_(1, ngrams[..., -1], torch.where(again, DEAD, -DEAD), "amin")


class RepetitionPenalty:
    """Makes tokens less likely that were there already (Keskar et al. 2019, section 4.1)."""

    def __init__(self, penalty: float, previous: list[list[int]], vocabulary: int, device: torch.device) -> None:
        """`previous` holds the tokens before each hypothesis begins."""
        self.penalty = penalty
        self.seen = torch.zeros(len(previous), vocabulary, dtype=torch.bool)  # (R, V)
        for row, tokens in zip(self.seen, previous, strict=True):
            row[tokens] = True
        self.seen = self.seen.to(device)

    def apply(self, logits: Tensor) -> Tensor:
        """Return logits (R, V) in which those of seen tokens are lower: divided if positive, multiplied if negative."""
        return torch.where(self.seen, torch.where(logits < 0, logits * self.penalty, logits / self.penalty), logits)

    def add(self, tokens: Tensor) -> None:
        """Note one more token of each hypothesis, (R,)."""
        self.seen.scatter_(1, tokens[:, None], True)

    def select(self, rows: Tensor) -> None:
        """Make row i the old row rows[i]."""
        self.seen = self.seen[rows]


def force(logprobs: Tensor, wanted: Tensor, given: Tensor) -> None:
    """Allow only the wanted token (R,), with the log-probability given (R,), unless it is NONE."""
    forced = (wanted != NONE)[:, None]
    index = wanted.clamp(min=0)[:, None]
    left = torch.where(forced, given[:, None], logprobs.gather(1, index))
    logprobs.masked_fill_(forced, DEAD).scatter_(1, index, left)


def max_output_lengths(
    config: DecodingConfig, sources: Iterable[int], prefixes: Iterable[int], phrases: Iterable[int] = ()
) -> list[int]:
    """Return the length limit of each output, its end included, from the lengths of its source, forced prefix and phrases."""
    limits = []
    for source, prefix, more in zip(sources, prefixes, phrases or itertools.repeat(0), strict=False):
        limit = max(int(config.max_ratio * source) + config.max_extra, config.min_length + 1, prefix + 1) + more
        if config.max_length is not None:
            if prefix >= config.max_length:
                raise DataError(f"a prefix of {prefix} tokens does not fit within max_length {config.max_length}; shorten it")
            limit = min(limit, config.max_length)
        limits.append(limit)
    return limits


class Constraints:
    """All constraints of one decoding, for each of its B inputs."""

    def __init__(
        self,
        config: DecodingConfig,
        prefix: list[list[int]],  # tokens that each output must begin with
        allowed: list[Tensor] | None,  # ids that each output may use, besides eos
        eos: int,
        never: list[int],  # ids that are never generated
        device: torch.device,
        phrases: PhraseTables | None = None,  # phrases that each output must contain
    ) -> None:
        self.config, self.eos, self.phrases = config, eos, phrases
        self.never = torch.tensor(never, dtype=torch.long, device=device)
        self.not_yet = torch.tensor([*never, eos], dtype=torch.long, device=device)  # before min_length is reached
        self.allowed = allowed
        self.outside: Tensor | None = None  # (B, V) not allowed; made when V is known
        self.highest = max((token for tokens in prefix for token in tokens), default=NONE)
        self.prefix_length = np.array([len(tokens) for tokens in prefix])  # (B,)
        width = max(map(len, prefix), default=0)
        rows = [[*tokens, *[NONE] * (width - len(tokens))] for tokens in prefix]
        self.prefix = torch.tensor(rows, dtype=torch.long, device=device).view(len(prefix), width)

    @property
    def need_tokens(self) -> bool:
        """Whether constraints depend on the tokens so far."""
        return self.config.no_repeat_ngram > 0

    def key(self, length: int) -> str | None:
        """Return a key for constraints that are the same for all hypotheses of this length; None if they differ."""
        if self.need_tokens or self.allowed is not None or self.phrases is not None or length < self.prefix.size(1):
            return None
        return "not yet" if length < self.config.min_length else "never"

    def apply(self, logprobs: Tensor, length: int, tokens: Tensor | None, inputs: Tensor) -> None:
        """Forbid in logprobs (R, V) the tokens that may not follow the first `length` ones, tokens (R, T).

        The hypotheses of each input (N,) stand side by side, equally many for each.
        """
        vocabulary, forced = logprobs.size(1), length < self.prefix.size(1)
        if forced or self.allowed is not None:
            owners = inputs.repeat_interleave(logprobs.size(0) // len(inputs))
        if forced:
            check_id(self.highest, vocabulary, "a prefix")
            wanted = self.prefix[owners, length]
            given = logprobs.gather(1, wanted.clamp(min=0)[:, None])[:, 0]
        logprobs.index_fill_(1, self.never if length >= self.config.min_length else self.not_yet, DEAD)
        if self.allowed is not None:
            if self.outside is None:
                self.outside = self._not_allowed(self.allowed, vocabulary).to(logprobs.device)
            logprobs.masked_fill_(self.outside[owners], DEAD)
        if tokens is not None:
            ban_repeats(logprobs, tokens, self.config.no_repeat_ngram)
        if forced:  # last: the user's prefix overrides every other constraint
            force(logprobs, wanted, given)

    def forced(self, length: int, here: np.ndarray) -> np.ndarray:
        """Return which of the inputs here, (N,), have a prefix of more than `length` tokens."""
        return self.prefix_length[here] > length

    def _not_allowed(self, allowed: list[Tensor], vocabulary: int) -> Tensor:
        """Return which ids each output may not use. -> (B, V)."""
        outside = torch.ones(len(allowed), vocabulary, dtype=torch.bool)
        for row, ids in zip(outside, allowed, strict=True):
            for token in (ids.min(), ids.max()) if len(ids) else ():
                check_id(int(token), vocabulary, "the allowed vocabulary")
            row[ids.long().cpu()] = False
        outside[:, self.eos] = False
        return outside


def check_id(token: int, vocabulary: int, where: str) -> None:
    if not 0 <= token < vocabulary:
        raise DataError(f"{where} has the id {token}, but the model knows {vocabulary} tokens; use its own tokenizer")

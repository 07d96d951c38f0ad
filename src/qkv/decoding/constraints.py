"""Constraints on outputs: they set forbidden log-probabilities to minus infinity, in place. And the repetition penalty.

N inputs, R hypotheses, V vocabulary, T tokens so far, P longest prefix.
"""

import copy
import functools
import itertools
from collections.abc import Hashable, Iterable, MutableMapping

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from qkv.base.errors import DataError
from qkv.base.transfer import on_device
from qkv.decoding.config import DecodingConfig
from qkv.decoding.hypothesis import DEAD, NONE
from qkv.decoding.phrases import PhraseTables


def ban_repeats(logprobs: Tensor, tokens: Tensor, size: int) -> None:
    """Forbid each token that would complete an n-gram of this size that is already among the tokens (R, T).

    NONE stands before the tokens of shorter outputs.
    """
    if tokens.size(1) < size:
        return
    ngrams = tokens.unfold(1, size, 1)  # (R, T - size + 1, size)
    tail = tokens[:, tokens.size(1) - size + 1 :]
    again = (ngrams[..., :-1] == tail[:, None]).all(-1) & (ngrams != NONE).all(-1)
    # A token may complete one n-gram that matches and one that does not: the minimum of both is the ban.
    logprobs.scatter_reduce_(1, ngrams[..., -1].clamp(min=0), torch.where(again, DEAD, -DEAD), "amin")


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

    def join(self, other: "RepetitionPenalty") -> None:
        """Add the rows of another penalty."""
        self.seen = torch.cat([self.seen, other.seen])


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
    """All constraints of one decoding, for each of its N inputs."""

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
        self.config, self.eos, self.phrases, self.device = config, eos, phrases, device
        self.never = _ids(tuple(never), device)
        self.not_yet = _ids((*never, eos), device)  # before min_length is reached
        self.outside: Tensor | None = None  # (N, V) not allowed, or (1, V) if the same for all; made when V is known
        self._set_inputs(prefix, allowed)

    def pick(self, rows: np.ndarray) -> "Constraints":
        """Return the constraints of some of the inputs."""
        prefix = [self.prefix[row] for row in rows]
        allowed = None if self.allowed is None else [self.allowed[row] for row in rows]
        picked = self._of_others(prefix, allowed, self.phrases)
        if self.outside is not None:
            picked.outside = self.outside if len(self.outside) == 1 else self.outside[on_device(rows, self.device)]
        return picked

    def join(self, other: "Constraints") -> "Constraints":
        """Return the constraints of the inputs of both."""
        allowed = None if self.allowed is None else [*self.allowed, *(other.allowed or ())]
        joined = self._of_others([*self.prefix, *other.prefix], allowed, None)
        if self.outside is not None and joined.same_allowed:
            joined.outside = self.outside
        return joined

    def _of_others(self, prefix: list[list[int]], allowed: list[Tensor] | None, phrases: PhraseTables | None) -> "Constraints":
        """Return the same constraints for other inputs, with the tensors of ids that a recorded step may read."""
        others = copy.copy(self)
        others.phrases, others.outside = phrases, None
        others._set_inputs(prefix, allowed)
        return others

    def _set_inputs(self, prefix: list[list[int]], allowed: list[Tensor] | None) -> None:
        self.prefix, self.allowed = prefix, allowed
        self.prefix_length = np.array([len(tokens) for tokens in prefix])  # (N,)
        self.same_allowed = allowed is not None and all(ids is allowed[0] for ids in allowed)  # whether for all outputs

    @property
    def need_tokens(self) -> bool:
        """Whether constraints depend on the tokens so far."""
        return self.config.no_repeat_ngram > 0

    def key(self, lengths: np.ndarray) -> Hashable | None:
        """Return a key for constraints that are the same for all hypotheses after so many tokens, (N,); None if they differ.

        It has the address of every tensor that `apply` reads and that another search may not have.
        """
        early = lengths < self.config.min_length
        if self.need_tokens or self.phrases is not None or self.forced(lengths).any() or (early.any() and not early.all()):
            return None
        if self.allowed is None:
            return bool(early.any())
        if self.outside is None or len(self.outside) > 1:
            return None
        return bool(early.any()), self.outside.data_ptr()

    def apply(self, logprobs: Tensor, lengths: np.ndarray, tokens: Tensor | None) -> None:
        """Forbid in logprobs (R, V) the tokens that may not follow the first `lengths` ones, (N,), of tokens (R, T).

        The hypotheses of each input stand side by side, equally many for each.
        """
        width, vocabulary = logprobs.size(0) // len(lengths), logprobs.size(1)
        forced = self.forced(lengths)
        if forced.any():
            wanted = self._wanted(lengths, forced, vocabulary).repeat_interleave(width)
            given = logprobs.gather(1, wanted.clamp(min=0)[:, None])[:, 0]
        early = lengths < self.config.min_length
        logprobs.index_fill_(1, self.not_yet if early.all() else self.never, DEAD)
        if early.any() and not early.all():
            logprobs.view(len(lengths), width, -1)[torch.from_numpy(np.flatnonzero(early)), :, self.eos] = DEAD
        if self.allowed is not None:
            if self.outside is None:
                self.outside = self._outside(vocabulary)
            outside = self.outside if len(self.outside) == 1 else self.outside.repeat_interleave(width, 0)
            logprobs.masked_fill_(outside, DEAD)
        if tokens is not None:
            ban_repeats(logprobs, tokens, self.config.no_repeat_ngram)
        if forced.any():  # last: the user's prefix overrides every other constraint
            force(logprobs, wanted, given)

    def forced(self, lengths: np.ndarray) -> np.ndarray:
        """Return which inputs have a prefix of more than `lengths` tokens, (N,)."""
        return self.prefix_length > lengths

    def _wanted(self, lengths: np.ndarray, forced: np.ndarray, vocabulary: int) -> Tensor:
        """Return the next token of each prefix, and NONE where it has ended. -> (N,)."""
        wanted = np.full(len(lengths), NONE)
        for row in np.flatnonzero(forced):
            check_id(max(self.prefix[row]), vocabulary, "a prefix")
            wanted[row] = self.prefix[row][lengths[row]]
        return on_device(wanted, self.device)

    def _outside(self, vocabulary: int) -> Tensor:
        """Return which ids each output may not use, (N, V), or (1, V) if the same for all: then made once for all searches."""
        assert self.allowed is not None
        if not self.same_allowed:
            return self._not_allowed(self.allowed, vocabulary)
        made = _OUTSIDE.setdefault(self.allowed[0], {})
        key = (vocabulary, self.eos, self.device)
        if key not in made:
            made[key] = self._not_allowed(self.allowed[:1], vocabulary)
        return made[key]

    def _not_allowed(self, allowed: list[Tensor], vocabulary: int) -> Tensor:
        """Return which ids each output may not use. -> (N, V)."""
        outside = torch.ones(len(allowed), vocabulary, dtype=torch.bool)
        for row, ids in zip(outside, allowed, strict=True):
            for token in (ids.min(), ids.max()) if len(ids) else ():
                check_id(int(token), vocabulary, "the allowed vocabulary")
            row[ids.long().cpu()] = False
        outside[:, self.eos] = False
        return outside.to(self.device)


# What may not be used where certain ids are allowed, by these: a model's searches have the same ones.
_OUTSIDE: MutableMapping[Tensor, dict[Hashable, Tensor]] = WeakTensorKeyDictionary()


@functools.lru_cache(maxsize=64)
def _ids(ids: tuple[int, ...], device: torch.device) -> Tensor:
    """Return ids on a device, where they stay: recorded steps read them."""
    return on_device(np.array(ids, dtype=np.int64), device)


def check_id(token: int, vocabulary: int, where: str) -> None:
    if not 0 <= token < vocabulary:
        raise DataError(f"{where} has the id {token}, but the model knows {vocabulary} tokens; use its own tokenizer")

"""What an output may not be: functions that put minus infinity on log-probabilities, in place; and what it should not be.

R hypotheses, V vocabulary, T words so far, B inputs, P longest prefix.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from qkv.base.errors import DataError
from qkv.decoding.config import DecodingConfig
from qkv.decoding.hypothesis import DEAD, NONE


def ban_repeats(scores: Tensor, words: Tensor, size: int) -> None:
    """Forbid each word that would end a run of `size` words that is already among the words (R, T)."""
    if words.size(1) < size:
        return
    runs = words.unfold(1, size, 1)  # (R, T - size + 1, size)
    tail = words[:, words.size(1) - size + 1 :]
    again = (runs[..., :-1] == tail[:, None]).all(-1)
    # The same word may end one run that matches and one that does not: the minimum of both is the ban.
    scores.scatter_reduce_(1, runs[..., -1], torch.where(again, DEAD, -DEAD), "amin")


class Repeats:
    """Makes words less likely that were there already (Keskar et al. 2019, section 4.1)."""

    def __init__(self, penalty: float, said: list[list[int]], vocabulary: int, device: torch.device) -> None:
        """`said` are the words of each hypothesis before it begins."""
        self.penalty = penalty
        self.there = torch.zeros(len(said), vocabulary, dtype=torch.bool)  # (R, V)
        for row, words in zip(self.there, said, strict=True):
            row[words] = True
        self.there = self.there.to(device)

    def apply(self, logits: Tensor) -> Tensor:
        """Logits (R, V) with those of such words brought down: divided where positive, multiplied where negative."""
        return torch.where(self.there, torch.where(logits < 0, logits * self.penalty, logits / self.penalty), logits)

    def add(self, words: Tensor) -> None:
        """Each hypothesis has one word more, (R,)."""
        self.there.scatter_(1, words[:, None], True)

    def select(self, rows: Tensor) -> None:
        """Row i becomes the old row rows[i]."""
        self.there = self.there[rows]


def force(scores: Tensor, wanted: Tensor, given: Tensor) -> None:
    """Leave only the wanted word (R,), with the log-probability given (R,), where one is wanted (not NONE)."""
    forced = (wanted != NONE)[:, None]
    position = wanted.clamp(min=0)[:, None]
    left = torch.where(forced, given[:, None], scores.gather(1, position))
    scores.masked_fill_(forced, DEAD).scatter_(1, position, left)


def longest_outputs(config: DecodingConfig, sources: Iterable[int], prefixes: Iterable[int]) -> list[int]:
    """The most words of each output, its end included, from the lengths of its source and of its forced prefix."""
    return [_longest(config, source, prefix) for source, prefix in zip(sources, prefixes, strict=True)]


def _longest(config: DecodingConfig, source: int, prefix: int) -> int:
    wanted = max(int(config.max_ratio * source) + config.max_extra, config.min_length + 1, prefix + 1)
    if config.max_length is None:
        return wanted
    if prefix >= config.max_length:
        raise DataError(f"a prefix of {prefix} words does not fit within max_length {config.max_length}; shorten it")
    return min(wanted, config.max_length)


class Limits:
    """All limits of one decoding, for each of its B inputs."""

    def __init__(
        self,
        config: DecodingConfig,
        prefix: list[list[int]],  # what each output must begin with
        allowed: list[Tensor] | None,  # the ids that each output may use, beside eos
        eos: int,
        never: list[int],  # ids that are never generated
        device: torch.device,
    ) -> None:
        self.config, self.eos = config, eos
        self.never = torch.tensor(never, dtype=torch.long, device=device)
        self.not_yet = torch.tensor([*never, eos], dtype=torch.long, device=device)  # while the shortest length is not reached
        self.allowed = allowed
        self.outside: Tensor | None = None  # (B, V) not allowed; made when V is known
        self.highest = max((word for words in prefix for word in words), default=NONE)
        width = max(map(len, prefix), default=0)
        rows = [[*words, *[NONE] * (width - len(words))] for words in prefix]
        self.prefix = torch.tensor(rows, dtype=torch.long, device=device).view(len(prefix), width)

    @property
    def need_words(self) -> bool:
        """Whether the words so far count."""
        return self.config.no_repeat_ngram > 0

    def plain(self, done: int) -> object:
        """What tells the limits after `done` words, where these are the same for all hypotheses; None where they are not."""
        if self.need_words or self.allowed is not None or done < self.prefix.size(1):
            return None
        return ("not yet",) if done < self.config.min_length else ("never",)

    def apply(self, scores: Tensor, done: int, words: Tensor | None, inputs: Tensor) -> None:
        """Forbid in scores (R, V) what may not follow `done` words, the words (R, T), of hypotheses of the inputs (N,).

        The hypotheses of an input stand side by side, as many for each.
        """
        forced = done < self.prefix.size(1)
        if forced or self.allowed is not None:
            owners = inputs.repeat_interleave(scores.size(0) // len(inputs))
        if forced:
            _check_id(self.highest, scores.size(1), "a prefix")
            wanted = self.prefix[owners, done]
            given = scores.gather(1, wanted.clamp(min=0)[:, None])[:, 0]
        scores.index_fill_(1, self.never if done >= self.config.min_length else self.not_yet, DEAD)
        if self.allowed is not None:
            scores.masked_fill_(self._not_allowed(self.allowed, scores)[owners], DEAD)
        if words is not None:
            ban_repeats(scores, words, self.config.no_repeat_ngram)
        if forced:  # last: what the user wrote stands above every other limit
            force(scores, wanted, given)

    def _not_allowed(self, allowed: list[Tensor], scores: Tensor) -> Tensor:
        if self.outside is None:
            outside = torch.ones(len(allowed), scores.size(1), dtype=torch.bool)
            for row, ids in zip(outside, allowed, strict=True):
                for word in (ids.min(), ids.max()) if len(ids) else ():
                    _check_id(int(word), scores.size(1), "the allowed vocabulary")
                row[ids.long().cpu()] = False
            outside[:, self.eos] = False
            self.outside = outside.to(scores.device)
        return self.outside


def _check_id(word: int, vocabulary: int, where: str) -> None:
    if not 0 <= word < vocabulary:
        raise DataError(f"{where} has the id {word}, but the model knows {vocabulary} words; use its own tokenizer")

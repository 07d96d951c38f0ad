"""Small models whose every probability is known, and slow, plain searches to compare with."""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qkv.decoding.config import DecodingConfig
from qkv.decoding.phrases import BEGIN, Phrase

PAD, BOS, EOS = 0, 2, 3
SPECIAL: dict[str, Any] = {"bos": BOS, "eos": EOS, "pad": PAD}
PRIME = 1_000_003


@dataclass
class HashState:
    """A number that stands for the source and all tokens so far, and the source's mask."""

    number: Tensor
    keep: Tensor
    attention: Tensor | None = None

    def select(self, rows: Tensor) -> None:
        self.number, self.keep = self.number[rows], self.keep[rows]


class HashModel:
    """Logits that depend, as if at random, on the source and on all tokens so far."""

    def __init__(self, vocabulary: int = 7, spread: float = 4.0, levels: int = 0, end: float = 0.0):
        self.vocabulary, self.spread, self.levels, self.end = vocabulary, spread, levels, end
        self.rows: list[int] = []  # how many hypotheses each step had

    def start(self, ids: Tensor, keep: Tensor, max_length: int, attention: bool = False) -> HashState:
        number = torch.full((ids.size(0),), 17)
        for position in range(ids.size(1)):
            number = torch.where(keep[:, position], (number * 7919 + ids[:, position] + 1) % PRIME, number)
        self.room, self.attention = max_length, attention
        return HashState(number, keep)

    def step(self, tokens: Tensor, state: HashState) -> Tensor:
        self.rows.append(len(tokens))
        assert len(self.rows) <= self.room, "more steps than there is room for"
        state.number = (state.number * 7919 + tokens * 104729 + 11) % PRIME
        if self.attention:
            positions = torch.arange(state.keep.size(1))
            noise = (state.number[:, None] * (positions * 613 + 1) % 97) / 20
            state.attention = noise.masked_fill(~state.keep, -math.inf).softmax(-1)
        return self.logits(state.number)

    def logits(self, number: Tensor) -> Tensor:
        tokens = torch.arange(self.vocabulary)
        noise = (number[:, None] * (tokens * 7001 + 13) + tokens * 997) % PRIME / PRIME
        if self.levels:  # few different values, so that ties abound
            noise = (noise * self.levels).floor() / self.levels
        logits = noise * self.spread
        logits[:, EOS] += self.end
        return logits


@dataclass
class TableState:
    source: Tensor  # (R, S)
    attention: Tensor | None = None

    def select(self, rows: Tensor) -> None:
        self.source = self.source[rows]
        if self.attention is not None:
            self.attention = self.attention[rows]


class TableModel:
    """A Markov chain: the next token depends on the last one alone."""

    def __init__(self, probabilities: dict[int, dict[int, float]], vocabulary: int, attention: Tensor | None = None):
        self.table = torch.full((vocabulary, vocabulary), -math.inf)
        for token, following in probabilities.items():
            for other, share in following.items():
                self.table[token, other] = math.log(share)
        self.attention = attention  # (V, S): where each token makes the model look next

    def start(self, ids: Tensor, keep: Tensor, max_length: int, attention: bool = False) -> TableState:
        return TableState(ids)

    def step(self, tokens: Tensor, state: TableState) -> Tensor:
        if self.attention is not None:
            state.attention = self.attention[tokens]
        return self.table[tokens]


def sources(lengths: list[int], width: int | None = None) -> tuple[Tensor, Tensor]:
    """Ids and mask of inputs of these lengths, the content of each told by its length and place."""
    width = max(lengths, default=0) if width is None else width
    ids = torch.full((len(lengths), width), PAD)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.arange(length) * 13 + row + 4
    return ids, torch.arange(width)[None] < torch.tensor(lengths)[:, None]


def row(model: HashModel, source: Tensor, tokens: tuple[int, ...]) -> np.ndarray:
    """Log-probabilities after these tokens, computed from nothing."""
    state = model.start(source[None], torch.ones(1, len(source), dtype=torch.bool), 10**6)
    for token in (BOS, *tokens):
        logits = model.step(torch.tensor([token]), state)
    return torch.log_softmax(logits, -1)[0].numpy()


def all_texts(model: HashModel, source: Tensor, config: DecodingConfig, max_length: int) -> list[tuple[float, list[int]]]:
    """Every text that ends within `max_length` tokens, with its score, best first."""
    plain = [token for token in range(model.vocabulary) if token not in (PAD, BOS, EOS)]
    found = []
    for length in range(max_length):
        for tokens in itertools.product(plain, repeat=length):
            total = sum(row(model, source, tokens[:i])[token] for i, token in enumerate((*tokens, EOS)))
            found.append((total / ((5 + length + 1) / 6) ** config.length_penalty, list(tokens)))
    return sorted(found, key=lambda one: -one[0])


def slow_beam(model: HashModel, source: Tensor, config: DecodingConfig, max_length: int) -> list[tuple[float, list[int]]]:
    """Beam search in its plainest form, run to the very end: the n best finished texts with their scores."""
    live: list[tuple[np.float32, tuple[int, ...]]] = [(np.float32(0), ())]
    penalty = ((5 + torch.arange(max_length + 1)) / 6) ** config.length_penalty
    ended = []
    for length in range(1, max_length + 1):
        found = []
        for total, tokens in live:
            scores = row(model, source, tokens)
            found += [(total + scores[w], (*tokens, w)) for w in range(model.vocabulary) if w not in (PAD, BOS)]
        found.sort(key=lambda one: -one[0])  # stable: the earlier hypothesis, then the lower id
        for total, tokens in found[: config.beam]:
            if tokens[-1] == EOS:
                ended.append((float(torch.tensor(total) / penalty[length]), list(tokens[:-1])))
        live = [one for one in found if one[1][-1] != EOS][: config.beam]
    return sorted(ended, key=lambda one: -one[0])[: config.n_best]


def occurrences(ids: list[int], one: Phrase) -> int:
    """Return at how many positions one of the forms ends in an output."""
    tokens = (BEGIN, *ids)
    return sum(any(tokens[:end][-len(form) :] == form for form in one.forms) for end in range(1, len(tokens) + 1))

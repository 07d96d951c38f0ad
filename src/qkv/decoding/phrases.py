"""Phrases that outputs must contain: terms of a glossary, and placeholders of a source.

An automaton (Aho and Corasick 1975) over all forms of an input's phrases follows each hypothesis: its node is the longest suffix
of the tokens so far that begins some form. All inputs' automata stand in the same tables, so a step of the search moves all its
hypotheses at once. The tables are arrays on the host, where many small steps take a fraction of the time they take on a device.

B inputs, N inputs still searched, W hypotheses of each, U nodes of all automata, A tokens in the forms of an input, K phrases of
an input, C continuations.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from qkv.base.errors import DataError
from qkv.decoding.hypothesis import NONE

BEGIN = -2  # stands for the beginning of an output in a form


@dataclass(frozen=True)
class Phrase:
    """A phrase that an output must contain, in one of several forms; equal phrases must occur as often as they are given."""

    forms: tuple[tuple[int, ...], ...]  # token ids of each form; any of them will do; after BEGIN those of a form in first place
    once: bool = False  # whether none of the forms may occur a second time

    def __post_init__(self) -> None:
        if not all(self.forms) or all(form[0] == BEGIN for form in self.forms):
            raise DataError("a phrase has no tokens; give at least one form, of at least one token, that may stand anywhere")

    @property
    def shortest(self) -> int:
        """The number of tokens of its shortest form that may stand anywhere."""
        return min(len(form) for form in self.forms if form[0] != BEGIN)


class Automaton(NamedTuple):
    """Follows the phrases of one input through an output; node 0 is the root."""

    alphabet: list[int]  # A tokens; every other one leads to the root
    first: int  # the node of an empty output
    goto: np.ndarray  # (nodes, A)
    done: np.ndarray  # (nodes, K) which phrases a node completes
    need: np.ndarray  # (nodes, K) fewest tokens that complete each phrase from there


@functools.lru_cache(maxsize=1000)
def build_automaton(phrases: tuple[Phrase, ...]) -> Automaton:
    """Build the automaton of some phrases."""
    alphabet = sorted({token for phrase in phrases for form in phrase.forms for token in form} - {BEGIN})
    nodes = {()} | {form[:end] for phrase in phrases for form in phrase.forms for end in range(1, len(form) + 1)}
    number = {node: position for position, node in enumerate(sorted(nodes, key=lambda node: (len(node), node)))}

    def longest_suffix(tokens: tuple[int, ...]) -> tuple[int, ...]:
        return next(tokens[begin:] for begin in range(len(tokens) + 1) if tokens[begin:] in number)

    goto = np.array([[number[longest_suffix((*node, token))] for token in alphabet] for node in number])
    done = np.zeros((len(number), len(phrases)), dtype=bool)
    need = np.tile([phrase.shortest for phrase in phrases], (len(number), 1))
    for node, row in number.items():
        suffixes = [node[begin:] for begin in range(len(node) + 1)]
        for k, phrase in enumerate(phrases):
            done[row, k] = any(suffix in phrase.forms for suffix in suffixes)
            begun = [
                len(form) - len(s) for form in phrase.forms for s in suffixes if 0 < len(s) < len(form) and form[: len(s)] == s
            ]
            need[row, k] = min([*begun, phrase.shortest])
    return Automaton(alphabet, number[longest_suffix((BEGIN,))], goto, done, need)


class PhraseTables:
    """The automata of all inputs in one set of arrays; nodes are numbered through, and inputs without phrases share a node."""

    def __init__(self, phrases: Sequence[Sequence[Phrase]], eos: int):
        automata = [build_automaton(tuple(each)) if each else None for each in phrases]
        inputs, width = len(phrases), max(map(len, phrases))
        symbols = max(len(one.alphabet) for one in automata if one)
        sizes = [len(one.goto) if one else 0 for one in automata]
        root = np.cumsum([1, *sizes])[:-1]
        nodes = 1 + sum(sizes)
        self.constrained = np.array([bool(each) for each in phrases])  # (B,)
        self.first = np.zeros(inputs, dtype=np.int64)  # (B,) the node of an empty output
        self.alphabet = np.full((inputs, symbols + 1), NONE)
        self.alphabet[:, -1] = eos
        self.goto = np.zeros((nodes, symbols + 1), dtype=np.int64)  # the last column is for all tokens that are in no form
        self.done, self.need = np.zeros((nodes, width), dtype=bool), np.zeros((nodes, width), dtype=np.int64)
        self.weight, self.once = np.zeros((inputs, width), dtype=np.int64), np.zeros((inputs, width), dtype=bool)
        self.previous = np.full((inputs, width), width)  # the equal phrase before each; it must be met first
        for i, (one, each) in enumerate(zip(automata, phrases, strict=True)):
            if one is None:
                continue
            here, count = slice(root[i], root[i] + sizes[i]), len(each)
            self.alphabet[i, : len(one.alphabet)] = one.alphabet
            self.goto[here], self.first[i] = root[i], root[i] + one.first
            self.goto[here, : len(one.alphabet)] = one.goto + root[i]
            self.done[here, :count], self.need[here, :count] = one.done, one.need
            self.weight[i, :count] = [phrase.shortest for phrase in each]
            self.once[i, :count] = [phrase.once and phrase not in each[k + 1 :] for k, phrase in enumerate(each)]
            for k, phrase in enumerate(each):
                self.previous[i, k] = max((j for j in range(k) if each[j] == phrase), default=width)
        self.any_equal = bool((self.previous < width).any())
        used = [token for one in automata if one for token in one.alphabet]
        self.extremes = (min(used), max(used))  # the lowest and the highest token

    def begin(self) -> "PhraseProgress":
        """Return the progress of one empty hypothesis for each input."""
        return PhraseProgress(self, np.arange(len(self.first)), self.first[:, None], (self.weight == 0)[:, None])


class PhraseProgress:
    """How far the live hypotheses are in the phrases of their inputs."""

    def __init__(self, tables: PhraseTables, inputs: np.ndarray, node: np.ndarray, met: np.ndarray):
        self.tables = tables
        self.inputs = inputs  # (N,)
        self.node = node  # (N, W)
        self.met = met  # (N, W, K) which phrases each contains; those that only fill the array count as met
        self.left = self._left(node[..., None], met[:, :, None])[..., 0]  # (N, W) fewest tokens that complete all phrases

    @property
    def constrained(self) -> np.ndarray:
        """Which inputs have phrases, (N,)."""
        return self.tables.constrained[self.inputs]

    @property
    def alphabet(self) -> np.ndarray:
        """The tokens in forms of each input's phrases, which NONE fills, and eos. -> (N, A + 1)."""
        return self.tables.alphabet[self.inputs]

    def moves(self) -> tuple[np.ndarray, np.ndarray]:
        """Return for each token of the alphabet how many are left after it, and whether it repeats a phrase that may occur once.

        Each (N, W, A + 1); the last one holds for eos and for all tokens that are in no form.
        """
        node, met = self.tables.goto[self.node], self.met[:, :, None]
        repeats = (self.tables.done[node] & met & self.tables.once[self.inputs][:, None, None]).any(-1)
        return self._left(node, self._met_after(node, met)), repeats

    def advance(self, parent: np.ndarray, token: np.ndarray) -> "PhraseProgress":
        """Return the progress of continuations (N, C) of these hypotheses."""
        rows = np.arange(len(parent))[:, None]
        same = token[..., None] == self.alphabet[:, None]
        same[..., -1] = True  # where no other is
        node = self.tables.goto[self.node[rows, parent], same.argmax(-1)]
        met = self._met_after(node[..., None], self.met[rows, parent][:, :, None])[:, :, 0]
        return PhraseProgress(self.tables, self.inputs, node, met)

    def pick(self, rows: np.ndarray) -> "PhraseProgress":
        """Return the progress of the hypotheses of some of the N inputs."""
        return PhraseProgress(self.tables, self.inputs[rows], self.node[rows], self.met[rows])

    def _met_after(self, node: np.ndarray, met: np.ndarray) -> np.ndarray:
        """Return the phrases met after a move to nodes (N, W, C) with phrases (N, W, 1, K) met before. -> (N, W, C, K)."""
        done = self.tables.done[node]
        return met | (done & self._ready(met) if self.tables.any_equal else done)

    def _left(self, node: np.ndarray, met: np.ndarray) -> np.ndarray:
        """Return the fewest tokens that complete all phrases from nodes (N, W, C) with phrases (N, W, C, K) met."""
        need = self.tables.need[node]
        if self.tables.any_equal:
            need = np.where(self._ready(met), need, self.tables.weight[self.inputs][:, None, None])
        return (need * ~met).sum(-1)

    def _ready(self, met: np.ndarray) -> np.ndarray:
        """Return the phrases whose equals before them are met: one occurrence counts once. met (N, W, C, K), and so returned."""
        previous = np.broadcast_to(self.tables.previous[self.inputs][:, None, None], met.shape)
        return np.take_along_axis(np.concatenate([met, np.ones_like(met[..., :1])], -1), previous, -1)

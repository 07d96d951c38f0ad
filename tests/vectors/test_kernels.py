"""Compiled updates equal the formulas in NumPy; samples follow their distributions; paths of the tree are a distribution."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numba import njit

from qkv.base.compiler import release_compiler_memory
from qkv.vectors.kernels import fasttext, word2vec
from qkv.vectors.kernels.sampling import draw_negative, sigmoid
from qkv.vectors.kernels.simd import padded_width
from qkv.vectors.vocabulary import huffman_sampler, keep_thresholds, negative_sampler

WIDTH = 40  # not a multiple of the registers' width
Targets = tuple[list[int], list[float]]  # output rows and their labels


def matrix(rows: int, seed: int) -> np.ndarray:
    out = np.zeros((rows, padded_width(WIDTH)), np.float32)
    out[:, :WIDTH] = np.random.default_rng(seed).normal(size=(rows, WIDTH)) / 3
    return out


def log_likelihood_step(
    inputs: np.ndarray, outputs: np.ndarray, labels: np.ndarray, rate: float
) -> tuple[np.ndarray, np.ndarray]:
    """rate * gradient of sum log sigmoid(+-score), which is (label - sigmoid) times the other side, in float64."""
    error = rate * (labels - 1 / (1 + np.exp(-inputs.astype(np.float64) @ outputs.T.astype(np.float64))))
    return error @ outputs, error.T @ inputs


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 3), (3, 4), (7, 6), (10, 17)])
def test_a_step_of_skipgram_is_the_gradient_of_its_log_likelihood(rows: int, columns: int) -> None:
    inputs, outputs = matrix(30, 1), matrix(30, 2)
    context, chosen = np.zeros(rows + 2, np.int32), np.zeros(columns + 3, np.int32)
    rng = np.random.default_rng(3)
    context[:rows], chosen[:columns] = rng.permutation(30)[:rows], rng.permutation(30)[:columns]
    labels = np.zeros(columns + 3, np.float32)
    labels[0] = 1
    here, there = context[:rows], chosen[:columns]
    first, second = log_likelihood_step(inputs[here], outputs[there], labels[:columns], 0.5)
    wanted_inputs, wanted_outputs = inputs.copy(), outputs.copy()
    wanted_inputs[here] += first
    wanted_outputs[there] += second
    workspace = word2vec.make_workspace(rows + 2, columns + 3, inputs.shape[1])
    word2vec.step_rows(inputs, context, rows, outputs, chosen, labels, columns, np.float32(0.5), workspace)
    np.testing.assert_allclose(inputs, wanted_inputs, atol=1e-6)
    np.testing.assert_allclose(outputs, wanted_outputs, atol=1e-6)


def test_a_word_that_is_twice_in_a_window_moves_twice() -> None:
    inputs, outputs = matrix(5, 1), matrix(5, 2)
    first, second = log_likelihood_step(inputs[[3, 3]], outputs[[1]], np.ones(1), 0.5)
    wanted, wanted_outputs = inputs[3] + first.sum(axis=0), outputs[1] + second[0]
    context, chosen = np.array([3, 3, 0, 0], np.int32), np.array([1, 0, 0, 0], np.int32)
    workspace = word2vec.make_workspace(4, 4, inputs.shape[1])
    word2vec.step_rows(inputs, context, 2, outputs, chosen, np.ones(4, np.float32), 1, np.float32(0.5), workspace)
    np.testing.assert_allclose(inputs[3], wanted, atol=1e-6)
    np.testing.assert_allclose(outputs[1], wanted_outputs, atol=1e-6)


class Reference:
    """The kernels by their formulas, over one line of words with a window of 1, so that no width of a window is drawn."""

    def __init__(
        self, inputs: np.ndarray, outputs: np.ndarray, parts: list[list[int]], targets_of: Callable[[int], Targets]
    ) -> None:
        self.inputs, self.outputs = inputs.astype(np.float64), outputs.astype(np.float64)
        self.parts, self.targets_of = parts, targets_of  # input rows of each word; output rows and labels of each word

    def step(self, rows: list[int], words: list[int]) -> None:
        """Train the mean of some input rows on words; each row gets the gradient of the mean, undivided."""
        hidden = self.inputs[rows].mean(axis=0, keepdims=True)
        chosen, labels = np.concatenate([np.array(self.targets_of(word)) for word in words], axis=1)
        chosen = chosen.astype(int)
        first, second = log_likelihood_step(hidden, self.outputs[chosen], labels, RATE)
        np.add.at(self.inputs, rows, first[0])
        np.add.at(self.outputs, chosen, second)

    def windows(self, line: list[int]) -> Iterator[tuple[int, list[int]]]:
        for at, word in enumerate(line):
            yield word, [line[i] for i in (at - 1, at + 1) if 0 <= i < len(line)]

    def skipgram(self, line: list[int]) -> None:
        """All words of a window share their negative samples: one step trains all rows at once."""
        for word, context in self.windows(line):
            chosen, labels = self.targets_of(word)
            first, second = log_likelihood_step(self.inputs[context], self.outputs[chosen], np.array(labels), RATE)
            np.add.at(self.inputs, context, first)
            np.add.at(self.outputs, chosen, second)

    def cbow(self, line: list[int]) -> None:
        for word, context in self.windows(line):
            self.step([row for other in context for row in self.parts[other]], [word])

    def ngram_skipgram(self, line: list[int]) -> None:
        for word, context in self.windows(line):
            self.step(self.parts[word], context)


def by_tree(counts: np.ndarray) -> Callable[[int], Targets]:
    """The targets of hierarchical softmax: the nodes above a word."""
    paths = huffman_sampler(counts)
    return lambda word: (
        paths.path_nodes[paths.path_starts[word] : paths.path_starts[word + 1]].tolist(),
        paths.path_codes[paths.path_starts[word] : paths.path_starts[word + 1]].tolist(),
    )


def by_noise(word: int) -> Targets:
    """The targets where word 0 is always the negative sample: the word itself, and word 0 three times unless it is the word."""
    return ([word], [1.0]) if word == 0 else ([word, 0, 0, 0], [1.0, 0.0, 0.0, 0.0])


COUNTS, RATE = np.array([9, 5, 4, 2]), 0.1
LINE = [0, 1, 2, 1, 3, 0]
ALL = np.full(4, (1 << 32) - 1, np.uint32)  # no subsampling
KINDS = {
    "tree": (huffman_sampler(COUNTS), by_tree(COUNTS)),
    "noise": (negative_sampler(np.array([1, 0, 0, 0]), 3, 0.75), by_noise),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["skipgram", "cbow"])
def test_a_line_is_learned_as_the_formulas_say(name: str, kind: str) -> None:
    sampler, targets_of = KINDS[kind]
    inputs, outputs = matrix(4, 1), matrix(4, 2)
    wanted = Reference(inputs, outputs, [[0], [1], [2], [3]], targets_of)
    getattr(wanted, name)(LINE)
    getattr(word2vec, f"train_{name}")(np.array([*LINE, -1], np.int32), inputs, outputs, ALL, sampler, 1, RATE, RATE, 7)
    np.testing.assert_allclose(inputs, wanted.inputs, atol=1e-6)
    np.testing.assert_allclose(outputs, wanted.outputs, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["skipgram", "cbow"])
def test_a_line_of_words_and_ngrams_is_learned_as_the_formulas_say(name: str, kind: str) -> None:
    sampler, targets_of = KINDS[kind]
    inputs, outputs = matrix(9, 1), matrix(4, 2)
    rows, starts = np.array([4, 5, 5, 6, 7, 7], np.int32), np.array([0, 2, 4, 4, 6])  # word 2 has none, word 3 the same one twice
    parts = [[word, *rows[starts[word] : starts[word + 1]]] for word in range(4)]
    wanted = Reference(inputs, outputs, parts, targets_of)
    (wanted.ngram_skipgram if name == "skipgram" else wanted.cbow)(LINE)
    ids = np.array([*LINE, -1], np.int32)
    getattr(fasttext, f"train_{name}")(ids, inputs, outputs, rows, starts, ALL, sampler, 1, RATE, RATE, 7)
    np.testing.assert_allclose(inputs, wanted.inputs, atol=1e-6)
    np.testing.assert_allclose(outputs, wanted.outputs, atol=1e-6)


@pytest.mark.needs_linux
@pytest.mark.skipif(sys.platform != "linux", reason="memory is released on Linux only")
def test_the_compilers_memory_is_released_and_read_back() -> None:
    def resident() -> int:
        maps = re.findall(r" r-xp .*/libllvmlite\.so\n(?:.+\n)*?Rss: +(\d+) kB", Path("/proc/self/smaps").read_text())
        assert maps
        return sum(map(int, maps))

    njit(lambda x: x + 1)(1)
    before = resident()
    release_compiler_memory()
    assert resident() < 0.1 * before
    assert njit(lambda x: x + 2)(1) == 3


def test_the_sigmoid_is_exact_to_float32() -> None:
    for x in np.linspace(-100, 100, 4001, dtype=np.float32):
        assert abs(sigmoid.py_func(x) - 1 / (1 + np.exp(-float(x)))) < 2e-7


def test_negatives_are_drawn_by_count_to_the_exponent() -> None:
    counts = np.array([1000, 500, 100, 50, 10, 5, 1])
    sampler, state, seen = negative_sampler(counts, 5, 0.75), np.uint64(1), np.zeros(7)
    for _ in range(50_000):
        state, word = draw_negative(state, sampler)
        state = np.uint64(state)
        seen[word] += 1
    share = counts**0.75 / (counts**0.75).sum()
    assert (abs(seen / 50_000 - share) < 5 * np.sqrt(share / 50_000)).all()


def test_frequent_words_are_subsampled_by_the_formula() -> None:
    counts = np.array([900_000, 90_000, 10_000])
    share = counts / counts.sum()
    wanted = np.minimum(np.sqrt(1e-3 / share) + 1e-3 / share, 1)
    ids = np.repeat(np.arange(3, dtype=np.int32), 40_000)
    keep, line = keep_thresholds(counts, 1e-3), np.zeros(len(ids), np.int32)
    _, _, count = word2vec.read_sentence(ids, 0, keep, np.uint64(5), line)
    seen = np.bincount(line[:count], minlength=3) / 40_000
    np.testing.assert_allclose(seen, wanted, atol=0.01)
    assert seen[2] > 0.3 > seen[1] > seen[0]


def test_lines_end_and_rare_words_are_dropped() -> None:
    ids, keep, line = np.array([-1, 0, 9, 1, -1, 1], np.int32), keep_thresholds(np.array([5, 5]), 0), np.zeros(10, np.int32)
    position, state, count = word2vec.read_sentence(ids, 0, keep, np.uint64(5), line)
    assert (position, count, line[:2].tolist()) == (5, 2, [0, 1])
    assert word2vec.read_sentence(ids, position, keep, np.uint64(state), line)[2] == 1


def test_probabilities_down_the_tree_sum_to_one() -> None:
    counts = np.sort(np.random.default_rng(1).integers(1, 1000, 57))[::-1].copy()
    paths, scores = huffman_sampler(counts), np.random.default_rng(2).normal(size=56)
    total, length = 0.0, 0
    for word in range(57):
        inside = slice(paths.path_starts[word], paths.path_starts[word + 1])
        left = 1 / (1 + np.exp(-scores[paths.path_nodes[inside]]))
        total += np.prod(np.where(paths.path_codes[inside] == 1, left, 1 - left))
        length += counts[word] * (inside.stop - inside.start)
    assert total == pytest.approx(1)
    entropy = -(counts / counts.sum() * np.log2(counts / counts.sum())).sum()
    assert entropy <= length / counts.sum() < entropy + 1  # what Huffman's code promises

"""Compiled updates equal the formulas in NumPy; drawn words follow their distributions; the tree is a distribution."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import njit

from qkv.vectors.kernels import fasttext, word2vec
from qkv.vectors.kernels.compiler import let_go_of_compiler
from qkv.vectors.kernels.draws import draw_noise, sigmoid
from qkv.vectors.kernels.simd import padded
from qkv.vectors.vocabulary import kept, noise, tree

WIDTH = 40  # not a multiple of the registers' width
NOTHING = np.zeros(0, np.int32)


def matrix(rows: int, seed: int) -> np.ndarray:
    out = np.zeros((rows, padded(WIDTH)), np.float32)
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
    room = word2vec.room_for(rows + 2, columns + 3, inputs.shape[1])
    word2vec.tell_apart(inputs, context, rows, outputs, chosen, labels, columns, np.float32(0.5), room)
    np.testing.assert_allclose(inputs, wanted_inputs, atol=1e-6)
    np.testing.assert_allclose(outputs, wanted_outputs, atol=1e-6)


def test_a_word_that_is_twice_in_a_window_moves_twice() -> None:
    inputs, outputs = matrix(5, 1), matrix(5, 2)
    first, second = log_likelihood_step(inputs[[3, 3]], outputs[[1]], np.ones(1), 0.5)
    wanted, wanted_outputs = inputs[3] + first.sum(axis=0), outputs[1] + second[0]
    context, chosen = np.array([3, 3, 0, 0], np.int32), np.array([1, 0, 0, 0], np.int32)
    room = word2vec.room_for(4, 4, inputs.shape[1])
    word2vec.tell_apart(inputs, context, 2, outputs, chosen, np.ones(4, np.float32), 1, np.float32(0.5), room)
    np.testing.assert_allclose(inputs[3], wanted, atol=1e-6)
    np.testing.assert_allclose(outputs[1], wanted_outputs, atol=1e-6)


def two_words() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A corpus in which all noise is the word itself, so that a step has no random part: words 0 and 1, told by a tree."""
    return np.array([0, 1, -1], np.int32), np.full(2, (1 << 32) - 1, np.uint32), np.array([9, 3])


def test_cbow_moves_the_window_by_the_gradient_of_its_mean() -> None:
    ids, keep, counts = two_words()
    inputs, outputs = matrix(2, 1), matrix(2, 2)
    wanted, tops = inputs.copy(), outputs.astype(np.float64)
    for word, context in ((0, 1), (1, 0)):  # word 1 is the rarer one, to the left
        first, second = log_likelihood_step(wanted[[context]], tops[[0]], np.array([float(word == 1)]), 0.1)
        wanted[context] += first[0]
        tops[0] += second[0]
    word2vec.cbow(ids, inputs, outputs, keep, tree(counts), 1, 0.1, 0.1, 7)
    np.testing.assert_allclose(inputs, wanted, atol=1e-6)
    np.testing.assert_allclose(outputs, tops, atol=1e-6)


@pytest.mark.parametrize("kernel", [fasttext.skipgram, fasttext.cbow])
def test_fasttext_moves_all_rows_of_a_word_by_the_gradient_of_their_mean(kernel) -> None:  # type: ignore[no-untyped-def]
    ids, keep, counts = two_words()
    inputs, outputs = matrix(6, 1), matrix(2, 2)
    rows, starts = np.array([2, 3, 3, 4], np.int32), np.array([0, 2, 4], np.int64)  # word 0: 2 and 3; word 1: 3 and 4
    wanted, tops = inputs.astype(np.float64), outputs.astype(np.float64)
    parts = {0: [0, 2, 3], 1: [1, 3, 4]}
    for place in (0, 1):
        reads, told = (place, 1 - place) if kernel is fasttext.skipgram else (1 - place, place)
        hidden = wanted[parts[reads]].mean(axis=0, keepdims=True)
        first, second = log_likelihood_step(hidden, tops[[0]], np.array([float(told == 1)]), 0.1)
        wanted[parts[reads]] += first[0]
        tops[0] += second[0]
    kernel(ids, inputs, outputs, rows, starts, keep, tree(counts), 1, 0.1, 0.1, 7)
    np.testing.assert_allclose(inputs, wanted, atol=1e-6)
    np.testing.assert_allclose(outputs, tops, atol=1e-6)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is given back on Linux only")
def test_the_compiler_is_let_go_of_and_found_again() -> None:
    def resident() -> int:
        maps = re.findall(r" r-xp .*/libllvmlite\.so\n(?:.+\n)*?Rss: +(\d+) kB", Path("/proc/self/smaps").read_text())
        assert maps
        return sum(map(int, maps))

    njit(lambda x: x + 1)(1)
    before = resident()
    let_go_of_compiler()
    assert resident() < 0.1 * before
    assert njit(lambda x: x + 2)(1) == 3


def test_the_sigmoid_is_exact_to_float32() -> None:
    for x in np.linspace(-100, 100, 4001, dtype=np.float32):
        assert abs(sigmoid.py_func(x) - 1 / (1 + np.exp(-float(x)))) < 2e-7


def test_noise_words_are_drawn_by_count_to_the_power() -> None:
    counts = np.array([1000, 500, 100, 50, 10, 5, 1])
    targets, state, seen = noise(counts, 5, 0.75), np.uint64(1), np.zeros(7)
    for _ in range(50_000):
        state, word = draw_noise(state, targets)
        state = np.uint64(state)
        seen[word] += 1
    share = counts**0.75 / (counts**0.75).sum()
    assert (abs(seen / 50_000 - share) < 5 * np.sqrt(share / 50_000)).all()


def test_frequent_words_are_left_out_as_the_formula_says() -> None:
    counts = np.array([900_000, 90_000, 10_000])
    share = counts / counts.sum()
    wanted = np.minimum(np.sqrt(1e-3 / share) + 1e-3 / share, 1)
    ids = np.repeat(np.arange(3, dtype=np.int32), 40_000)
    keep, line = kept(counts, 1e-3), np.zeros(len(ids), np.int32)
    _, _, count = word2vec.next_line(ids, 0, keep, np.uint64(5), line)
    seen = np.bincount(line[:count], minlength=3) / 40_000
    np.testing.assert_allclose(seen, wanted, atol=0.01)
    assert seen[2] > 0.3 > seen[1] > seen[0]


def test_lines_end_and_rare_words_are_passed_over() -> None:
    ids, keep, line = np.array([-1, 0, 9, 1, -1, 1], np.int32), kept(np.array([5, 5]), 0), np.zeros(10, np.int32)
    place, state, count = word2vec.next_line(ids, 0, keep, np.uint64(5), line)
    assert (place, count, line[:2].tolist()) == (5, 2, [0, 1])
    assert word2vec.next_line(ids, place, keep, np.uint64(state), line)[2] == 1


def test_probabilities_down_the_tree_sum_to_one() -> None:
    counts = np.sort(np.random.default_rng(1).integers(1, 1000, 57))[::-1].copy()
    ways, scores = tree(counts), np.random.default_rng(2).normal(size=56)
    total, length = 0.0, 0
    for word in range(57):
        inside = slice(ways.starts[word], ways.starts[word + 1])
        left = 1 / (1 + np.exp(-scores[ways.nodes[inside]]))
        total += np.prod(np.where(ways.turns[inside] == 1, left, 1 - left))
        length += counts[word] * (inside.stop - inside.start)
    assert total == pytest.approx(1)
    entropy = -(counts / counts.sum() * np.log2(counts / counts.sum())).sum()
    assert entropy <= length / counts.sum() < entropy + 1  # what Huffman's code promises

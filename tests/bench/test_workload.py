"""The work is the same for all: batches of like length, texts that can be learned, and what a peer reads of them."""

from pathlib import Path

import numpy as np

from qkv.bench.worker import BenchmarkJob
from qkv.bench.workload import FIRST, SIZES, caption_pairs, learnable_pairs, length_batches, write_job


def test_batches_hold_pairs_of_like_length_and_about_the_tokens_asked_for() -> None:
    pairs = caption_pairs(5000, 100, seed=1)
    for numbers in length_batches(pairs, 1000, 20, seed=1):
        lengths = pairs.target.lengths(numbers) + 1
        assert lengths.sum() - lengths[-1] < 1000 <= lengths.sum()
        assert lengths.max() - lengths.min() <= 10


def test_riddles_have_one_answer() -> None:
    pairs = learnable_pairs(300, 30, seed=1)
    dictionary: dict[int, int] = {}
    for number in range(len(pairs)):
        for word, answer in zip(pairs.source[number], pairs.target[number], strict=True):
            assert dictionary.setdefault(int(word), int(answer)) == answer
    assert len(set(dictionary.values())) == len(dictionary) > 20


def test_a_worker_reads_what_was_written(tmp_path: Path) -> None:
    pairs = caption_pairs(40, 100, seed=1)
    chosen = length_batches(pairs, 60, 3, seed=1)
    write_job(tmp_path, pairs, chosen, kind="speed", size=SIZES["tiny"], device="cpu", seed=7, peak=1.0, warmup=4)
    job = BenchmarkJob(tmp_path, {"precision": "float32"})
    assert (job.seed, job.size["width"], job.kind) == (7, SIZES["tiny"].width, "speed")
    assert len(job.source) == 40 and np.array_equal(job.target[5], pairs.target[5])
    batch = job.batches[1]
    assert batch.tokens == sum(len(pairs.target[n]) + 1 for n in chosen[1]) == int((batch.target != job.pad).sum())
    first = batch.target[0][: len(pairs.target[chosen[1][0]]) + 1]
    assert first[-1] == job.eos and batch.read[0, 0] == job.bos and (first[:-1] >= FIRST).all()
    assert (batch.read[:, 1:][batch.target[:, :-1] != job.eos] == batch.target[:, :-1][batch.target[:, :-1] != job.eos]).all()
    assert [job.rate(step) for step in (1, 4, 16)] == [0.25, 1.0, 0.5]

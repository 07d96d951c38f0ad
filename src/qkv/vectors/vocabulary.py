"""The vocabulary of a corpus, subsampling of frequent words and target sampling (Mikolov et al. 2013b, sections 2.1 to 2.3)."""

import numpy as np

from qkv.base.errors import DataError
from qkv.vectors.corpus import WordCorpus
from qkv.vectors.kernels.sampling import TargetSampler
from qkv.vectors.kernels.tables import alias_table, huffman_paths, huffman_tree

ALWAYS = (1 << 32) - 1


def vocabulary_size(corpus: WordCorpus, min_count: int) -> int:
    """Return how many words occur at least `min_count` times; fewer than two are an error."""
    size = int((corpus.counts >= min_count).sum())
    if size < 2:
        word, most = corpus.words(1)[0], corpus.counts[0]
        raise DataError(
            f"{size} of {len(corpus.counts):,} words occur {min_count} times, at least two are needed "
            f"(the most frequent, {word!r}, occurs {most:,} times); lower min_count or give more text"
        )
    return size


def keep_thresholds(counts: np.ndarray, sample: float) -> np.ndarray:
    """Return the probability of keeping each word, times 2^32 - 1, (V,) uint32.

    The probability is word2vec.c's sqrt(t / f) + t / f for subsampling threshold t and word frequency f; 1 where t is 0.
    """
    if not sample:
        return np.full(len(counts), ALWAYS, np.uint32)
    ratio = sample * counts.sum() / counts
    return (np.minimum(np.sqrt(ratio) + ratio, 1) * ALWAYS).astype(np.uint32)


def negative_sampler(counts: np.ndarray, negatives: int, exponent: float) -> TargetSampler:
    """Sample negatives with probability proportional to count ** exponent."""
    threshold, alias = alias_table(counts.astype(np.float64) ** exponent)
    return TargetSampler(negatives, threshold, alias, np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))


def huffman_sampler(counts: np.ndarray) -> TargetSampler:
    """Use each word's path in the Huffman tree as its targets (hierarchical softmax)."""
    starts, nodes, codes = huffman_paths(*huffman_tree(counts))
    return TargetSampler(0, np.zeros(0, np.uint32), np.zeros(0, np.int32), starts, nodes, codes)

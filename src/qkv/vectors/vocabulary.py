"""Which words get vectors, how often frequent ones are read (Mikolov et al. 2013b, section 2.3), and what they are told from."""

import numpy as np

from qkv.base.errors import DataError
from qkv.vectors.corpus import Corpus
from qkv.vectors.kernels.sampling import Targets
from qkv.vectors.kernels.tables import alias_table, huffman, ways_down

ALWAYS = (1 << 32) - 1


def vocabulary_size(corpus: Corpus, min_count: int) -> int:
    """How many words occur often enough."""
    size = int((corpus.counts >= min_count).sum())
    if size < 2:
        word, most = corpus.words(1)[0], corpus.counts[0]
        raise DataError(
            f"{size} of {len(corpus.counts):,} words occur {min_count} times, two at least are needed "
            f"(the most frequent, {word!r}, does {most:,} times); lower min_count or give more text"
        )
    return size


def kept(counts: np.ndarray, sample: float) -> np.ndarray:
    """How often a word is read, of 2^32 - 1: word2vec.c's sqrt(t / f) + t / f for a share f of the text, always where t is 0."""
    if not sample:
        return np.full(len(counts), ALWAYS, np.uint32)
    ratio = sample * counts.sum() / counts
    return (np.minimum(np.sqrt(ratio) + ratio, 1) * ALWAYS).astype(np.uint32)


def noise(counts: np.ndarray, negatives: int, power: float) -> Targets:
    """Words told from noise words drawn by count to a power."""
    threshold, other = alias_table(counts.astype(np.float64) ** power)
    return Targets(negatives, threshold, other, np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))


def tree(counts: np.ndarray) -> Targets:
    """Words told by the turns on their ways down a Huffman tree (hierarchical softmax)."""
    starts, nodes, turns = ways_down(*huffman(counts))
    return Targets(0, np.zeros(0, np.uint32), np.zeros(0, np.int32), starts, nodes, turns)

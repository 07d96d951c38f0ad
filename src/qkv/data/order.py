"""The order of an epoch: a random permutation that can be entered anywhere, over a mixture of corpora by weight.

A window bounds how far it reaches: the shards of all corpora are permuted, and their pairs are one stream; each window of the
stream is permuted by itself. So training needs a few shards at a time. A window that covers the epoch changes nothing.
"""

from collections.abc import Sequence

import numpy as np

from qkv.base.seeds import permuted, rng_at, seed_at


class Order:
    """The pair and the corpus at each position of each epoch.

    Training sees a corpus of weight w w times an epoch; for a fraction, a new random part of it.
    """

    def __init__(
        self,
        sizes: list[int],
        weights: list[float],
        seed: int,
        window: int | None = None,
        shards: Sequence[Sequence[int]] | None = None,
    ):
        """`shards` are the sizes of each corpus's shards; by default each corpus is one."""
        self.sizes = sizes
        self.shares = [max(1, round(n * w)) if n else 0 for n, w in zip(sizes, weights, strict=True)]
        self.ends = np.cumsum(self.shares)
        self.seed = seed
        self.window = window if window is not None and window < len(self) else None
        if self.window is not None:
            self._blocks = _cut_blocks(shards or [[size] for size in sizes], sizes, self.shares)

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def at(self, epoch: int, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of the corpus and the number of the pair in it for each position."""
        if self.window is not None:
            return self._at_in_windows(epoch, positions)
        drawn = permuted(positions, len(self), seed_at(self.seed, "order", epoch))
        corpus = np.searchsorted(self.ends, drawn, side="right")
        within = drawn - np.where(corpus == 0, 0, self.ends[corpus - 1])
        pair = np.empty_like(within)
        for number, size in enumerate(self.sizes):
            here = corpus == number
            for turn in np.unique(within[here] // size) if here.any() else []:
                now = here & (within // size == turn)
                seed = seed_at(self.seed, "corpus", number, epoch, int(turn))
                pair[now] = permuted(within[now] % size, size, seed)
        return corpus, pair

    def _at_in_windows(self, epoch: int, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        assert self.window is not None
        order = rng_at(self.seed, "shards", epoch).permutation(len(self._blocks))
        corpus_of, turn_of, first_of, size_of, share_of = self._blocks[order].T
        ends = np.cumsum(share_of)
        drawn = np.empty_like(positions)
        for window in np.unique(positions // self.window).tolist():
            here, start = positions // self.window == window, window * self.window
            size = min(self.window, len(self) - start)
            drawn[here] = start + permuted(positions[here] - start, size, seed_at(self.seed, "window", epoch, window))
        block = np.searchsorted(ends, drawn, side="right")
        within = drawn - (ends - share_of)[block]
        pair = np.empty_like(within)
        for number in np.unique(block).tolist():
            here = block == number
            seed = seed_at(self.seed, "shard", int(corpus_of[number]), int(turn_of[number]), int(first_of[number]), epoch)
            pair[here] = first_of[number] + permuted(within[here], int(size_of[number]), seed)
        return corpus_of[block], pair


def _cut_blocks(shards: Sequence[Sequence[int]], sizes: Sequence[int], shares: Sequence[int]) -> np.ndarray:
    """Return the shards of an epoch: corpus, turn, first pair, pairs, and how many of these are read. -> (blocks, 5).

    In the last turn of a corpus, each shard gives the part of its pairs that completes the corpus's share.
    """
    blocks = []
    for corpus, (parts, size, share) in enumerate(zip(shards, sizes, shares, strict=True)):
        bounds = np.cumsum([0, *parts])
        for turn in range(-(-share // size) if size else 0):
            read = min(size, share - turn * size)
            until = bounds * read // size
            for number, pairs in enumerate(parts):
                if until[number + 1] > until[number]:
                    blocks.append((corpus, turn, bounds[number], pairs, until[number + 1] - until[number]))
    return np.array(blocks, dtype=np.int64)

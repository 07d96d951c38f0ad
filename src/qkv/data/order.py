"""The order of an epoch: a random permutation that can be entered anywhere, over a mixture of corpora by weight."""

import numpy as np

from qkv.base.seeds import permuted, seed_at


class Order:
    """The pair and the corpus at each position of each epoch.

    Training sees a corpus of weight w w times an epoch; for a fraction, a new random part of it.
    """

    def __init__(self, sizes: list[int], weights: list[float], seed: int):
        self.sizes = sizes
        self.shares = [max(1, round(n * w)) if n else 0 for n, w in zip(sizes, weights, strict=True)]
        self.ends = np.cumsum(self.shares)
        self.seed = seed

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def at(self, epoch: int, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of the corpus and the number of the pair in it for each position."""
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

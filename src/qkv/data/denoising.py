"""Batches for denoising: a segment of a document, corrupted anew each time, as source, and the missing text as target.

A document, or a part of a long one, is cut into segments. An epoch is a permutation of all segments, in pools; the segments of a
pool are corrupted together, from the seed and the pool's number alone, and packed like pairs for translation.
"""

from collections.abc import Callable, Iterator

import numpy as np

from qkv.base.errors import DataError
from qkv.base.seeds import rng_at
from qkv.data.batches import Batch, Batches, in_order
from qkv.data.documents import Documents
from qkv.data.order import Order
from qkv.data.tokens import Texts, TokenPairs, TokenTexts

Flat = tuple[np.ndarray, np.ndarray]  # concatenated token ids of many texts, and the length of each
Corrupt = Callable[[Flat, np.random.Generator], tuple[Flat, Flat]]  # texts -> sources and targets
MIN_LENGTH = 2  # tokens: a shorter segment would have nothing left after corruption


class DenoisingBatches(Batches):
    """Endless batches of corrupted segments of documents."""

    pool_size = 1 << 13  # segments

    def __init__(
        self,
        documents: Documents,
        chosen: np.ndarray,
        length: int,
        corrupt: Corrupt,
        *,
        seed: int,
        rows: int,
        widths: tuple[int, int],
        eos: int,
        fixed: bool = False,
        window: int | None = None,
    ):
        super().__init__([], [], seed=seed, tokens=rows * widths[1], widths=widths, eos=eos, fixed=fixed)
        self.texts, self.corrupt = documents.tokens, corrupt
        self.starts, self.sizes = segments(documents.tokens, chosen, length)
        if not len(self.sizes):
            raise DataError(f"no text of {MIN_LENGTH} tokens or more to be read; give more text")
        bounds = np.cumsum(documents.shards)[:-1]
        first = np.array(
            [documents.tokens.starts(np.array([b]))[0] if b < len(documents) else documents.tokens.tokens for b in bounds]
        )
        shards = np.diff(np.searchsorted(self.starts, first), prepend=0, append=len(self.starts)).tolist()
        self.order = Order([len(self.sizes)], [1.0], seed, window, [shards])

    @property
    def tokens_per_batch(self) -> str:
        """Describe the size of a batch."""
        (source, target), rows = self.widths, self.tokens // self.widths[1]
        return f"{rows * source:,} tokens a step, in rows of {source}, with {target} to predict for each"

    def _drawn(self, epoch: int, pool: int, positions: np.ndarray) -> tuple[list[TokenPairs], np.ndarray, np.ndarray]:
        _, piece = self.order.at(epoch, positions)
        made = self._corrupted(piece, rng_at(self.seed, "spans", epoch, pool))
        return [made], np.zeros_like(piece), np.arange(len(piece))

    def _corrupted(self, piece: np.ndarray, rng: np.random.Generator) -> TokenPairs:
        sizes = self.sizes[piece]
        ids = self.texts.spans(self.starts[piece], sizes).astype(np.int64)
        source, target = self.corrupt((ids, sizes), rng)
        return TokenPairs(*(TokenTexts(tokens, np.cumsum(lengths)) for tokens, lengths in (source, target)))

    def in_order(self) -> Iterator[Batch]:
        """Yield every segment once, always with the same corruption, for validation."""
        return self.pack_in_order(self.pairs_in_order())

    def pairs_in_order(self) -> TokenPairs:
        """Return every segment once, always with the same corruption."""
        return self._corrupted(np.arange(len(self.sizes)), rng_at(self.seed, "spans of dev"))

    def pack_in_order(self, pairs: TokenPairs) -> Iterator[Batch]:
        """Yield batches of these pairs."""
        return in_order(pairs, tokens=self.tokens, widths=self.widths, eos=self.eos)


def segments(texts: Texts, chosen: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where the segments of some texts begin and how long they are: `length` tokens, which fill a row, and the rest."""
    lengths = texts.lengths(chosen)
    many = -(-lengths // length)
    before = length * (np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many))  # tokens of the same text
    starts = np.repeat(texts.starts(chosen), many) + before
    sizes = np.minimum(np.repeat(lengths, many) - before, length)
    return starts[sizes >= MIN_LENGTH], sizes[sizes >= MIN_LENGTH]

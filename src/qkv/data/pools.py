"""Pools: documents whose texts are packed together into rows, and the rows dealt into batches.

A stream is the concatenation of parts of documents; texts are made from it and packed. Offsets count tokens of the stream.
"""

from itertools import accumulate
from typing import NamedTuple

import numpy as np

from qkv.data.documents import Documents
from qkv.data.inputs import PASSAGE_TASKS
from qkv.data.sentence_tasks import CutTexts, TaskTexts
from qkv.data.tokens import TokenTexts

DOCUMENT = PASSAGE_TASKS.index("document")


class Stream(NamedTuple):
    """The concatenation of parts of documents."""

    ids: np.ndarray
    flags: np.ndarray
    ends: np.ndarray  # of sentences
    borders: np.ndarray  # offsets of the parts, and the end of the last
    document: np.ndarray  # the number of each part's document
    first: np.ndarray  # whether each part is the first of its document
    last: np.ndarray  # or the last

    def split_near(self, offset: int) -> tuple["Stream", "Stream"]:
        """Split the stream at the end of the sentence that an offset lies in."""
        sentence = min(int(np.searchsorted(self.ends, offset)), len(self.ends) - 1)
        at = int(self.ends[sentence])
        begun, done = np.searchsorted(self.borders, at), np.searchsorted(self.borders, at, "right")
        first, rest = np.append(self.borders[:begun], at), np.append(at, self.borders[done:]) - at
        begins, ends = self.first & (self.borders[:-1] >= at), self.last & (self.borders[1:] <= at)
        one, two = slice(begun), slice(done - 1, None)
        return (
            Stream(
                self.ids[:at], self.flags[:at], self.ends[: sentence + 1], first, self.document[one], self.first[one], ends[one]
            ),
            Stream(
                self.ids[at:],
                self.flags[at:],
                self.ends[sentence + 1 :] - at,
                rest,
                self.document[two],
                begins[two],
                self.last[two],
            ),
        )


def read_stream(documents: Documents, chosen: np.ndarray) -> Stream:
    """Concatenate some documents, or parts of them, in this order."""
    return Stream(
        documents.tokens.gather(chosen),
        documents.flags.gather(chosen),
        np.cumsum(documents.sentences.gather(chosen), dtype=np.int64),
        np.append(0, np.cumsum(documents.tokens.lengths(chosen))),
        documents.document[chosen],
        documents.first[chosen],
        documents.last[chosen],
    )


class PackedTexts(NamedTuple):
    """The tokens of a stream, the texts made from them, and the rows that the texts share."""

    ids: np.ndarray
    flags: np.ndarray
    texts: TaskTexts
    members: np.ndarray  # texts, row after row
    counts: np.ndarray  # texts in each row

    def rows(self, numbers: np.ndarray) -> "PackedTexts":
        """Return only these rows, in this order."""
        members = TokenTexts(self.members, np.cumsum(self.counts)).gather(numbers)
        return self._replace(members=members, counts=self.counts[numbers])


def concatenate(many: list[PackedTexts]) -> PackedTexts:
    """Concatenate the rows of several streams."""
    if len(many) == 1:
        return many[0]
    tokens, texts = ([0, *accumulate(sizes)] for sizes in ([len(p.ids) for p in many], [len(p.texts.task) for p in many]))
    moved = [p.texts._replace(start=p.texts.start + before) for p, before in zip(many, tokens, strict=False)]
    return PackedTexts(
        np.concatenate([p.ids for p in many]),
        np.concatenate([p.flags for p in many]),
        TaskTexts(*map(np.concatenate, zip(*moved, strict=True))),
        np.concatenate([p.members + before for p, before in zip(many, texts, strict=False)]),
        np.concatenate([p.counts for p in many]),
    )


class Pool(NamedTuple):
    """Packed rows, dealt into batches."""

    packed: PackedTexts
    borders: list[int]  # the first row of each batch, and the number of all rows

    @property
    def batches(self) -> int:
        return len(self.borders) - 1


def deal_batches(stages: list[PackedTexts], size: int) -> Pool:
    """Deal rows into batches of at most `size`, one stage after the other, as evenly as possible within each."""
    borders = [0]
    for rows in (len(stage.counts) for stage in stages):
        batches = -(-rows // size)
        borders += [borders[-1] + number * rows // batches for number in range(1, batches + 1)]
    return Pool(concatenate(stages), borders)


def occur_elsewhere(ids: np.ndarray, texts: CutTexts, shaped: TaskTexts) -> np.ndarray:
    """Return which tokens of the texts for the task `document`, which have one piece, also occur outside it in their part."""
    size = texts.end - texts.begin
    bits = len(ids).bit_length()
    kind = np.repeat(texts.part, size) * (int(ids.max()) + 1) + ids  # the same where the same token is in one part
    sorted_kind = np.sort(kind << bits | np.arange(len(ids)))
    position = sorted_kind & (1 << bits) - 1
    edges = np.flatnonzero(np.diff(sorted_kind >> bits, prepend=-1, append=-1))
    many = np.diff(edges)
    first, last = np.repeat(position[edges[:-1]], many), np.repeat(position[edges[1:] - 1], many)
    begin = shaped.start[:, 0]
    end = begin + shaped.length[:, 0]
    text = np.repeat(np.arange(len(size)), size)[position]
    found = np.empty(len(ids), dtype=bool)
    found[position] = (first < begin[text]) | (last >= end[text])
    return found & np.repeat(texts.task == DOCUMENT, size)

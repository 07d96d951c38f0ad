"""Documents cut into texts, and texts shaped for the tasks on sentences, for a pool of documents at once.

A text is one piece of its document, or two or three pieces that meet between sentences; the tasks exchange or reorder pieces:

    next      BERT, 3.1: does the second follow the first, or is it from another document?
    order     ALBERT, 3.1: as in the document, or swapped?
    reorder   ERNIE 2.0, 4.2: in which of 1! + 2! + 3! orders are one, two or three pieces?
    distance  ERNIE 2.0, 4.2: side by side in the document, elsewhere in the same one, or from two documents?
    sequence  UniLM, 2.3: no question; the second continues the first

Where the papers draw a second piece at random from the corpus, texts here exchange theirs, so that an epoch reads everything
once. Lengths do not depend on the label: for distance, texts come in couples of neighbours. Offsets count tokens of
the concatenated documents of the pool; P is the number of texts.
"""

from itertools import permutations
from typing import NamedTuple

import numpy as np

from qkv.base.rows import IGNORE_INDEX
from qkv.data.inputs import PASSAGE_TASKS

MASKING, NEXT, ORDER, REORDER, DISTANCE, SEQUENCE = (
    PASSAGE_TASKS.index(name) for name in ("masking", "next", "order", "reorder", "distance", "sequence_to_sequence")
)
PAIR_TASKS = (NEXT, ORDER, DISTANCE, SEQUENCE)
WHOLE_SENTENCES = [ORDER, REORDER, DISTANCE]  # half a sentence at the end of a piece would give the label away
MAX_PIECES = 3  # in a text
WINDOW = 16  # texts of about the same length among which pieces are exchanged

# The orders of one piece, of two and of three, by number.
ORDERS = np.array([(*order, *range(many, MAX_PIECES)) for many in (1, 2, 3) for order in permutations(range(many))])
FIRST_ORDER = np.array([0, 0, 1, 3])  # by the number of pieces
ORDER_COUNTS = np.array([0, 1, 2, 6])  # by the number of pieces


class CutTexts(NamedTuple):
    """Texts as they are in their documents, in order; all arrays are (P,)."""

    part: np.ndarray  # the part of a document, by its number in the pool
    begin: np.ndarray
    end: np.ndarray
    task: np.ndarray


class TaskTexts(NamedTuple):
    """Texts as the model reads them."""

    start: np.ndarray  # (P, 3) where each piece begins
    length: np.ndarray  # (P, 3) tokens of each piece; 0 where there is none
    task: np.ndarray  # (P,) masking where a text could not be shaped for its own task
    labels: np.ndarray  # (P,)
    has_bos: np.ndarray  # (P,) whether bos is before it; otherwise the token before it in its document is
    has_eos: np.ndarray  # (P,) whether eos is after each of its pieces; otherwise nothing is


# Special tokens in a text of each task: one at its beginning and one after each piece.
SPECIAL = np.array(
    [1 + (MAX_PIECES if task == REORDER else 2 if task in PAIR_TASKS else 1) for task in range(len(PASSAGE_TASKS))]
)


def cut_texts(ends: np.ndarray, borders: np.ndarray, width: int, weights: np.ndarray, rng: np.random.Generator) -> CutTexts:
    """Cut parts of documents, which lie between `borders`, into texts that fit a width with their special tokens.

    Sentences end at `ends`. The task of each text is drawn by weight. Texts are as long as possible; but where one of the tasks
    WHOLE_SENTENCES is among them, all end with the sentence whose end is nearest to that (`TaskShaper` shortens texts that are
    then too long), and only a sentence that does not fit by itself is cut. A step of the loop cuts the next text of every part.
    Texts for distance are couples: the first and the second of a part, the third and the fourth, and so on.
    """
    whole = weights[WHOLE_SENTENCES].any()
    found: list[tuple[np.ndarray, ...]] = []
    part, begin, last = np.arange(len(borders) - 1), borders[:-1], borders[1:]
    task = np.full(len(part), MASKING)  # of the text before
    while len(part):
        task = _draw(weights, task, rng, second=len(found) % 2 == 1)
        end = begin + width - SPECIAL[task]
        if whole:
            end = _end_of_sentence(ends, begin, end)
        end = np.minimum(end, last)
        found.append((part, begin, end, task))
        left = end < last
        part, begin, last, task = part[left], end[left], last[left], task[left]
    columns = [np.concatenate(column) for column in zip(*found, strict=True)]
    order = np.argsort(columns[1])
    return CutTexts(*(column[order] for column in columns))


def continuous_texts(
    texts: CutTexts, borders: np.ndarray, first: np.ndarray, last: np.ndarray
) -> tuple[CutTexts, np.ndarray, np.ndarray]:
    """Return texts that follow a known token, and which of them begin and which end their documents, both (P,).

    A part that does not begin its document has no known token before it, so its first token takes that role. `first` and `last`
    say which parts are the first and last of their documents.
    """
    at_first, at_last = texts.begin == borders[texts.part], texts.end == borders[texts.part + 1]
    has_bos, has_eos = at_first & first[texts.part], at_last & last[texts.part]
    texts = texts._replace(begin=texts.begin + (at_first & ~has_bos))
    some = texts.end > texts.begin
    return CutTexts(*(column[some] for column in texts)), has_bos[some], has_eos[some]


def _draw(weights: np.ndarray, before: np.ndarray, rng: np.random.Generator, second: bool) -> np.ndarray:
    """Draw the task of the next text of each part; both texts of a couple for distance have that task."""
    if not second:
        return rng.choice(len(PASSAGE_TASKS), size=len(before), p=weights)
    others = weights * (np.arange(len(PASSAGE_TASKS)) != DISTANCE)
    others[MASKING] += not others.any()
    return np.where(before == DISTANCE, DISTANCE, rng.choice(len(PASSAGE_TASKS), size=len(before), p=others / others.sum()))


def _end_of_sentence(ends: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return the nearest end of a sentence; `end` itself where the first sentence is longer."""
    after = np.searchsorted(ends, end, "right")
    short, long = np.where(after > 0, ends[after - 1], 0), ends[np.minimum(after, len(ends) - 1)]
    return np.where(short > begin, np.where(long - end <= end - short, long, short), end)


class TaskShaper:
    """Divides and exchanges the texts of a pool for their tasks; `document` is the number of each part's document."""

    def __init__(self, texts: CutTexts, ends: np.ndarray, document: np.ndarray, width: int, rng: np.random.Generator):
        self.texts, self.ends, self.width, self.rng = texts, ends, width, rng
        self.document = document[texts.part]
        self.first = np.searchsorted(ends, texts.begin, "right")  # the first sentence to end inside the text
        self.inside = np.searchsorted(ends, texts.end, "left") - self.first  # how many do
        one_piece = np.isin(texts.task, PAIR_TASKS) & (self.inside == 0)
        self.task = np.where(one_piece, MASKING, texts.task)
        self.labels = np.full(len(self.task), IGNORE_INDEX)
        self.start, self.length = np.zeros((2, len(self.task), MAX_PIECES), dtype=np.int64)
        self.start[:, 0], self.length[:, 0] = texts.begin, texts.end - texts.begin

    def shaped(self) -> TaskTexts:
        """Return all texts, shaped for their tasks."""
        shapes = {
            NEXT: self._next,
            ORDER: self._order,
            REORDER: self._reorder,
            DISTANCE: self._distance,
            SEQUENCE: self._sequence,
        }
        for task, shape in shapes.items():
            shape(np.flatnonzero(self.task == task))
        self._trim(np.arange(len(self.task)))
        return TaskTexts(self.start, self.length, self.task, self.labels, *np.ones((2, len(self.task)), dtype=bool))

    def _next(self, texts: np.ndarray) -> None:
        self._divide(texts, self._shares(texts))
        self.labels[texts] = 0
        self._exchange_half(texts, label=1)

    def _sequence(self, texts: np.ndarray) -> None:
        self._divide(texts, self._shares(texts))

    def _order(self, texts: np.ndarray) -> None:
        self._divide(texts, self._shares(texts))
        self.labels[texts] = 0
        turned = self._some(texts, len(texts) // 2)
        self._put(turned, np.broadcast_to(ORDERS[2], (len(turned), MAX_PIECES)))
        self.labels[turned] = 1

    def _reorder(self, texts: np.ndarray) -> None:
        many = np.minimum(self.rng.integers(1, MAX_PIECES + 1, len(texts)), self.inside[texts] + 1)
        self._divide(texts[many == 2], self._shares(texts[many == 2]))
        self._divide_in_three(texts[many == 3])
        order = FIRST_ORDER[many] + self.rng.integers(0, ORDER_COUNTS[many])
        self._put(texts, ORDERS[order])
        self.labels[texts] = order

    def _distance(self, texts: np.ndarray) -> None:
        """Give a third of the texts each label; a text outside couples stays in one piece, for masking only."""
        one = self._couples()
        two = one + 1
        self.task[np.setdiff1d(texts, [one, two])] = MASKING
        size = self.texts.end - self.texts.begin
        self._divide(one, 1 - self._shares(one) * np.minimum(size[one], size[two]) / size[one])
        self._divide(two, self.length[one, 1] / size[two])
        self._mix(one, two, self._some(np.arange(len(one)), len(one) // 3))
        self._exchange_half(np.sort(np.concatenate([one, two])), label=2)

    def _couples(self) -> np.ndarray:
        """Return the first texts of the couples from `cut_texts` whose two texts can be divided; the second is the next one."""
        texts = np.flatnonzero(self.texts.task == DISTANCE)
        part = self.texts.part[texts]
        number = np.arange(len(texts)) - np.searchsorted(part, part)  # within its part
        first = texts[:-1][(number[:-1] % 2 == 0) & (part[:-1] == part[1:])]
        return first[(self.inside[first] > 0) & (self.inside[first + 1] > 0)]

    def _mix(self, one: np.ndarray, two: np.ndarray, some: np.ndarray) -> None:
        """Turn some couples a, b and c, d into a, c and b, d: pieces of one document that are not neighbours in it.

        In all couples b and c, which have about the same length, are made equally long first; they are not shortened where the
        pieces meet, since half a sentence there would give the label away.
        """
        self.labels[one] = self.labels[two] = 0
        self.labels[one[some]] = self.labels[two[some]] = 1
        mixed = self.labels[one] == 1
        (b, c), (long_b, long_c) = ((pieces[one, 1], pieces[two, 0]) for pieces in (self.start, self.length))
        both = np.minimum(long_b, long_c)
        self.start[one, 1] = np.where(mixed, c, b)
        self.start[two, 0] = np.where(mixed, b + long_b, c + long_c) - both
        self.length[one, 1] = self.length[two, 0] = both

    def _exchange_half(self, texts: np.ndarray, label: int) -> None:
        """Give half of the texts that have their own second piece one from another document.

        Texts with first pieces of about the same length exchange, after the second pieces of all texts were made to fit any of
        them: the length of a text must not give the label away.
        """
        window = _windows(self.length[texts, 0], WINDOW)
        longest = np.zeros(len(texts), dtype=np.int64)
        np.maximum.at(longest, window, self.length[texts, 0])
        self._fit(texts, longest[window])
        own = np.flatnonzero(self.labels[texts] == 0)
        some = self._some(own, len(own) // 2)
        self._exchange(texts[some], window[some], label)

    def _exchange(self, texts: np.ndarray, window: np.ndarray, label: int) -> None:
        """Give each text a second piece from another document, within its window where possible."""
        document = self.document[texts]
        giver = _givers(document, window)
        own = np.flatnonzero(document == document[giver])
        giver[own] = giver[own[_givers(document[own], np.zeros_like(own))]]
        for pieces in (self.start, self.length):
            pieces[texts, 1] = pieces[texts[giver], 1]
        # Leftovers get a piece of their own document, where it has more than half of the texts.
        self.labels[texts] = np.where(document == document[giver], IGNORE_INDEX, label)
        self._fit(texts, self.length[texts, 0])

    def _fit(self, texts: np.ndarray, before: np.ndarray) -> None:
        """Shorten second pieces to fit after first ones of these lengths."""
        self.length[texts, 1] = np.minimum(self.length[texts, 1], self.width - SPECIAL[NEXT] - before)

    def _some(self, texts: np.ndarray, many: int) -> np.ndarray:
        return self.rng.permutation(texts)[:many]

    def _shares(self, texts: np.ndarray) -> np.ndarray:
        """Draw the share of its length at which each text is divided, neither near its beginning nor near its end."""
        return self.rng.uniform(0.25, 0.75, len(texts))

    def _divide(self, texts: np.ndarray, shares: np.ndarray) -> None:
        """Divide each text into two pieces."""
        self._pieces(texts, self.ends[self._nearest(texts, shares)][:, None])

    def _divide_in_three(self, texts: np.ndarray) -> None:
        one = self._nearest(texts, self.rng.uniform(1 / 6, 1 / 2, len(texts)))
        one = np.minimum(one, (self.first + self.inside)[texts] - 2)
        two = np.maximum(self._nearest(texts, self.rng.uniform(1 / 2, 5 / 6, len(texts))), one + 1)
        self._pieces(texts, self.ends[np.stack([one, two], axis=1)])

    def _nearest(self, texts: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """Return the sentence inside each text whose end is nearest to a share of its length."""
        aim = self.texts.begin[texts] + shares * (self.texts.end - self.texts.begin)[texts]
        after = np.searchsorted(self.ends, aim)
        nearest = after - (aim - self.ends[after - 1] < self.ends[after] - aim)
        return np.clip(nearest, self.first[texts], (self.first + self.inside)[texts] - 1)

    def _pieces(self, texts: np.ndarray, positions: np.ndarray) -> None:
        """Divide texts at these offsets (P, 1 or 2)."""
        edges = np.column_stack([self.texts.begin[texts], positions, self.texts.end[texts]])
        many = edges.shape[1] - 1
        self.start[texts, :many] = edges[:, :-1]
        self.length[texts, :many] = np.diff(edges)
        self._trim(texts)

    def _trim(self, texts: np.ndarray) -> None:
        """Shorten the longest piece of texts that are too long, at its beginning or at its end, as ALBERT's authors do."""
        too_long = self.length[texts].sum(1) - (self.width - SPECIAL[self.task[texts]])
        texts, too_long = texts[too_long > 0], too_long[too_long > 0]
        piece = self.length[texts].argmax(1)
        self.length[texts, piece] -= too_long
        self.start[texts, piece] += too_long * self.rng.integers(0, 2, len(texts))

    def _put(self, texts: np.ndarray, order: np.ndarray) -> None:
        """Put the pieces of each text into an order (P, 3)."""
        for pieces in (self.start, self.length):
            pieces[texts] = np.take_along_axis(pieces[texts], order, axis=1)


def _windows(length: np.ndarray, together: int) -> np.ndarray:
    """Return the window of each text: about `together` texts of similar length share one."""
    many = len(length)
    rank = np.empty(many, dtype=np.int64)
    rank[np.argsort(length, kind="stable")] = np.arange(many)
    return rank * max(1, many // together) // max(1, many)


def _givers(document: np.ndarray, window: np.ndarray) -> np.ndarray:
    """Return for each text another one of its window, from another document unless one has more than half of them."""
    order = np.lexsort((document, window))  # within a window, texts of one document are neighbours
    first, size = np.searchsorted(window[order], window[order]), np.bincount(window)[window[order]]
    giver = np.empty(len(order), dtype=np.int64)
    giver[order] = order[first + (np.arange(len(order)) - first + size // 2) % size]
    return giver

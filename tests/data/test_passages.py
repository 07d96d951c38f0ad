"""Passages: everything is read once, in the shapes and with the answers of its tasks, in an order that resumes anywhere."""

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pytest
import torch

from qkv.base.errors import ConfigError, DataError
from qkv.base.rows import IGNORE_INDEX
from qkv.data import passages as module
from qkv.data.batches import START, Batch, Position
from qkv.data.documents import Documents
from qkv.data.inputs import BEGINS_UNIT, BEGINS_WORD, CAPITAL, OCCURS_ELSEWHERE, PASSAGE_TASKS
from qkv.data.passages import PassageBatches, Tasks
from qkv.data.pools import read_stream
from qkv.data.sentence_tasks import ORDERS
from qkv.data.tokens import token_texts

PAD, BOS, EOS, FIRST = 0, 2, 3, 10  # FIRST is the first id that stands for a token of the text
LENGTH, ROWS = 48, 5
PLAIN: Tasks = {"masking": (1.0, 0)}


class Corpus(NamedTuple):
    """Documents whose tokens all differ, so that each tells where it stands."""

    documents: Documents
    document: np.ndarray  # of each place
    sentence_ends: set[int]


def corpus(many: int = 60, sentences: int = 12, longest: int = 20, seed: int = 1, parts: int = 1) -> Corpus:
    """So many parts, and of so many of them each document."""
    rng = np.random.default_rng(seed)
    lengths = [rng.integers(1, longest + 1, rng.integers(1, sentences + 1)).tolist() for _ in range(many)]
    sizes = [sum(document) for document in lengths]
    ids = np.split(np.arange(FIRST, FIRST + sum(sizes)), np.cumsum(sizes)[:-1])
    flags = [rng.integers(0, 8, size).tolist() for size in sizes]
    number = np.arange(many) // parts
    documents = Documents(token_texts([i.tolist() for i in ids]), token_texts(lengths), token_texts(flags), number)
    return Corpus(documents, np.repeat(number, sizes), set(np.cumsum(list(itertools.chain(*lengths))).tolist()))


def batches_of(source: Corpus, tasks: Tasks, **other: object) -> PassageBatches:
    chosen = np.arange(len(source.documents))
    given = {"documents": source.documents, "chosen": chosen, "seed": 7, "rows": ROWS, "length": LENGTH, "tasks": tasks}
    return PassageBatches(**{**given, "bos": BOS, "eos": EOS, "pad": PAD, **other})  # type: ignore[arg-type]


class Text(NamedTuple):
    pieces: list[range]  # places in the corpus
    task: str
    label: int


def texts_in(batches: Iterable[Batch]) -> list[Text]:
    return [text for batch in batches for text in texts_of_batch(batch)]


def texts_of_batch(batch: Batch) -> list[Text]:
    """The texts of a batch, read back from the layout, which is checked on the way."""
    (rows,) = batch.inputs
    found = []
    for ids, text, position, segment, flags, task, first, labels in zip(*(t.tolist() for t in rows), strict=True):
        count = max(text)
        assert text == sorted(text[: len(text) - text.count(0)]) + [0] * text.count(0)
        assert first[count:] == [0] * (len(first) - count) and labels[count:] == [IGNORE_INDEX] * (len(first) - count)
        for number in range(1, count + 1):
            here = [i for i in range(len(text)) if text[i] == number]
            assert [position[i] for i in here] == list(range(len(here)))
            assert first[number - 1] == here[0] and len({task[i] for i in here}) == 1
            pieces = pieces_of([ids[i] for i in here], [segment[i] for i in here])
            found.append(Text(pieces, PASSAGE_TASKS[task[here[0]]], labels[number - 1]))
        for i, token in enumerate(ids):
            if text[i] == 0:
                assert (token, position[i], segment[i], flags[i], task[i]) == (PAD, 0, 0, BEGINS_WORD | BEGINS_UNIT, 0)
    return found


def pieces_of(ids: list[int], segments: list[int]) -> list[range]:
    assert ids[0] == BOS and ids[-1] == EOS
    pieces: list[range] = []
    start = 1
    for end in (i for i, token in enumerate(ids) if token == EOS):
        piece = range(ids[start] - FIRST, ids[end - 1] - FIRST + 1)
        assert [token - FIRST for token in ids[start:end]] == list(piece)
        assert set(segments[start : end + 1]) == {len(pieces) % 2}
        pieces.append(piece)
        start = end + 1
    assert segments[0] == 0
    return pieces


def same(one: Batch, two: Batch) -> bool:
    tensors = zip(one.inputs[0], two.inputs[0], strict=True)
    counts = [(b.labels, b.tokens, b.positions, b.filled, b.after) for b in (one, two)]
    return all(torch.equal(a, b) for a, b in tensors) and counts[0] == counts[1]


def epoch(source: PassageBatches, number: int = 0) -> list[Batch]:
    """The batches of one epoch."""
    return list(itertools.takewhile(lambda batch: batch.after.epoch == number, source.starting(Position(epoch=number))))


def places_read(texts: list[Text]) -> Counter[int]:
    return Counter(position for text in texts for piece in text.pieces for position in piece)


def document_of(source: Corpus, piece: range) -> int:
    found = set(source.document[piece.start : piece.stop].tolist())
    assert len(found) == 1, "a piece is of one document"
    return found.pop()


class Read:
    """Where the texts of an epoch stand in the corpus."""

    def __init__(self, source: Corpus, texts: list[Text]):
        self.source, self.positions = source, places_read(texts)

    def adjacent(self, one: range, two: range) -> bool:
        """Whether two follows one in their document, and nothing that is read stands between them."""
        one_document = document_of(self.source, one) == document_of(self.source, two)
        return one_document and one.stop <= two.start and not any(map(self.positions.get, range(one.stop, two.start)))

    def right(self, text: Text) -> bool:
        """Whether a text's answer is what its pieces say, for those that have one."""
        pieces, label = text.pieces, text.label
        same_document = len({document_of(self.source, piece) for piece in pieces}) == 1
        if label == IGNORE_INDEX:
            return text.task != "reorder"
        if text.task == "reorder":
            in_order = sorted(pieces, key=lambda piece: piece.start)
            known = all(itertools.starmap(self.adjacent, itertools.pairwise(in_order)))
            return known and [in_order[i] for i in ORDERS[label][: len(pieces)]] == pieces and (0, 1, 3)[len(pieces) - 1] <= label
        side_by_side = self.adjacent(*pieces), self.adjacent(*reversed(pieces))
        if text.task == "order":
            return side_by_side[label]
        elsewhere = {"next": 1, "distance": 2}[text.task]
        return label == (0 if side_by_side[0] else elsewhere if not same_document else 1 if not side_by_side[1] else None)

    def check_once(self, share: float) -> None:
        assert set(self.positions.values()) == {1} and len(self.positions) > share * len(self.source.document)

    def check_whole(self, texts: list[Text]) -> None:
        """Pieces begin and end with sentences, but for one that was shortened at one end."""
        for text in texts:
            edges = [edge for piece in text.pieces for edge in (piece.start, piece.stop)]
            assert sum(edge not in self.source.sentence_ends | {0} for edge in edges) <= 1


@pytest.mark.parametrize("pool", [400, 1500, 1 << 22])
@pytest.mark.parametrize("length", [8, 48, 256])
def test_plain_texts_hold_every_token_once(monkeypatch: pytest.MonkeyPatch, pool: int, length: int) -> None:
    monkeypatch.setattr(module, "POOL", pool)
    source = corpus()
    chosen = np.arange(3, 50)
    batches = epoch(batches_of(source, PLAIN, chosen=chosen, length=length), 2)
    texts = texts_in(batches)
    wanted = np.flatnonzero(np.isin(source.document, chosen))
    assert places_read(texts) == Counter(wanted.tolist())
    assert all(len(text.pieces) == 1 and text.task == "masking" and text.label == IGNORE_INDEX for text in texts)
    assert all(document_of(source, text.pieces[0]) in chosen for text in texts)


def test_batches_have_one_shape_and_say_what_they_hold() -> None:
    for batch in epoch(batches_of(corpus(longest=3, sentences=2), {"next": (1.0, 0)})):
        (rows,) = batch.inputs
        assert {tuple(t.shape) for t in rows[:6]} == {(ROWS, LENGTH)} and rows.first.shape == rows.labels.shape == (
            ROWS,
            LENGTH // 16,
        )
        assert all(t.dtype == torch.int64 for t in rows)
        filled = int((rows.text > 0).sum())
        assert (batch.filled, batch.tokens, batch.labels, batch.positions) == (filled, filled, filled, ROWS * LENGTH)


def test_rows_are_full() -> None:
    batches = epoch(batches_of(corpus(400), PLAIN))
    assert sum(b.filled for b in batches) > 0.97 * sum(b.positions for b in batches)


def test_marks_are_those_of_the_tokens() -> None:
    source = corpus()
    for batch in epoch(batches_of(source, {"next": (1.0, 0), "masking": (1.0, 0)})):
        (rows,) = batch.inputs
        ids, flags = rows.ids.flatten().numpy(), rows.flags.flatten().numpy()
        token = ids >= FIRST
        known = source.documents.flags.ids[ids[token] - FIRST]
        begins_piece = ~np.concatenate([[False], token[:-1]])[token]
        assert (flags[token] == np.where(begins_piece, known | BEGINS_WORD | BEGINS_UNIT, known)).all()
        assert (flags[~token] == BEGINS_WORD | BEGINS_UNIT).all()


def test_next() -> None:
    source = corpus(300)
    texts = texts_in(epoch(batches_of(source, {"next": (1.0, 0)})))
    read = Read(source, texts)
    pairs = [text for text in texts if len(text.pieces) == 2]
    assert all(text.task == "next" and read.right(text) for text in pairs)
    assert all(text.task == "masking" and text.label == IGNORE_INDEX for text in texts if len(text.pieces) != 2)
    assert all(a.stop in source.sentence_ends and b.start in source.sentence_ends for a, b in (text.pieces for text in pairs))
    assert sum(text.label for text in pairs) == len(pairs) // 2
    read.check_once(0.98)


def test_length_does_not_tell_which_pairs_are_random() -> None:
    texts = texts_in(epoch(batches_of(corpus(400, sentences=60), {"next": (1.0, 0)}, length=256)))
    full = [np.mean([sum(map(len, text.pieces)) == 253 for text in texts if text.label == label]) for label in (0, 1)]
    assert abs(full[0] - full[1]) < 0.05


def test_length_does_not_tell_the_distance() -> None:
    source = corpus(1600, sentences=30, longest=9)  # half of them of one text, the others of several
    texts = texts_in(epoch(batches_of(source, {"distance": (2.0, 0), "masking": (1.0, 0)}, length=80, rows=50)))
    lengths = [np.array([list(map(len, text.pieces)) for text in texts if text.label == label]) for label in range(3)]
    assert min(map(len, lengths)) > 300
    for each in (np.sum, lambda pieces, axis: pieces[:, 0], lambda pieces, axis: pieces[:, 1]):
        means = [each(pieces, axis=1).mean() for pieces in lengths]
        assert max(means) - min(means) < 6, means


def test_what_one_document_has_too_many_of_is_left_without_an_answer() -> None:
    ids = [list(range(FIRST, FIRST + 1000)), list(range(FIRST + 1000, FIRST + 1020))]
    documents = Documents(token_texts(ids), token_texts([[5] * 200, [5] * 4]), token_texts(ids))
    source = Corpus(documents, np.repeat([0, 1], [1000, 20]), set(range(0, 1021, 5)))
    texts = texts_in(epoch(batches_of(source, {"next": (1.0, 0)})))
    read = Read(source, texts)
    assert all(map(read.right, texts))
    assert Counter(text.label for text in texts)[IGNORE_INDEX] > 5


@pytest.mark.parametrize("task", ["next", "distance"])
def test_parts_of_one_document_are_not_two_documents(task: str) -> None:
    source = corpus(60, sentences=40, parts=15)
    texts = texts_in(epoch(batches_of(source, {task: (1.0, 0)})))
    other = [text for text in texts if text.label == {"next": 1, "distance": 2}[task]]
    assert len(other) > len(texts) / 5
    assert all(document_of(source, one) != document_of(source, two) for one, two in (text.pieces for text in other))


def test_order() -> None:
    source = corpus(300)
    texts = texts_in(epoch(batches_of(source, {"order": (1.0, 0)})))
    read = Read(source, texts)
    pairs = [text for text in texts if len(text.pieces) == 2]
    assert all(text.task == "order" and read.right(text) for text in pairs)
    assert sum(text.label for text in pairs) == len(pairs) // 2
    read.check_once(0.95)
    read.check_whole(texts)


def test_reorder() -> None:
    source = corpus(400)
    texts = texts_in(epoch(batches_of(source, {"reorder": (1.0, 0)})))
    read = Read(source, texts)
    assert all(text.task == "reorder" and read.right(text) for text in texts)
    read.check_once(0.95)
    read.check_whole(texts)
    assert {text.label for text in texts} == set(range(9))


def test_distance() -> None:
    source = corpus(300, sentences=40)
    texts = texts_in(epoch(batches_of(source, {"distance": (1.0, 0)})))
    read = Read(source, texts)
    pairs = [text for text in texts if len(text.pieces) == 2]
    assert all(text.task == "distance" and read.right(text) for text in pairs)
    counts = Counter(text.label for text in pairs)
    assert all(abs(count - len(pairs) / 3) <= 2 for count in counts.values())
    read.check_once(0.92)  # of two pieces that may change places, the longer one is shortened


@pytest.mark.parametrize("seed", range(12))
def test_whatever_the_texts_and_tasks(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(module, "POOL", rng.choice([300, 2000, 1 << 22]))
    source = corpus(rng.choice([2, 3, 20]), rng.choice([3, 20]), rng.choice([1, 3, 20, 120]), seed)
    tasks = {name: (rng.uniform(0.1, 1), rng.choice([0, 3])) for name in rng.sample(PASSAGE_TASKS, rng.randint(1, 7))}
    length = rng.choice([8, 13, 31, 128])
    if source.documents.tokens.lengths(np.arange(len(source.documents))).max() < length:
        tasks = {"masking": (1.0, 0), **tasks, "distance": (0.0, 0)}
    batches = batches_of(source, tasks, length=length, rows=rng.choice([1, 40]))
    for number in (0, 1):
        texts = texts_in(epoch(batches, number))
        read = Read(source, texts)
        read.check_once(0.5)
        assert all(map(read.right, texts))


def test_tokens_that_are_elsewhere_in_their_document() -> None:
    rng = np.random.default_rng(3)
    ids = [rng.integers(FIRST, FIRST + 60, size).tolist() for size in rng.integers(1, 200, 40)]
    documents = Documents(token_texts(ids), token_texts([[1] * len(i) for i in ids]), token_texts([[0] * len(i) for i in ids]))
    source = Corpus(documents, np.repeat(np.arange(40), [len(i) for i in ids]), set())
    found: Counter[bool] = Counter()
    for batch in epoch(batches_of(source, {"document": (1.0, 0), "capital": (1.0, 0)})):
        for read, flags, task in texts_with_marks(batch):
            whole = [i for i in ids if contains(i, read)]
            assert len(whole) >= 1
            for token, mark in zip(read, flags, strict=True):
                elsewhere = whole[0].count(token) > read.count(token)
                assert len(whole) > 1 or bool(mark & OCCURS_ELSEWHERE) == (elsewhere and task == "document")
                found[bool(mark & OCCURS_ELSEWHERE)] += 1
    assert min(found.values()) > 500


def texts_with_marks(batch: Batch) -> list[tuple[list[int], list[int], str]]:
    (rows,) = batch.inputs
    found = []
    for ids, text, flags, task in zip(*(t.tolist() for t in (rows.ids, rows.text, rows.flags, rows.task)), strict=True):
        for number in range(1, max(text) + 1):
            here = [i for i in range(len(text)) if text[i] == number]
            feedforward = here[1:-1]
            found.append(([ids[i] for i in feedforward], [flags[i] for i in feedforward], PASSAGE_TASKS[task[here[0]]]))
    return found


def contains(whole: list[int], part: list[int]) -> bool:
    return any(whole[i : i + len(part)] == part for i in range(len(whole) - len(part) + 1))


def test_tasks_are_drawn_by_weight() -> None:
    texts = texts_in(epoch(batches_of(corpus(400), {"masking": (1.0, 0), "capital": (3.0, 0), "order": (0.0, 0)})))
    counts = Counter(text.task for text in texts)
    assert set(counts) == {"masking", "capital"} and abs(counts["capital"] / len(texts) - 0.75) < 0.05


@pytest.mark.parametrize("pool", [1000, 1 << 22])
def test_a_task_begins_with_its_batch(monkeypatch: pytest.MonkeyPatch, pool: int) -> None:
    monkeypatch.setattr(module, "POOL", pool)
    sinces = {"order": 4, "capital": 9, "reorder": 10, "distance": 33}
    batches = batches_of(corpus(300), {name: (1.0, since) for name, since in sinces.items()}, rows=20)
    begun: dict[str, int] = {}
    for number, batch in enumerate(itertools.islice(batches.starting(START), 50)):
        for text in texts_of_batch(batch):
            begun.setdefault(text.task, number)
    assert begun == {"masking": 0, **sinces}


@pytest.mark.parametrize("rows", [1, 2, 5, 30])
@pytest.mark.parametrize("sinces", [(1, 2), (2, 11), (5, 5), (7, 1000), (30, 31)])
def test_nothing_is_lost_or_empty_where_tasks_begin(rows: int, sinces: tuple[int, int]) -> None:
    source = corpus(100)
    tasks = {"masking": (1.0, 0), "capital": (1.0, sinces[0]), "document": (1.0, sinces[1])}
    batches = epoch(batches_of(source, tasks, rows=rows))
    texts = texts_in(batches)
    assert places_read(texts) == Counter(range(len(source.document)))
    assert all(batch.filled for batch in batches)
    assert sum(b.filled for b in batches) > 0.9 * sum(b.positions for b in batches) - rows * LENGTH
    first = {task: next((n for n, b in enumerate(batches) for t in texts_of_batch(b) if t.task == task), None) for task in tasks}
    for task, (_, since) in tasks.items():
        assert (since >= len(batches) and first[task] is None) or since <= first[task] <= since + 5, (task, first)


@pytest.mark.parametrize("tasks", [PLAIN, {"next": (1.0, 0), "order": (1.0, 7), "document": (0.5, 12), "distance": (1.0, 3)}])
def test_resumed_is_uninterrupted(monkeypatch: pytest.MonkeyPatch, tasks: Tasks) -> None:
    monkeypatch.setattr(module, "POOL", 1500)
    source = corpus()
    batches = list(itertools.islice(batches_of(source, tasks).starting(START), 45))
    assert batches[-1].after.epoch >= 1
    for before, after in itertools.pairwise(batches):
        assert same(next(batches_of(source, tasks).starting(before.after)), after)


def test_the_seed_decides() -> None:
    source = corpus()
    one, again, other = (next(batches_of(source, PLAIN, seed=seed).starting(START)) for seed in (7, 7, 8))
    assert same(one, again) and not same(one, other)


def test_an_epoch_differs_from_the_one_before() -> None:
    batches = batches_of(corpus(), PLAIN)
    assert not torch.equal(epoch(batches, 0)[0].inputs[0].ids, epoch(batches, 1)[0].inputs[0].ids)


def test_for_validation_every_document_once_and_always_the_same() -> None:
    source = corpus()
    batches = batches_of(source, {"masking": (1.0, 0), "order": (1.0, 1000)})
    one, two = list(batches.in_order()), list(batches.in_order())
    assert len(one) == len(two) and all(map(same, one, two))
    texts = texts_in(one)
    assert {text.task for text in texts} == {"masking", "order"}
    Read(source, texts).check_once(0.95)
    assert {document_of(source, piece) for text in texts for piece in text.pieces} == set(range(len(source.documents)))


def test_the_capitals_mark_is_not_lost() -> None:
    (rows,) = next(batches_of(corpus(), PLAIN).starting(START)).inputs
    assert (rows.flags & CAPITAL).any()


def test_what_cannot_be_made_is_refused() -> None:
    one = corpus(1)
    for task in ("next", "distance"):
        with pytest.raises(DataError, match=f"task {task} needs two documents"):
            batches_of(one, {task: (1.0, 0)})
        with pytest.raises(DataError, match=f"task {task} needs two documents or more, got 1; put blank lines between"):
            batches_of(corpus(20, parts=20), {task: (1.0, 0)})
    with pytest.raises(DataError, match="shorter than a pair: no document has two sentences"):
        batches_of(corpus(5, sentences=1), {"order": (1.0, 0)})
    with pytest.raises(DataError, match="no document is longer than a text of 48 tokens, as the task distance needs"):
        batches_of(corpus(5, sentences=3, longest=9), {"distance": (1.0, 0)})
    with pytest.raises(ConfigError, match="length 7 holds no text"):
        batches_of(one, PLAIN, length=7)
    with pytest.raises(DataError, match="no document"):
        batches_of(one, PLAIN, chosen=np.arange(0))


@pytest.mark.parametrize("task", ["masking", "next", "reorder"])
def test_every_text_may_have_a_row_to_itself(task: str) -> None:
    source = corpus()
    packed, apart = (
        list(batches_of(source, {task: (1.0, 0)}, one_text_per_row=one_text_per_row).in_order())
        for one_text_per_row in (False, True)
    )
    assert max(int(batch.inputs[0].text.max()) for batch in packed) > 1
    assert {int(batch.inputs[0].text.max()) for batch in apart} == {1}
    assert {batch.inputs[0].labels.shape for batch in apart} == {(ROWS, 1)}
    assert Counter(map(str, texts_in(packed))) == Counter(map(str, texts_in(apart)))


# Running texts


def running_texts(batch: Batch) -> Iterator[list[int]]:
    (rows,) = batch.inputs
    for ids, text in zip(rows.ids.tolist(), rows.text.tolist(), strict=True):
        for number in range(1, max(text) + 1):
            yield [token for token, of in zip(ids, text, strict=True) if of == number]


@pytest.mark.parametrize("parts", [1, 3])
def test_of_running_texts_every_token_is_told_once(parts: int) -> None:
    source = corpus(many=30, sentences=20, parts=parts)
    batches = list(batches_of(source, PLAIN, continuous=True).in_order())
    texts = [text for batch in batches for text in running_texts(batch)]
    told = Counter(token for text in texts for token in text[1:])
    assert sum(batch.labels for batch in batches) == told.total()
    documents = int(source.documents.document.max()) + 1
    assert told.pop(EOS) == documents == sum(text[0] == BOS for text in texts)
    # Nothing comes before the first token of a further part.
    further = {int(source.documents.tokens[number][0]) for number in np.flatnonzero(~source.documents.first)}
    assert told == Counter(set(range(FIRST, FIRST + len(source.document))) - further)


def test_running_texts_are_stretches_of_documents() -> None:
    source = corpus(many=30, sentences=20, parts=2)
    of = source.document
    for text in itertools.chain(*map(running_texts, batches_of(source, PLAIN, continuous=True).in_order())):
        inside = [token - FIRST for token in text if token >= FIRST]
        assert inside == list(range(inside[0], inside[0] + len(inside)))
        assert (text[0] == BOS) == (inside[0] == 0 or of[inside[0] - 1] != of[inside[0]]) and len(text) <= LENGTH
        assert (text[-1] == EOS) == (inside[-1] + 1 == len(of) or of[inside[-1] + 1] != of[inside[-1]])


def test_a_stream_divided_knows_where_documents_begin_and_end() -> None:
    stream = read_stream(corpus(many=6).documents, np.arange(6))
    for aim in (1, int(stream.borders[2]), int(stream.borders[3]) + 1):
        first, rest = stream.split_near(aim)
        whole = len(first.ids) in stream.borders
        assert first.first.all() and first.last.tolist() == [True] * (len(first.document) - 1) + [whole]
        assert rest.last.all() and rest.first.tolist() == [whole] + [True] * (len(rest.document) - 1)


def test_ways_to_read_have_their_shares_and_a_target_goes_on_from_its_source() -> None:
    """UniLM's: pairs, where a text has two sentences to make one of."""
    source = corpus(many=200, sentences=30, longest=6)
    weights = {"next": 2.0, "left_to_right": 1.0, "right_to_left": 1.0, "sequence_to_sequence": 2.0}
    texts = texts_in(batches_of(source, {name: (weight, 0) for name, weight in weights.items()}).in_order())
    many = Counter(text.task for text in texts)
    assert len(texts) > 300
    for name, weight in weights.items():
        assert many[name] / len(texts) == pytest.approx(weight / 6, abs=0.08)
    assert many["masking"] < 0.05 * len(texts)
    for text in texts:
        if text.task == "sequence_to_sequence":
            one, two = text.pieces
            assert one.stop == two.start and one.stop in source.sentence_ends and text.label == IGNORE_INDEX
        elif text.task in ("left_to_right", "right_to_left"):
            assert len(text.pieces) == 1 and text.label == IGNORE_INDEX

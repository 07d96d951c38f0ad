"""Labelled examples as token ids: texts cut to a length, with labels at texts or tokens.

A text is bos a eos, or bos a eos b eos for a pair, as in Devlin et al. 2019 (BERT), section 3; for a question, a is the question
and b a window of its context.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from pydantic import Field

from qkv.base.config import Config
from qkv.base.errors import DataError
from qkv.base.rows import IGNORE_INDEX
from qkv.data.encoded import EncodedLabelledTexts, EncodedQuestions, EncodedTaggedTexts
from qkv.data.trees import governors, pieces_within, token_heads
from qkv.text.examples import Question, TaggedExample, TextExample, check_labels
from qkv.text.tokenizer import Tokenizer


class EncodingConfig(Config):
    """How long the encoded texts of examples are."""

    # Longest text in tokens: longer ones are cut, and a question's context is read in windows.
    length: int = Field(default=128, ge=8)
    stride: int = Field(default=128, gt=0)  # tokens from one window on a question's context to the next


def _flat(lists: Sequence[Sequence[int]]) -> np.ndarray:
    return np.fromiter(chain.from_iterable(lists), dtype=np.int64, count=sum(map(len, lists)))


def _have_trees(examples: Sequence[Any]) -> bool:
    """Return whether examples have dependency trees; raise DataError if some have and others have not."""
    bare = [number for number, example in enumerate(examples, 1) if example.heads is None]
    if bare and len(bare) < len(examples):
        raise DataError(f"example {bare[0]:,} has no heads, and others have; give heads to all of them, or to none")
    return not bare


def encode_texts(examples: Sequence[TextExample], tokenizer: Tokenizer, length: int, labels: np.ndarray) -> EncodedLabelledTexts:
    """Encode texts and pairs; a single text is cut at its end, and the longer text of a pair loses tokens until both fit."""
    bos, eos = tokenizer.bos, tokenizer.eos
    if _have_trees(examples):
        return _encode_trees(examples, tokenizer, length, labels)
    first = tokenizer.encode_batch([example.text for example in examples])
    second = iter(tokenizer.encode_batch([example.pair for example in examples if example.pair is not None]))
    texts, parts = [], []
    for example, a in zip(examples, first, strict=True):
        if example.pair is None:
            texts.append([bos, *a[: length - 2], eos])
            parts += [len(texts[-1]), 0]
        else:
            b = next(second)
            keep_a, keep_b = cut_pair(len(a), len(b), length - 3)
            texts.append([bos, *a[:keep_a], eos, *b[:keep_b], eos])
            parts += [keep_a + 2, keep_b + 1]
    segment = np.repeat(np.arange(len(parts)) % 2, parts)
    return EncodedLabelledTexts(_flat(texts), segment, np.cumsum([len(text) for text in texts]), np.arange(len(texts)), labels)


def _encode_trees(examples: Sequence[TextExample], tokenizer: Tokenizer, length: int, labels: np.ndarray) -> EncodedLabelledTexts:
    """Encode texts and pairs with dependency trees, word by word."""
    sides = [[text.split() for text in (example.text, example.pair) if text is not None] for example in examples]
    encoded = iter(tokenizer.encode_words([word for pair in sides for side in pair for word in side]))
    ids, parts, begins, pieces = [], [], [], []
    at = 0
    for pair in sides:
        found = [[next(encoded) for _ in side] for side in pair]
        many = [sum(map(len, side)) for side in found]
        room = cut_pair(many[0], many[1], length - 3) if len(many) == 2 else (min(many[0], length - 2),)
        ids.append(tokenizer.bos)
        for side, keep in zip(found, room, strict=True):
            pieces.append(pieces_within([len(word) for word in side], keep))
            begins.append(len(ids) + np.cumsum(pieces[-1]) - pieces[-1])
            ids += [*[number for word in side for number in word][:keep], tokenizer.eos]
            parts.append(len(ids) - at)
            at = len(ids)
        parts += [0] * (2 - len(pair))
    ends = np.cumsum(parts)[1::2]
    governor = governors([heads for example in examples for heads in example.heads or ()])
    head = token_heads(np.minimum(np.concatenate(begins), len(ids) - 1), np.concatenate(pieces), governor, ends)
    segment = np.repeat(np.arange(len(parts)) % 2, parts)
    return EncodedLabelledTexts(np.array(ids), segment, ends, np.arange(len(ends)), labels, head)


def cut_pair(a: int, b: int, room: int) -> tuple[int, int]:
    """Return the lengths of two texts after the longer one (the second if they are equal) has lost tokens until both fit."""
    keep_b = min(b, max(room - a, room // 2))
    return min(a, room - keep_b), keep_b


def encode_tagged(
    examples: Sequence[TaggedExample], tokenizer: Tokenizer, length: int, tags: Sequence[str]
) -> EncodedTaggedTexts:
    """Encode words one by one, with the label at a word's first piece; a sentence that is too long is cut between words."""
    check_labels(examples, tags)
    number = {tag: index for index, tag in enumerate(tags)}
    room = length - 2
    words = [pieces[:room] for pieces in tokenizer.encode_words([word for example in examples for word in example.words])]
    after = np.cumsum([len(pieces) for pieces in words])  # where each word ends, in pieces
    texts, ends = _windows(np.cumsum([len(example.words) for example in examples]), after, room)
    pieces = np.diff(ends, prepend=0)
    # Before every piece of text n there are the bos and eos of n other texts, and its own bos.
    position = np.arange(after[-1]) + 2 * np.repeat(np.arange(len(ends)), pieces) + 1
    total = np.cumsum(pieces + 2)
    ids = np.full(total[-1], tokenizer.eos)
    ids[total - pieces - 2] = tokenizer.bos
    ids[position] = _flat(words)
    begins = position[np.concatenate([[0], after[:-1]])]
    labels = np.full(len(ids), IGNORE_INDEX)
    labels[begins] = _flat([[number[tag] for tag in example.tags] or [IGNORE_INDEX] * len(example.words) for example in examples])
    head = None
    if _have_trees(examples):
        governor = governors([example.heads or [] for example in examples])
        head = token_heads(begins, np.array([len(pieces) for pieces in words]), governor, total)
    return EncodedTaggedTexts(ids, np.zeros_like(ids), total, texts, labels, head, words=begins)


def _windows(sentences: np.ndarray, after: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut sentences into windows of whole words within `room` pieces. -> the sentence of each window, and its end in pieces."""
    numbers, ends = [], []
    word = 0
    for number, stop in enumerate(sentences.tolist()):
        while word < stop:
            begins = after[word - 1] if word else 0
            word = min(stop, int(np.searchsorted(after, begins + room, side="right")))
            numbers.append(number)
            ends.append(after[word - 1])
    return np.array(numbers), np.array(ends)


def encode_questions(examples: Sequence[Question], tokenizer: Tokenizer, length: int, stride: int) -> EncodedQuestions:
    """Encode questions, at most half of a text each, with windows of their contexts; each context is tokenised once."""
    contexts = {text: position for position, text in enumerate(dict.fromkeys(example.context for example in examples))}
    encoded = tokenizer.encode_with_offsets(list(contexts))
    found = [(np.array(ids, dtype=np.int64), np.array(spans, dtype=np.int64).reshape(-1, 2)) for ids, spans in encoded]
    questions = tokenizer.encode_batch([example.question for example in examples])
    made = _Questions(length, stride, tokenizer.bos, tokenizer.eos)
    for number, (example, question) in enumerate(zip(examples, questions, strict=True)):
        made.add(number, question, *found[contexts[example.context]], example.answers[:1])
    return made.encoded()


class _Questions:
    """Windows of questions, collected one by one."""

    def __init__(self, length: int, stride: int, bos: int, eos: int):
        self.length, self.stride = length, stride
        self.bos, self.eos = bos, eos
        self.ids: list[np.ndarray] = []
        self.spans: list[np.ndarray] = []
        self.parts: list[int] = []
        self.example: list[int] = []
        self.labels: list[tuple[int, int]] = []

    def add(self, number: int, question: list[int], ids: np.ndarray, spans: np.ndarray, answers: list[tuple[int, str]]) -> None:
        """Add all windows of one question; those that hold its whole answer get its position as label."""
        before = np.array([self.bos, *question[: (self.length - 3) // 2], self.eos])
        room = self.length - 1 - len(before)
        first, last = tokens_of(spans, *answers[0]) if answers else (-1, -1)
        # At least half of a window is in the next one too, so that some window holds a shorter answer completely.
        step = min(self.stride, max(1, room // 2))
        for start in range(0, max(1, len(ids) - room + step), step):
            stop = min(len(ids), start + room)
            inside = start <= first <= last < stop
            self.ids += [before, ids[start:stop], np.array([self.eos])]
            self.spans.append(np.pad(spans[start:stop], ((len(before), 1), (0, 0))))  # only the context has spans
            self.parts += [len(before), stop - start + 1]
            self.example.append(number)
            self.labels.append((first - start + len(before), last - start + len(before)) if inside else (0, 0))

    def encoded(self) -> EncodedQuestions:
        parts = np.array(self.parts)
        segment = np.repeat(np.arange(len(parts)) % 2, parts)
        ids, spans = np.concatenate(self.ids), np.concatenate(self.spans)
        labels, example = np.array(self.labels), np.array(self.example)
        return EncodedQuestions(ids, segment, np.cumsum(parts)[1::2], example, labels, spans=spans)


def tokens_of(spans: np.ndarray, start: int, text: str) -> tuple[int, int]:
    """Return the first and last token that cover characters of a text; the first is after the last if none do."""
    first = np.searchsorted(spans[:, 1], start, side="right")
    last = np.searchsorted(spans[:, 0], start + len(text), side="left") - 1
    return int(first), int(last)

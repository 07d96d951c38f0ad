"""Passages for pretraining objectives, made by hand or at random, and packed in rows."""

from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from qkv.base.rows import IGNORE_INDEX, map_tensors
from qkv.data.inputs import BEGINS_UNIT, BEGINS_WORD, CAPITAL, OCCURS_ELSEWHERE, PASSAGE_TASKS, Passages
from qkv.objectives.masking import MaskingVocabulary

PAD, UNK, CLS, SEP, MASK, FIRST = range(6)
SPECIAL = (PAD, CLS, SEP)
T = TypeVar("T", bound=tuple[Any, ...])
BEGINS_BOTH = BEGINS_WORD | BEGINS_UNIT  # the flags of special tokens


def vocabulary(size: int) -> MaskingVocabulary:
    return MaskingVocabulary(size, FIRST, MASK, SPECIAL)


class Text(NamedTuple):
    """One text with its special tokens."""

    ids: list[int]
    flags: list[int]
    segment: list[int]
    task: str = "masking"
    label: int = IGNORE_INDEX


def text_of(*parts: list[int], task: str = "masking", label: int = IGNORE_INDEX, flags: list[int] | None = None) -> Text:
    """Return [CLS] part [SEP], or [CLS] part [SEP] part [SEP]; by default every token begins a word and a unit."""
    ids, segment, all_flags = [CLS], [0], [BEGINS_BOTH]
    given = iter(flags or [BEGINS_BOTH] * sum(map(len, parts)))
    for number, part in enumerate(parts):
        ids += [*part, SEP]
        segment += [number] * (len(part) + 1)
        all_flags += [*(next(given) for _ in part), BEGINS_BOTH]
    return Text(ids, all_flags, segment, task, label)


def lay_out(rows: list[list[Text]], width: int, most: int) -> Passages:
    """Pack texts into rows of up to `most` texts."""
    ids, text, position, segment, flags, task = (np.zeros((len(rows), width), dtype=np.int64) for _ in range(6))
    flags[:] = BEGINS_BOTH
    first, labels = np.zeros((len(rows), most), dtype=np.int64), np.full((len(rows), most), IGNORE_INDEX)
    for r, row in enumerate(rows):
        at = 0
        for number, one in enumerate(row):
            here = slice(at, at + len(one.ids))
            ids[r, here], flags[r, here], segment[r, here] = one.ids, one.flags, one.segment
            text[r, here], position[r, here], task[r, here] = number + 1, np.arange(len(one.ids)), PASSAGE_TASKS.index(one.task)
            first[r, number], labels[r, number] = at, one.label
            at += len(one.ids)
    return Passages(*map(torch.from_numpy, (ids, text, position, segment, flags, task, first, labels)))


def random_text(rng: np.random.Generator, tokens: int, vocab: int, task: str = "masking", answers: int = 2) -> Text:
    """Return two parts of random tokens, in words of a few tokens and units of a few words."""
    ids = rng.integers(FIRST, vocab, tokens).tolist()
    word, unit, capital, elsewhere = (rng.random(tokens) < share for share in (0.6, 0.5, 0.3, 0.4))
    flags = word * BEGINS_WORD + (word & unit) * BEGINS_UNIT + capital * CAPITAL + elsewhere * OCCURS_ELSEWHERE
    cut = int(rng.integers(0, tokens + 1))
    label = int(rng.integers(answers))
    return text_of(ids[:cut], ids[cut:], task=task, label=label, flags=flags.tolist())


def random_passages(rows: int, width: int = 60, vocab: int = 50, tasks: dict[str, int] | None = None, seed: int = 0) -> Passages:
    """Return rows of random texts, padded at the end; `tasks` maps each task to its number of labels."""
    rng = np.random.default_rng(seed)
    tasks = tasks or {"masking": 2}
    made: list[list[Text]] = []
    for _ in range(rows):
        row: list[Text] = []
        room = width - 3
        while (tokens := int(rng.integers(1, 18))) <= room and len(row) < width // 6:
            task = str(rng.choice(list(tasks)))
            row.append(random_text(rng, tokens, vocab, task, tasks[task]))
            room -= tokens + 3
        made.append(row)
    return lay_out(made, width, width // 6)


def each_text(passages: Passages) -> list[tuple[int, int, slice]]:
    """Return (row, index within the row, slice of the row) for every text."""
    found = []
    for row, text in enumerate(passages.text.tolist()):
        for number in range(max(text)):
            start = text.index(number + 1)
            found.append((row, number, slice(start, start + text.count(number + 1))))
    return found


def part_of(rows: T, part: slice) -> T:
    """Return some rows of a tuple of tensors."""
    return map_tensors(rows, lambda tensor: tensor[part])

"""The texts that are looked at, token by token: what each token is called and which word it belongs to."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from qkv.text.tokenizer import Tokenizer

# Words as people see them. Signs are words of their own, other than in alignments for other programs; each Chinese or Japanese
# character is one too.
_ALONE = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_SIGNS = r"!-/:-@\[-^`{-~\u00a1-\u00bf\u2010-\u205e\u3000-\u303f\uff01-\uff0f\uff1a-\uff20"
_WORDS = re.compile(rf"<unk>|[^\s{_ALONE}{_SIGNS}]+(?:['’-][^\s{_ALONE}{_SIGNS}]+)*|\S")


@dataclass(frozen=True)
class Side:
    """One text; all lists but `spelled` have an entry for each token."""

    ids: list[int]
    tokens: list[str]  # as people can read them
    words: list[int | None]  # the number of its word in `spelled`; None of a control token
    ends: list[bool]  # whether it ends a text or a part of one, as [SEP] does
    spelled: list[str]  # the words


def side_of(tokenizer: Tokenizer, ids: Sequence[int]) -> Side:
    """Some ids as a side; a hidden token is a word by itself."""
    mask = tokenizer.mask if tokenizer.has_mask else None
    words: list[int | None] = []
    spelled: list[str] = []
    for stretch in _stretches(tokenizer, ids, mask):
        if stretch[0] == mask:
            numbers, found = [0], tokenizer.pieces(stretch)
        elif _is_text(tokenizer, stretch[0]):
            numbers, found = _words_of(tokenizer, stretch)
        else:
            words.append(None)
            continue
        words += [number + len(spelled) for number in numbers]
        spelled += found
    ends = [number == tokenizer.eos for number in ids]
    return Side(list(ids), tokenizer.pieces(ids), words, ends, spelled)


def _stretches(tokenizer: Tokenizer, ids: Sequence[int], mask: int | None) -> list[list[int]]:
    """Tokens of text that follow each other together, every other token by itself."""
    stretches: list[list[int]] = []
    for number in ids:
        if stretches and all(_is_text(tokenizer, n) and n != mask for n in (number, stretches[-1][0])):
            stretches[-1].append(number)
        else:
            stretches.append([number])
    return stretches


def _is_text(tokenizer: Tokenizer, number: int) -> bool:
    return number not in tokenizer.special_ids or number == tokenizer.unk


def _words_of(tokenizer: Tokenizer, ids: list[int]) -> tuple[list[int], list[str]]:
    """The number of each token's word, from 0, and the words: a token belongs where the text decoded up to it ends."""
    text = tokenizer.decode(ids)
    spans = [found.span() for found in _WORDS.finditer(text)]
    ends = [len(tokenizer.decode(ids[: position + 1]).rstrip()) for position in range(len(ids))]
    starts = [start for start, _ in spans]
    return [max(0, bisect_left(starts, end) - 1) for end in ends], [text[start:end] for start, end in spans] or [text]

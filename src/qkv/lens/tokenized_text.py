"""A text token by token: readable tokens, and the word that each belongs to."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from qkv.text.tokenizer import Tokenizer

# Words as people see them. Unlike in alignments for other programs, punctuation marks are words of their own; so is each Chinese
# or Japanese character.
_CJK = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_PUNCTUATION = r"!-/:-@\[-^`{-~\u00a1-\u00bf\u2010-\u205e\u3000-\u303f\uff01-\uff0f\uff1a-\uff20"
WORD = re.compile(rf"<unk>|[^\s{_CJK}{_PUNCTUATION}]+(?:['’-][^\s{_CJK}{_PUNCTUATION}]+)*|\S")


@dataclass(frozen=True)
class TokenizedText:
    """One text; all lists but `words` have an entry for each token."""

    ids: list[int]
    tokens: list[str]  # readable
    word_ids: list[int | None]  # index of the token's word in `words`; None for special tokens
    is_end: list[bool]  # whether the token ends a text or a part of one, as [SEP] does
    words: list[str]


def tokenized_text(tokenizer: Tokenizer, ids: Sequence[int]) -> TokenizedText:
    """Group ids into words; a mask token is a word by itself."""
    mask = tokenizer.mask if tokenizer.has_mask else None
    word_ids: list[int | None] = []
    words: list[str] = []
    for run in _text_runs(tokenizer, ids, mask):
        if run[0] == mask:
            numbers, found = [0], tokenizer.pieces(run)
        elif _is_text(tokenizer, run[0]):
            numbers, found = _split_words(tokenizer, run)
        else:
            word_ids.append(None)
            continue
        word_ids += [number + len(words) for number in numbers]
        words += found
    return TokenizedText(list(ids), tokenizer.pieces(ids), word_ids, [token == tokenizer.eos for token in ids], words)


def _text_runs(tokenizer: Tokenizer, ids: Sequence[int], mask: int | None) -> list[list[int]]:
    """Split ids into runs of adjacent text tokens; every other token is a run by itself."""
    runs: list[list[int]] = []
    for token in ids:
        if runs and all(_is_text(tokenizer, n) and n != mask for n in (token, runs[-1][0])):
            runs[-1].append(token)
        else:
            runs.append([token])
    return runs


def _is_text(tokenizer: Tokenizer, token: int) -> bool:
    return token not in tokenizer.special_ids or token == tokenizer.unk


def _split_words(tokenizer: Tokenizer, ids: list[int]) -> tuple[list[int], list[str]]:
    """Return the index of each token's word and the words; a token belongs to the word in which the text decoded so far ends."""
    text = tokenizer.decode(ids)
    spans = [found.span() for found in WORD.finditer(text)]
    ends = [len(tokenizer.decode(ids[: position + 1]).rstrip()) for position in range(len(ids))]
    starts = [start for start, _ in spans]
    return [max(0, bisect_left(starts, end) - 1) for end in ends], [text[start:end] for start, end in spans] or [text]

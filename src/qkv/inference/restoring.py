"""Translations with their protected spans: each placeholder exactly once, tags around the words that they belong to.

An engine that was given phrases has put the placeholders in place; what it has lost or repeated is repaired here. Inline codes
that were taken out of the source (see `text/coded_text.py`) follow the alignment of words: cross-attention, or relative positions
where an engine has none. The output is made from a tree of codes, so tags are nested as in the source whatever the alignment.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from qkv.inference.segmenter import SourcePart
from qkv.text.annotated_terms import NO_PLACE
from qkv.text.coded_text import CodedText, InlineCode, Placeholder, insert_codes
from qkv.text.protected_text import PATTERNS, any_of, compile_patterns, keep_spans_apart
from qkv.text.sentinels import BROKEN, decode_pieces, token_starts
from qkv.text.tokenizer import Tokenizer

Attention = Callable[[list[int], list[int]], Tensor | None]  # of source and target ids, (T + 1, S)
_UNSPACED = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_SIGNS = r"!-/:-@\[-`{-~\u00a1-\u00bf\u2010-\u205e\u3000-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
_WORDS = re.compile(rf"[{_UNSPACED}{_SIGNS}]|[^\s{_UNSPACED}{_SIGNS}]+")
MARKUP_SIGNS = f"<>{{}}%{BROKEN}"  # a translation has none of these outside its spans if its source has none


class _Stretch(NamedTuple):
    """Some characters of a decoded output."""

    start: int  # in the output as it was decoded
    text: str
    placeholder: int | None = None


def restore(part: SourcePart, ids: list[int], tokenizer: Tokenizer, attention: Attention) -> str:
    """Return the translation of a part with protected spans: every placeholder once, every code in its position."""
    coded = part.coded
    assert coded is not None
    text = _put_in(part, coded, ids, tokenizer, attention)
    spans = [placeholder.text for placeholder in coded.placeholders] + [
        tag.strip() for code in coded.codes for tag in (code.open, code.close) if tag
    ]
    source = insert_codes(coded.text, [(code.start, code.end, code) for code in coded.codes])
    return keep_spans_apart(text, source, spans, compile_patterns(part.protect))


def _put_in(part: SourcePart, source: CodedText, ids: list[int], tokenizer: Tokenizer, attention: Attention) -> str:
    """Return the text of an output with the placeholders that it lacks, and the codes."""
    known = "\n".join([*source.around_placeholders(), *(target for match in part.terms for target in match.targets)])
    stretches = _clean(_without_repeats(_read(part, ids, tokenizer), source), known)
    text = "".join(stretch.text for stretch in stretches)
    placeholders, starts, position = [], [], 0
    for stretch in stretches:
        if stretch.placeholder is not None:
            placeholders.append((position, position + len(stretch.text), stretch.placeholder))
        starts.append(position)
        position += len(stretch.text)
    found = {number for _, _, number in placeholders}
    lost = [one for number, one in enumerate(source.placeholders) if number not in found]
    missing = [_as_code(source, one) for one in lost]
    codes = sorted([*source.codes, *missing], key=lambda code: code.start)  # keeps outer ones before inner ones
    if not codes:
        return text
    if text == source.text:
        return insert_codes(text, [(code.start, code.end, code) for code in codes])
    words = find_words(text, [Placeholder(start, end, "") for start, end, _ in placeholders])
    # A span that was lost has no word of its own: the words beside it say where it belongs.
    source_words = [word for word in find_words(source.text, source.placeholders) if word not in {one[:2] for one in lost}]

    def clean_position(raw: int) -> int:
        at = max(0, bisect_right(stretches, raw, key=lambda stretch: stretch.start) - 1)
        return min(starts[at] + raw - stretches[at].start, starts[at] + len(stretches[at].text)) if stretches else 0

    weights = attention(part.ids, ids) if words and source_words else None
    table = None
    if weights is not None:
        raw = token_starts(tokenizer, ids, [placeholder.text for placeholder in source.placeholders[: part.sentinels]])
        table = _word_table(
            weights, [len(source_words) if s == NO_PLACE else _word_at(source_words, s) for s in part.starts], len(source_words),
            [_word_at(words, clean_position(start)) for start in raw], len(words),
        )  # fmt: skip
    links = _link(table, source, source_words, text, words, {index: (start, end) for start, end, index in placeholders})
    return insert_codes(text, _Placement(source, source_words, text, words, *links).place(codes))


# The output as it was decoded


def keeps_spans(part: SourcePart, ids: list[int], tokenizer: Tokenizer) -> bool:
    """Return whether an output has each span that the model read as text, as often as the source."""
    assert part.coded is not None
    wanted = Counter(placeholder.text for placeholder in part.coded.placeholders[part.sentinels :])
    return Counter(any_of(wanted).findall(tokenizer.decode(ids))) == wanted


def _read(part: SourcePart, ids: Sequence[int], tokenizer: Tokenizer) -> list[_Stretch]:
    """Return the stretches of an output: its text, and its sentinels as the placeholders that they stand for."""
    assert part.coded is not None
    found, position = [], 0
    for piece in decode_pieces(tokenizer, ids):
        if isinstance(piece, str):
            stretch = _Stretch(position, piece)
        elif piece < part.sentinels:
            stretch = _Stretch(position, part.coded.placeholders[piece].text, piece)
        else:
            position += 1  # a sentinel that the source does not have
            continue
        found.append(stretch)
        position += len(stretch.text)
    return found


def _without_repeats(stretches: list[_Stretch], source: CodedText) -> list[_Stretch]:
    """Find the placeholders that are spelled out, and drop all that occur more often than in the source."""
    left = [index for index, _ in enumerate(source.placeholders)]
    kept = []
    for stretch in stretches:
        if stretch.placeholder is None:
            kept.append(stretch)
        elif stretch.placeholder in left:
            left.remove(stretch.placeholder)
            kept.append(stretch)
    if not source.placeholders:
        return kept
    pattern, found = any_of(placeholder.text for placeholder in source.placeholders), []
    for stretch in kept:
        end = 0
        for match in pattern.finditer(stretch.text) if stretch.placeholder is None else ():
            found.append(_Stretch(stretch.start + end, stretch.text[end : match.start()]))
            end = match.end()
            index = next((index for index in left if source.placeholders[index].text == match[0]), None)
            if index is not None:
                left.remove(index)
                found.append(_Stretch(stretch.start + match.start(), match[0], index))
        found.append(_Stretch(stretch.start + end, stretch.text[end:], stretch.placeholder))
    return [stretch for stretch in found if stretch.text]


def _clean(stretches: list[_Stretch], known: str) -> list[_Stretch]:
    """Drop the spans and signs of markup that are not in a known text; leave one space where anything was dropped.

    Without the space, what stands on both sides could make another span.
    """
    foreign = "".join(sign for sign in MARKUP_SIGNS if sign not in known)
    pattern = re.compile(PATTERNS + ("|<[^<>]*>" if "<" in foreign else "") + (f"|[{foreign}]" if foreign else ""))
    cleaned: list[_Stretch] = []
    before = ""
    for stretch in stretches:
        start = 0
        for match in pattern.finditer(stretch.text) if stretch.placeholder is None else ():
            if match[0] not in known and not _is_percentage(match, before):
                cleaned.append(_Stretch(stretch.start + start, stretch.text[start : match.start()]))
                start = match.end()
        cleaned.append(stretch if not start else _Stretch(stretch.start + start, stretch.text[start:]))
        before = stretch.text if stretch.placeholder is None else "0"  # a placeholder may stand for a number
    made: list[_Stretch] = []
    for stretch in cleaned:
        end = made[-1].start + len(made[-1].text) if made else 0
        spaces = [text.isspace() for text in (made[-1].text[-1:] if made else " ", stretch.text[:1])]
        if stretch.start > end and all(spaces):
            stretch = stretch._replace(start=stretch.start + 1, text=stretch.text[1:])
        elif made and stretch.start > end and stretch.text and not any(spaces):
            made.append(_Stretch(end, " "))
        if stretch.text:
            made.append(stretch)
    if made and made[-1].placeholder is None:
        made[-1] = made[-1]._replace(text=made[-1].text.rstrip())
    return made


def _is_percentage(match: re.Match[str], before: str) -> bool:
    """Return whether a sign is that of a percentage, as in 5 % or %5; `before` is what stands before the text of the match."""
    around = f"{before}{match.string[: match.start()]}", match.string[match.start() + 1 :]
    return re.fullmatch(r"%\d?", match[0]) is not None and bool(re.search(r"\d\s?$", around[0]) or re.match(r"\d", around[1]))


def _as_code(source: CodedText, lost: Placeholder) -> InlineCode:
    """Return a placeholder that the output lacks as a standalone code, to be inserted by alignment."""
    before, after = source.text[: lost.start], source.text[lost.end :]
    spaces = " " if before[-1:].isspace() else "", " " if after[:1].isspace() else ""
    parents = [code.depth + 1 for code in source.codes if code.start <= lost.start and lost.end <= code.end and code.close]
    return InlineCode(lost.start, lost.end, lost.text, standalone=True, spaces=spaces, depth=max(parents, default=0))


# Alignment of words


def find_words(text: str, placeholders: Sequence[Placeholder]) -> list[tuple[int, int]]:
    """Return where words begin and end: placeholders, signs and Chinese or Japanese characters are words by themselves."""
    words, position = [], 0
    for placeholder in [*placeholders, Placeholder(len(text), len(text), "")]:
        words += [match.span() for match in _WORDS.finditer(text, position, placeholder.start)]
        words += [(placeholder.start, placeholder.end)] if placeholder.end > placeholder.start else []
        position = placeholder.end
    return words


def _word_at(words: list[tuple[int, int]], position: int) -> int:
    """Return the word at a position, or the one that follows."""
    found = max(0, bisect_right(words, position, key=lambda word: word[0]) - 1)
    return min(found + (words[found][1] <= position), len(words) - 1)


def _word_table(weights: Tensor, source: list[int], source_words: int, target: list[int], target_words: int) -> Tensor:
    """Sum the attention of tokens by words. -> (target words, source words)."""
    columns = torch.zeros(weights.size(0), source_words + 1)  # the last one is for tokens that are in no word
    columns.index_add_(1, torch.tensor(source), weights[:, : len(source)].float())
    table = torch.zeros(target_words, source_words)
    return table.index_add_(0, torch.tensor(target), columns[: len(target), :-1])


def _link(
    table: Tensor | None,
    source: CodedText,
    source_words: list[tuple[int, int]],
    text: str,
    words: list[tuple[int, int]],
    placeholders: dict[int, tuple[int, int]],
) -> tuple[list[int], list[int]]:
    """Return the source word of each target word, and the target word of each source word.

    Placeholders, and words that occur once on both sides, belong together whatever the attention says.
    """
    source_count, target_count = len(source_words), len(words)
    if table is not None:
        to_source, to_target = table.argmax(1).tolist(), table.argmax(0).tolist()
    else:
        to_source = [(2 * number + 1) * source_count // (2 * target_count) for number in range(target_count)]
        to_target = [(2 * number + 1) * target_count // (2 * source_count) for number in range(source_count)]
    first, second = ([t[start:end].casefold() for start, end in w] for t, w in ((source.text, source_words), (text, words)))
    counts = Counter(first), Counter(second)
    once = {word for word in first if counts[0][word] == counts[1][word] == 1}
    there, here = ({word: number for number, word in enumerate(side) if word in once} for side in (first, second))
    same = [(there[word], here[word]) for word in there]
    for index, span in placeholders.items():
        same.append((source_words.index(source.placeholders[index][:2]), words.index(span)))
    for source_word, target_word in same:
        to_source[target_word], to_target[source_word] = source_word, target_word
    return to_source, to_target


# The positions of codes


@dataclass
class _Window:
    """The part of a target in which codes are placed: inside their parent, and beside their siblings."""

    words: tuple[int, int]
    characters: tuple[int, int]
    taken: list[tuple[int, int, int]] = field(default_factory=list)  # words of siblings (first, end), and their last character


@dataclass
class _Placement:
    """Finds where the codes of a source belong in its translation."""

    source: CodedText
    source_words: list[tuple[int, int]]
    text: str
    words: list[tuple[int, int]]
    to_source: list[int]
    to_target: list[int]

    def place(self, codes: Sequence[InlineCode]) -> list[tuple[int, int, InlineCode]]:
        """Return the start and end of each code in the target, in the order of codes: inside their parent, beside siblings."""
        open_windows = [(-1, _Window((0, len(self.words)), (0, len(self.text))))]
        placed = []
        for code in codes:
            while open_windows[-1][0] >= code.depth:
                open_windows.pop()
            window = open_windows[-1][1]
            if code.standalone:
                at = self._place_standalone(code, window)
                placed.append((at, at, replace(code, start=at, end=at)))
                continue
            first, last, start, end = self._place_spanning(code, window)
            window.taken.append((first, last, end))
            placed.append((start, end, code))
            open_windows.append((code.depth, _Window((first, last), (start, end))))
        return placed

    def _place_spanning(self, code: InlineCode, window: _Window) -> tuple[int, int, int, int]:
        """Return the words (first, last excluded) and the characters that belong between two tags.

        These are the adjacent words with the most links into the tagged source words, less those with links elsewhere.
        """
        inside = {i for i, (start, end) in enumerate(self.source_words) if start < code.end and end > code.start}
        back = {self.to_target[i] for i in inside}
        best, first, last, total, begin = 0, -1, -1, 0, window.words[0]
        for number in range(*window.words):
            if any(start <= number < end for start, end, _ in window.taken):
                total, begin = 0, number + 1
                continue
            total += 2 * (self.to_source[number] in inside) + (number in back) - 1
            if total > best:
                best, first, last = total, begin, number + 1
            if total < 0:
                total, begin = 0, number + 1
        if first < 0 and inside:  # no word of its own: the free one next to that of its first source word
            wanted = self.to_target[min(inside)]
            free = (number for number in range(*window.words) if self._is_free(number, window))
            first = min(free, key=lambda number: abs(number - wanted), default=-1)
            last = first + 1
        if first < 0:  # between the words of others
            at = max((end for _, _, end in window.taken), default=self._place_standalone(code, window))
            word = sum(end <= at for _, end in self.words)
            return word, word, at, at
        low, high = window.characters
        start, end = self.words[first][0], self.words[last - 1][1]
        if self.source.text[code.start : code.start + 1].isspace():  # the space is between the tags
            start = self.words[first - 1][1] if first else 0
        if self.source.text[: code.end][-1:].isspace():
            end = self.words[last][0] if last < len(self.words) else len(self.text)
        return first, last, max(low, start), min(high, end)

    def _is_free(self, number: int, window: _Window) -> bool:
        """Return whether a target word, not a sign, may stand between new tags."""
        taken = any(start <= number < end for start, end, _ in window.taken)
        return window.words[0] <= number < window.words[1] and not taken and self.text[self.words[number][0]].isalnum()

    def _place_standalone(self, code: InlineCode, window: _Window) -> int:
        """Return the offset of a standalone code: after the word that it touches, else before the next word."""
        low, high = window.characters
        before = [i for i, (_, end) in enumerate(self.source_words) if end <= code.start]
        after = [i for i, (start, _) in enumerate(self.source_words) if start >= code.end]
        if not before or not self.words:
            return low
        touches = self.source_words[before[-1]][1] == code.start
        if not after:
            at = high
        elif touches:
            at = self.words[self.to_target[before[-1]]][1]
        else:
            at = self.words[self.to_target[after[0]]][0]
        at = min(max(low, at), high)
        for first, last, end in window.taken:  # not between the words of a sibling
            if first < last and self.words[first][0] < at < end:
                at = end
        return at

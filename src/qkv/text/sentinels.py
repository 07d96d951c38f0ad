"""Sentinels in place of protected spans: special tokens that a translator learns to carry over.

In training, a span that occurs equally often on both sides of a pair becomes the same sentinel on both, numbered by the source.
White space around a sentinel is text, so that a model learns where it belongs.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from qkv.text.coded_text import CodedText, extract_codes
from qkv.text.protected_text import ProtectedSpan, compile_patterns, find_spans
from qkv.text.special_tokens import SENTINEL
from qkv.text.tokenizer import Tokenizer
from qkv.text.vocabulary import BYTES

COUNT = 16  # sentinels of a tokenizer that is made for `data.protect`; further spans of a text stay text
Pieces = list[str | int]  # texts, and numbers of sentinels
BROKEN = "\ufffd"  # stands for bytes that are no character


def mask_pair(source: str, target: str, most: int) -> tuple[Pieces, Pieces] | None:
    """Put sentinels for the spans that both sides share, and drop the tags around words that both share; None without any."""
    patterns = compile_patterns()
    spans = [find_spans(text, patterns) for text in (source, target)]
    if not all(spans):
        return None
    counts = [Counter((span.kind, text[span.start : span.end]) for span in found) for text, found in _both(source, target, spans)]
    tags_agree = all(counts[0][key] == counts[1][key] for key in counts[0] | counts[1] if key[0] != "alone")

    def is_shared(span: ProtectedSpan, text: str) -> bool:
        key = (span.kind, text[span.start : span.end])
        return tags_agree if span.kind != "alone" else counts[0][key] == counts[1][key]

    first, second = (
        extract_codes(text, [span for span in found if is_shared(span, text)]) for text, found in _both(source, target, spans)
    )
    if not first.placeholders and not first.codes:
        return None
    return _with_numbers(first, second, most)


def _both(source: str, target: str, spans: list[list[ProtectedSpan]]) -> Iterator[tuple[str, list[ProtectedSpan]]]:
    return zip((source, target), spans, strict=True)


def _with_numbers(source: CodedText, target: CodedText, most: int) -> tuple[Pieces, Pieces]:
    """Number the placeholders by their order in the source; the same text several times is in the same order on both sides."""
    numbers: dict[str, list[int]] = {}
    for number, placeholder in enumerate(source.placeholders):
        numbers.setdefault(placeholder.text, []).append(number)
    wanted = [numbers[placeholder.text].pop(0) for placeholder in target.placeholders]
    return to_pieces(source, range(len(source.placeholders)), most), to_pieces(target, wanted, most)


def to_pieces(coded: CodedText, numbers: Iterable[int], most: int) -> Pieces:
    """Return a text as pieces with the numbers of its placeholders; a placeholder whose number is not below `most` stays text."""
    first, *rest = coded.around_placeholders()
    pieces: Pieces = [first]
    for placeholder, number, after in zip(coded.placeholders, numbers, rest, strict=True):
        if number < most:
            pieces += [number, after]
        else:
            pieces[-1] = f"{pieces[-1]}{placeholder.text}{after}"
    return pieces


def without_spelled_out(coded: CodedText, most: int) -> tuple[Pieces, list[int]]:
    """Return a text as pieces without its placeholders from number `most` on, and where each character stands in the text.

    White space on both sides of a placeholder, and before a sign, goes with it.
    """
    pieces: list[Any] = [""]
    places: list[int] = []
    position = 0
    for number, stretch in enumerate(coded.around_placeholders()):
        if number:
            placeholder = coded.placeholders[number - 1]
            position = placeholder.end
            if number <= most:
                pieces += [number - 1, ""]
                places += range(placeholder.start, placeholder.end)
            elif not pieces[-1] or pieces[-1][-1].isspace():
                kept = stretch.lstrip()
                position += len(stretch) - len(kept)
                stretch = kept
                if pieces[-1] and not (kept and kept[0].isalnum()):
                    pieces[-1] = pieces[-1][:-1]
                    places.pop()
            elif pieces[-1][-1].isalnum() and stretch[:1].isalnum():
                pieces[-1] += " "
                places.append(placeholder.start)
        pieces[-1] += stretch
        places += range(position, position + len(stretch))
    return pieces, places


def encode_pieces(tokenizer: Tokenizer, pieces: Pieces, spans: Sequence[str] = ()) -> tuple[list[int], list[int]]:
    """Return the ids of pieces, and for each id where it begins in the text, in which `spans` are those of the sentinels."""
    sentinels = tokenizer.sentinels
    ids: list[int] = []
    starts: list[int] = []
    position = 0
    for index, piece in enumerate(pieces):
        if isinstance(piece, int):
            ids.append(sentinels[piece])
            starts.append(position)
            position += len(spans[piece]) if spans else 0
            continue
        found, offsets = _encode_inside(tokenizer, piece) if index else tokenizer.encode_with_offsets([piece])[0]
        ids += found
        starts += [position + start for start, _ in offsets]
        position += len(piece)
    return ids, starts


def _encode_inside(tokenizer: Tokenizer, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the ids and spans of a text that follows a sentinel, without adding a space before its first word."""
    if not text:
        return [], []
    before = "." if text[0].isalnum() else "a"  # our pieces never cross the edge between letters and signs
    ((ids, spans),) = tokenizer.encode_with_offsets([before + text])
    if any(start < 1 < end for start, end in spans):  # those of other makers may
        return tokenizer.encode_with_offsets([text])[0]
    kept = [(number, (start - 1, end - 1)) for number, (start, end) in zip(ids, spans, strict=True) if end > 1]
    return [number for number, _ in kept], [span for _, span in kept]


def decode_pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> Pieces:
    """Return the texts and the numbers of sentinels that ids stand for: a text, then a sentinel and a text for each."""
    numbers = {token: number for number, token in enumerate(tokenizer.sentinels)}
    anchor = tokenizer.encode("a")  # holds the place of the sentinel, so that the space after it is kept
    before = tokenizer.decode(anchor)
    pieces: Pieces = []
    inside: list[int] = []
    for token in [*ids, None]:
        if token is not None and token not in numbers:
            inside.append(token)
            continue
        pieces.append(tokenizer.decode([*anchor, *inside])[len(before) :] if pieces else tokenizer.decode(inside))
        if token is not None:
            pieces.append(numbers[token])
        inside = []
    if tokenizer.whole_words:  # whose tokens say nothing of the space before a sentinel
        pieces[:-1] = [f"{piece} " if isinstance(piece, str) and piece.strip() else piece for piece in pieces[:-1]]
    return pieces


def token_starts(tokenizer: Tokenizer, ids: Sequence[int], spans: Sequence[str]) -> list[int]:
    """Return where each id begins in the text of `decode_pieces`, with `spans` in place of its first sentinels.

    The time is linear in the number of ids. Id k begins where the text of the first k ids ends.
    """
    numbers = {token: number for number, token in enumerate(tokenizer.sentinels)}
    anchor = tokenizer.encode("a")
    starts: list[int] = []
    first = position = 0  # of the ids and the text since the last sentinel
    for end in [*(index for index, token in enumerate(ids) if token in numbers), len(ids)]:
        inside, context = list(ids[first:end]), anchor if first else []
        lengths = _prefix_lengths(tokenizer, [*context, *inside])[len(context) :]
        starts += [position + length - lengths[0] for length in lengths]
        if end < len(ids):
            span = spans[numbers[ids[end]]] if numbers[ids[end]] < len(spans) else ""
            has_space = tokenizer.whole_words and bool(tokenizer.decode(inside).strip())
            position, first = starts[-1] + has_space + len(span), end + 1
    return starts[:-1]


def _prefix_lengths(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    """Return how many characters the text of the first k ids has, for k from 0 to all of them.

    An id adds the characters that its text after an earlier id, the context, has more than that of the context alone. The context
    is the last id with a text of its own that is no byte, since bytes are decoded together with those around them.
    """
    texts, pieces = tokenizer.decode_batch([number] for number in ids), tokenizer.pieces(ids)
    context, windows = -1, []  # none before the first
    for end in range(1, len(ids) + 1):
        before = end - 2
        if before >= 0 and texts[before] and BROKEN not in texts[before] and pieces[before] not in BYTES:
            context = before
        windows.append((context, end))
    found = tokenizer.decode_batch(ids[max(0, start) : end] for start, end in windows)
    lengths = [0]
    for (start, _), text in zip(windows, found, strict=True):
        lengths.append(len(text) if start < 0 else lengths[start + 1] + len(text) - len(texts[start]))
    return lengths


def decode_with_names(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Return the text of some ids, with the names of its sentinels, which are one word each."""
    return "".join(SENTINEL.format(piece) if isinstance(piece, int) else piece for piece in decode_pieces(tokenizer, ids))

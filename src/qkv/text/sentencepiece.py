"""Import of a SentencePiece `.model` (Kudo and Richardson 2018), unigram or BPE, as a tokenizer of ours.

The file is a protocol buffer; it is parsed here field by field, and every value is checked. Ids change: our special tokens come
first, then the model's other control symbols, then its pieces in their order. The segmentation of a text stays the same, with
three exceptions: text that spells a special token or a byte piece is split inside it, so that it stays text; among unigram
segmentations of equal score rounding decides; and the library normalises a few strings, such as half-width kana with voicing
marks, by grapheme instead of by longest match.
"""

import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tokenizers import Regex, decoders, normalizers, pre_tokenizers

from qkv.base.errors import DataError
from qkv.text.files import open_uncompressed
from qkv.text.tokenizer import SPECIAL_TOKENS, Tokenizer, assemble
from qkv.text.vocabulary import ModelSettings, bpe_model, unigram_model

SPACE = "▁"
NORMAL, UNKNOWN, CONTROL_SYMBOL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE = 1, 2
SPECIAL_IDS = ((43, -1, "<pad>"), (40, 0, "<unk>"), (41, 1, "<s>"), (42, 2, "</s>"))  # field of the id, its default, our name
LONGEST_PIECE = 1000  # characters; real models stay far below, and the merges of a piece grow with its length
ProtobufFields = dict[int, list[Any]]
T = TypeVar("T")


class Piece(NamedTuple):
    """An entry of the vocabulary."""

    text: str
    score: float
    type: int


class SentencePieceModel(NamedTuple):
    """The content of a model: its pieces, which of them are control symbols, and how it normalises text."""

    kind: int
    pieces: list[Piece]
    control: dict[int, str]  # name by index among the pieces
    normalizer: ProtobufFields


def import_sentencepiece(path: Path) -> Tokenizer:
    """Convert a SentencePiece model to a tokenizer."""
    return convert_model(path, _convert)


def convert_model(path: Path, convert: Callable[[SentencePieceModel], T]) -> T:
    """Read a SentencePiece model and convert it; an error names the file."""
    with open_uncompressed(path) as file:
        content = file.read()
    try:
        return convert(_parse_model(parse_protobuf(content)))
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except Exception as error:  # any error on broken bytes; the library raises nothing narrower
        why = " ".join(str(error).split())[:100]
        raise DataError(f"{path}: damaged, or not a SentencePiece model ({why}); a .model file is wanted") from None


def parse_protobuf(data: bytes) -> ProtobufFields:
    """Return the fields of a protocol buffer message by field number: integers or bytes."""
    found: ProtobufFields = {}
    for number, value in _fields(data):
        found.setdefault(number, []).append(value)
    return found


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        value: int | bytes
        if key & 7 == 0:
            value, at = _varint(data, at)
        else:
            if key & 7 == 2:
                size, at = _varint(data, at)
            else:
                size = {1: 8, 5: 4}.get(key & 7, -1)
            if size < 0 or at + size > len(data):
                raise ValueError(f"no field can be read at byte {at}")
            value, at = data[at : at + size], at + size
        yield key >> 3, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read an integer of seven bits per byte; return it with the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value, at
    raise ValueError(f"a number without end at byte {at}")


def _parse_model(model: ProtobufFields) -> SentencePieceModel:
    trainer, normalizer = parse_protobuf(model.get(2, [b""])[-1]), parse_protobuf(model.get(3, [b""])[-1])
    kind = _option(trainer, 3, UNIGRAM)
    pieces = [_piece(parse_protobuf(entry)) for entry in model.get(1, [])]
    _refuse_unsupported(kind, trainer, normalizer, pieces)
    return SentencePieceModel(kind, pieces, _control_symbols(trainer, pieces), normalizer)


def _convert(model: SentencePieceModel) -> Tokenizer:
    special = [*SPECIAL_TOKENS, *(name for name in model.control.values() if name not in SPECIAL_TOKENS)]
    pieces = [piece for number, piece in enumerate(model.pieces) if number not in model.control]
    if model.kind == UNIGRAM:
        # A user-defined symbol is split off by the pre-tokenizer, and its score of 0 keeps it whole.
        scores = [(piece.text, piece.score if piece.type == NORMAL else 0.0) for piece in pieces]
        settings = unigram_model([(name, 0.0) for name in special] + scores)
    else:
        settings = _bpe(special, pieces)
    decoder = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if _option(model.normalizer, 3, 1):
        decoder.append(decoders.Strip(" ", 1, 0))
    return assemble(
        settings,
        special,
        normalizer=build_normalizer(model.normalizer),
        pre_tokenizer=build_pre_tokenizer(special, pieces),
        decoder=decoders.Sequence(decoder),
    )


def _option(message: ProtobufFields, number: int, default: int) -> int:
    value = int(message.get(number, [default])[-1])
    return value - (1 << 64) if value >> 63 else value  # an id of -1 means unused


def _piece(entry: ProtobufFields) -> Piece:
    text = entry[1][-1].decode() if 1 in entry else ""
    score = struct.unpack("<f", entry[2][-1])[0] if 2 in entry else 0.0
    piece = Piece(text, score, _option(entry, 3, NORMAL))
    if not 0 < len(text) <= LONGEST_PIECE or not abs(score) < 1e9:
        raise ValueError(f"invalid piece {text[:20]!r} with score {score}")
    return piece


def _refuse_unsupported(kind: int, trainer: ProtobufFields, normalizer: ProtobufFields, pieces: list[Piece]) -> None:
    if len({piece.text for piece in pieces}) < max(len(pieces), 1):
        raise ValueError("no pieces, or one twice")
    if kind not in (UNIGRAM, BPE):
        raise DataError("a SentencePiece model of words or characters; one of kind unigram or bpe is wanted")
    if any(piece.type == UNUSED for piece in pieces) or _option(trainer, 24, 0) or not _option(normalizer, 5, 1):
        raise DataError(
            "a SentencePiece model with unused pieces, or spaces other than before words, is not supported; train one without"
        )


def _control_symbols(trainer: ProtobufFields, pieces: list[Piece]) -> dict[int, str]:
    """Return the names of the control symbols by index; the four with an id of their own in the model get our names."""
    special = {_option(trainer, number, default): name for number, default, name in SPECIAL_IDS}
    found = {index: name for index, name in special.items() if 0 <= index < len(pieces)}
    found |= {index: "<unk>" for index, piece in enumerate(pieces) if piece.type == UNKNOWN}
    for index, piece in enumerate(pieces):
        if index not in found and (piece.type == CONTROL_SYMBOL or piece.text in SPECIAL_TOKENS):
            found[index] = piece.text
    names = list(found.values())
    if len(set(names)) < len(names) or any(len(name) < 2 for name in names):
        raise DataError(
            "a SentencePiece model whose control symbols share a name or are one character is not supported; rename them"
        )
    return dict(sorted(found.items()))


def _bpe(special: list[str], pieces: list[Piece]) -> ModelSettings:
    """Return a BPE model. SentencePiece merges any two pieces that make a piece, best score first; here each pair is listed."""
    vocab = {name: number for number, name in enumerate([*special, *(piece.text for piece in pieces)])}
    known = {piece.text for piece in pieces if piece.type == NORMAL}
    merges = [
        (piece.text[:cut], piece.text[cut:])
        for piece in sorted(pieces, key=lambda piece: -piece.score)
        if piece.type == NORMAL
        for cut in range(1, len(piece.text))
        if piece.text[:cut] in known and piece.text[cut:] in known
    ]
    whole = any(piece.type == USER_DEFINED for piece in pieces)  # such a symbol is split off before, and has no merges
    return {**bpe_model(vocab, merges), "fuse_unk": True, "ignore_merges": whole}


def build_normalizer(rules: ProtobufFields) -> normalizers.Normalizer:
    """Build the normalizer that a model's `normalizer_spec` describes."""
    steps: list[normalizers.Normalizer] = []
    if charsmap := rules.get(2, [b""])[-1]:
        _check_charsmap(charsmap)
        steps.append(normalizers.Precompiled(charsmap))
    if _option(rules, 4, 1):
        steps += [normalizers.Replace(Regex(rf"\A +|[ {SPACE}]+\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    if _option(rules, 3, 1):
        steps.append(normalizers.Prepend(" "))
    return normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])


def _check_charsmap(data: bytes) -> None:
    """Check the character map, a double-array trie and then replacements; the library would follow it out of bounds."""
    size = int.from_bytes(data[:4], "little") // 4
    units = struct.unpack_from(f"<{size}I", data, 4)
    replacements = data[4 + 4 * size :]
    replacements.decode()
    for index, unit in enumerate(units):
        if index and unit >> 31:
            continue  # a value, not a node; the first is always a node
        child = index ^ (unit >> 10) << ((unit & 512) >> 6)
        if child | 255 >= size:
            raise ValueError("its character map points outside itself")
        start = units[child] & 0x7FFFFFFF
        if unit & 256 and (start >= len(replacements) or replacements[start] & 0xC0 == 0x80):
            raise ValueError("its character map points to no character")


def build_pre_tokenizer(special: list[str], pieces: list[Piece]) -> pre_tokenizers.PreTokenizer:
    """Build a pre-tokenizer that isolates user-defined symbols, splits text spelled like a special token, and splits words.

    Words are split only if no piece spans two of them.
    """
    inside = "|".join(rf"(?<={re.escape(name[0])})(?={re.escape(name[1:])})" for name in special)
    steps = [pre_tokenizers.Split(Regex(inside + r"|(?<=<)(?=0x[0-9A-F]{2}>)"), "isolated")]
    symbols = sorted((p.text for p in pieces if p.type == USER_DEFINED), key=len, reverse=True)
    if symbols:
        steps.insert(0, pre_tokenizers.Split(Regex("|".join(map(re.escape, symbols))), "isolated"))
    if not any(SPACE in piece.text[1:] for piece in pieces):
        steps.append(pre_tokenizers.Split(SPACE, "merged_with_next"))
    return pre_tokenizers.Sequence(steps)

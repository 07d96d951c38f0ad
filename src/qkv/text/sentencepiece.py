"""Taking over a SentencePiece `.model` (Kudo and Richardson 2018), unigram or BPE, as a tokenizer of ours.

The file is a protocol buffer, read here field by field and trusted in nothing. Ids change: our control tokens come first,
then the model's other control symbols, then its pieces in their order. What it cuts a text into stays the same but for:
text that spells a control token or a byte piece, which is cut inside it, so that it stays text; unigram segmentations of
equal score, where rounding decides; and a few strings such as half-width kana with voicing marks, which the library
normalises by grapheme, SentencePiece by longest match.
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
FOUR = ((43, -1, "<pad>"), (40, 0, "<unk>"), (41, 1, "<s>"), (42, 2, "</s>"))  # field of the id, its default, our name
LONGEST_PIECE = 1000  # characters; real models stay far below, and ways to build a piece grow with its length
ProtobufFields = dict[int, list[Any]]
Made = TypeVar("Made")


class Piece(NamedTuple):
    """One entry of the vocabulary."""

    text: str
    score: float
    type: int


class SentencePieceModel(NamedTuple):
    """What a model says: its pieces, which of them are control symbols, and how texts are normalised."""

    kind: int
    pieces: list[Piece]
    control: dict[int, str]  # by place among the pieces
    rules: ProtobufFields


def import_sentencepiece(path: Path) -> Tokenizer:
    """The tokenizer that a SentencePiece model is."""
    return convert_model(path, _convert)


def convert_model(path: Path, make: Callable[[SentencePieceModel], Made]) -> Made:
    """What is made of a SentencePiece model; a mistake is told with the name of the file that it is in."""
    with open_uncompressed(path) as file:
        content = file.read()
    try:
        return make(_cutter(parse_protobuf(content)))
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except Exception as error:  # whatever broke on broken bytes, here or in the library, which raises nothing narrower
        why = " ".join(str(error).split())[:100]
        raise DataError(f"{path}: damaged, or not a SentencePiece model ({why}); a .model file is wanted") from None


def parse_protobuf(data: bytes) -> ProtobufFields:
    """The fields of a protocol buffer message: numbers, or bytes, under their field numbers."""
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
    """A number of seven bits a byte, and where the next field starts."""
    value = 0
    for shift in range(0, 70, 7):
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value, at
    raise ValueError(f"a number without end at byte {at}")


def _cutter(model: ProtobufFields) -> SentencePieceModel:
    spec, rules = parse_protobuf(model.get(2, [b""])[-1]), parse_protobuf(model.get(3, [b""])[-1])
    kind = _option(spec, 3, UNIGRAM)
    pieces = [_piece(parse_protobuf(entry)) for entry in model.get(1, [])]
    _refuse_strange(kind, spec, rules, pieces)
    return SentencePieceModel(kind, pieces, _control_tokens(spec, pieces), rules)


def _convert(cutter: SentencePieceModel) -> Tokenizer:
    kind, pieces, control, rules = cutter
    names = [name for name in control.values() if name not in SPECIAL_TOKENS]
    rest = [piece for number, piece in enumerate(pieces) if number not in control]
    make = _unigram if kind == UNIGRAM else _bpe
    return assemble(
        make([*SPECIAL_TOKENS, *names], rest),
        [*SPECIAL_TOKENS, *names],
        normalizer=build_normalizer(rules),
        pre_tokenizer=build_pre_tokenizer([*SPECIAL_TOKENS, *names], rest),
        decoder=_joiner(rules),
    )


def _option(message: ProtobufFields, number: int, default: int) -> int:
    value = int(message.get(number, [default])[-1])
    return value - (1 << 64) if value >> 63 else value  # ids that are not used are -1


def _piece(entry: ProtobufFields) -> Piece:
    text = entry[1][-1].decode() if 1 in entry else ""
    score = struct.unpack("<f", entry[2][-1])[0] if 2 in entry else 0.0
    piece = Piece(text, score, _option(entry, 3, NORMAL))
    if not 0 < len(text) <= LONGEST_PIECE or not abs(score) < 1e9:
        raise ValueError(f"strange piece {text[:20]!r} with score {score}")
    return piece


def _refuse_strange(kind: int, spec: ProtobufFields, rules: ProtobufFields, pieces: list[Piece]) -> None:
    if len({piece.text for piece in pieces}) < max(len(pieces), 1):
        raise ValueError("no pieces, or one twice")
    if kind not in (UNIGRAM, BPE):
        raise DataError("a SentencePiece model of words or characters; one of kind unigram or bpe is wanted")
    if any(piece.type == UNUSED for piece in pieces) or _option(spec, 24, 0) or not _option(rules, 5, 1):
        raise DataError("a SentencePiece model with unused pieces, or spaces other than before words: not known here")


def _control_tokens(spec: ProtobufFields, pieces: list[Piece]) -> dict[int, str]:
    """The control symbols among the pieces: place -> name; the four that the model itself names get our names."""
    places = {_option(spec, number, place): name for number, place, name in FOUR}
    found = {place: name for place, name in places.items() if 0 <= place < len(pieces)}
    found |= {place: "<unk>" for place, piece in enumerate(pieces) if piece.type == UNKNOWN}
    for place, piece in enumerate(pieces):
        if place not in found and (piece.type == CONTROL_SYMBOL or piece.text in SPECIAL_TOKENS):
            found[place] = piece.text
    names = list(found.values())
    if len(set(names)) < len(names) or any(len(name) < 2 for name in names):
        raise DataError("a SentencePiece model whose control symbols share a name or are one character: not known here")
    return dict(sorted(found.items()))


def _unigram(control: list[str], pieces: list[Piece]) -> ModelSettings:
    # A user-defined symbol is cut out before, and its score of 0 keeps it whole.
    scores = [(piece.text, piece.score if piece.type == NORMAL else 0.0) for piece in pieces]
    return unigram_model([(name, 0.0) for name in control] + scores)


def _bpe(control: list[str], pieces: list[Piece]) -> ModelSettings:
    """SentencePiece merges any two pieces that make a piece, best score first; here each such pair is listed."""
    vocab = {name: number for number, name in enumerate([*control, *(piece.text for piece in pieces)])}
    known = {piece.text for piece in pieces if piece.type == NORMAL}
    merges = [
        (piece.text[:cut], piece.text[cut:])
        for piece in sorted(pieces, key=lambda piece: -piece.score)
        if piece.type == NORMAL
        for cut in range(1, len(piece.text))
        if piece.text[:cut] in known and piece.text[cut:] in known
    ]
    whole = any(piece.type == USER_DEFINED for piece in pieces)  # such a symbol is cut out before, and has no merges
    return {**bpe_model(vocab, merges), "fuse_unk": True, "ignore_merges": whole}


def build_normalizer(rules: ProtobufFields) -> normalizers.Normalizer:
    """What is done to a text before it is cut."""
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
    """A map of characters is a trie in a double array, then replacements; the library would follow it out of bounds."""
    size = int.from_bytes(data[:4], "little") // 4
    units = struct.unpack_from(f"<{size}I", data, 4)
    replacements = data[4 + 4 * size :]
    replacements.decode()
    for place, unit in enumerate(units):
        if place and unit >> 31:
            continue  # a value, not a node; the first is always a node
        child = place ^ (unit >> 10) << ((unit & 512) >> 6)
        if child | 255 >= size:
            raise ValueError("its map of characters leads nowhere")
        start = units[child] & 0x7FFFFFFF
        if unit & 256 and (start >= len(replacements) or replacements[start] & 0xC0 == 0x80):
            raise ValueError("its map of characters leads to no character")


def build_pre_tokenizer(control: list[str], pieces: list[Piece]) -> pre_tokenizers.PreTokenizer:
    """Cut user-defined symbols out, what is spelled like a control token in two, and words apart if no piece spans two."""
    inside = "|".join(rf"(?<={re.escape(name[0])})(?={re.escape(name[1:])})" for name in control)
    steps = [pre_tokenizers.Split(Regex(inside + r"|(?<=<)(?=0x[0-9A-F]{2}>)"), "isolated")]
    symbols = sorted((p.text for p in pieces if p.type == USER_DEFINED), key=len, reverse=True)
    if symbols:
        steps.insert(0, pre_tokenizers.Split(Regex("|".join(map(re.escape, symbols))), "isolated"))
    if not any(SPACE in piece.text[1:] for piece in pieces):
        steps.append(pre_tokenizers.Split(SPACE, "merged_with_next"))
    return pre_tokenizers.Sequence(steps)


def _joiner(rules: ProtobufFields) -> decoders.Decoder:
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if _option(rules, 3, 1) else steps)

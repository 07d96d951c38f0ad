"""Marian's tokenizers: each side has a SentencePiece model, which splits text into pieces, and a vocabulary of ids.

A checkpoint's folder has source.spm and target.spm, and vocab.json for both of them, or target_vocab.json for the second. Ids
are those of the vocabulary. Pieces of the model that the vocabulary lacks are unknown: they get ids after all others, and the
translator must treat them as <unk>. A run of characters without pieces in the model is one unknown token, unless the
vocabulary has it, as a piece of the other language for example.

Ids equal those of transformers' tokenizer, except for the texts that `sentencepiece.py` lists and for language codes such as
>>de<<, which select the target language. Here a known code is a token anywhere, and other codes are text; in transformers a code
may only begin a text, and an unlisted code is <unk>.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library

from qkv.base.errors import CheckpointError, DataError, QkvError
from qkv.text.pretrained_tokenizer import (
    SPECIAL_TOKENS_MAP,
    TOKENIZER_CONFIG,
    TOKENIZER_FILE,
    assign_special_tokens,
    read_json_object,
)
from qkv.text.sentencepiece import (
    CONTROL_SYMBOL,
    NORMAL,
    SPACE,
    UNIGRAM,
    UNKNOWN,
    SentencePieceModel,
    build_normalizer,
    build_pre_tokenizer,
    convert_model,
)
from qkv.text.tokenizer import SPECIAL_TOKENS, Tokenizer
from qkv.text.vocabulary import unigram_model

SOURCE, TARGET, VOCABULARY, TARGET_VOCABULARY = "source.spm", "target.spm", "vocab.json", "target_vocab.json"
UNUSED = "<unused_{}>"  # an id of the model that the vocabulary lacks
OUTSIDE = -1e6  # the score of a piece that is not the model's own, so low that any segmentation into its own wins
CODE = re.compile(">>.+<<")
UNKNOWN_CHARACTER = "\U0010ffff"  # no character, so that no vocabulary has it


class MarianSide(NamedTuple):
    """The model and the vocabulary of one side."""

    model: SentencePieceModel
    names: dict[str, int]  # the vocabulary: piece -> id


def is_marian(folder: Path) -> bool:
    """Return whether a folder has Marian's tokenizers."""
    return (folder / SOURCE).exists()


def read_marian(folder: Path, words: tuple[int, int], first: int) -> tuple[Tokenizer, Tokenizer]:
    """Read the tokenizers of source and target; both are the same object if they are equal.

    `words` are the sizes of the model's two vocabularies; ids beyond them are pieces that the model treats as unknown.
    `first` is the id with which decoding starts.
    """
    source, target = _side(folder, SOURCE, VOCABULARY), _side(folder, TARGET, VOCABULARY)
    apart = (folder / TARGET_VOCABULARY).exists()
    if apart:
        target = target._replace(names=_vocabulary(folder / TARGET_VOCABULARY))
    for side, known in zip((source, target), words, strict=True):
        if len(side.names) > known:
            raise CheckpointError(
                f"{folder}: the tokenizer has {len(side.names):,} pieces, the model has {known:,} ids; they "
                "do not belong together"
            )
    unlisted = [_unlisted(source), _unlisted(target)]
    if not apart:
        unlisted = [list(dict.fromkeys([*unlisted[0], *unlisted[1]]))] * 2
    named = {**read_json_object(folder / SPECIAL_TOKENS_MAP), **read_json_object(folder / TOKENIZER_CONFIG)}
    try:
        made = [
            assign_special_tokens(_library(side, [*_numbered(side.names, known), *more]), named, first=first)
            for side, known, more in zip((source, target), words, unlisted, strict=True)
        ]
    except QkvError as error:
        raise CheckpointError(f"{folder}: {error}") from None
    return (made[0], made[0]) if made[0].fingerprint() == made[1].fingerprint() else (made[0], made[1])


def languages_in(folder: Path) -> tuple[str, str] | None:
    """Return the names of the two languages if the settings have both."""
    settings = read_json_object(folder / TOKENIZER_CONFIG)
    source, target = (settings.get(f"{side}_lang") for side in ("source", "target"))
    return (source, target) if isinstance(source, str) and isinstance(target, str) else None


def codes_in(folder: Path) -> list[str]:
    """Return the language codes that sources may begin with, such as >>de<<; in a folder of ours they are added tokens."""
    tokens = read_json_object(folder / TOKENIZER_FILE).get("added_tokens", [])
    return [
        name for name in [*read_json_object(folder / VOCABULARY), *(token["content"] for token in tokens)] if CODE.fullmatch(name)
    ]


def _side(folder: Path, model: str, vocabulary: str) -> MarianSide:
    try:
        return MarianSide(convert_model(folder / model, _check_model), _vocabulary(folder / vocabulary))
    except DataError as error:
        raise CheckpointError(str(error)) from None


def _check_model(model: SentencePieceModel) -> SentencePieceModel:
    """Return the model; refuse one that cannot be converted exactly. None of Marian's is known to be such a one."""
    if model.kind != UNIGRAM:
        raise DataError("a SentencePiece model of kind bpe; Marian's are unigram")
    if any(piece.type not in (NORMAL, UNKNOWN, CONTROL_SYMBOL) for piece in model.pieces):
        raise DataError("a SentencePiece model with byte pieces or user-defined symbols; Marian's have none")
    own = _own(model)
    if any(letter not in own for piece in own for letter in piece):
        raise DataError("a SentencePiece model with a character that is no piece by itself; Marian's have none")
    return model


def _own(model: SentencePieceModel) -> dict[str, float]:
    """Return the normal pieces of a model with their scores."""
    return {piece.text: piece.score for piece in model.pieces if piece.type == NORMAL}


def _vocabulary(path: Path) -> dict[str, int]:
    if not path.exists():
        raise CheckpointError(f"{path.parent}: no {path.name} there; save the tokenizer beside the model")
    names = read_json_object(path)
    numbers = [number for number in names.values() if type(number) is int and number >= 0]
    if len({*numbers}) < len(names):
        raise CheckpointError(f"{path}: not a vocabulary of pieces with an id each; download it again")
    if SPECIAL_TOKENS[1] not in names:
        raise CheckpointError(f"{path}: no {SPECIAL_TOKENS[1]} there, which every vocabulary of Marian's has; download it again")
    return names


def _unlisted(side: MarianSide) -> list[str]:
    return [piece for piece in _own(side.model) if piece not in side.names]


def _numbered(names: dict[str, int], words: int) -> list[str]:
    """Return the pieces in order of ids, with placeholders for missing ids."""
    by_number = {number: name for name, number in names.items()}
    if max(by_number) >= words:
        raise CheckpointError(
            f"the vocabulary has the id {max(by_number):,}, the model has {words:,} ids; they do not belong together"
        )
    return [by_number.get(number, UNUSED.format(number)) for number in range(words)]


def _library(side: MarianSide, names: list[str]) -> Library:
    """Build a tokenizer that segments as the model does and has these pieces in order of ids."""
    own = _own(side.model)
    known = "".join(map(re.escape, sorted(letter for letter in own if len(letter) == 1)))
    model = unigram_model([(name, own.get(name, OUTSIDE)) for name in names])
    library = Library.from_str(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
    library.normalizer = normalizers.Sequence(
        [build_normalizer(side.model.normalizer), _merge_unknown_runs(known, own, side.names)]
    )
    special = [name for name in side.names if name not in own and re.fullmatch(r"<.+>|\[.+\]", name)]
    words = build_pre_tokenizer(special, side.model.pieces)
    library.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.Split(Regex(f"[^{known}]+"), "isolated")])
    joined = [decoders.Replace(SPACE, " "), decoders.Fuse(), decoders.Replace(Regex(r"\A +| +\z"), "")]
    library.decoder = decoders.Sequence(joined)
    library.add_tokens([AddedToken(name, normalized=False) for name in names if CODE.fullmatch(name)])
    return library


def _merge_unknown_runs(known: str, own: dict[str, float], names: Iterable[str]) -> normalizers.Normalizer:
    """Build a normalizer that replaces several unknown characters in a row by one, unless together they are a piece."""
    unknown = f"[^{known}]"
    pieces = [name for name in names if len(name) > 1 and not any(letter in own for letter in name)]
    but = f"(?!(?:{'|'.join(map(re.escape, pieces))})(?!{unknown}))" if pieces else ""
    return normalizers.Replace(Regex(f"(?<!{unknown}){but}{unknown}{{2,}}"), UNKNOWN_CHARACTER)


def unknown_class(values: dict[str, Any]) -> str | None:
    """Return the regular expression of one unknown character in a tokenizer.json; None where the tokenizer is no Marian's."""
    match = re.search(r'"Regex": "(\[\^(?:[^"\\]|\\.)+\])\+"', json.dumps(values["pre_tokenizer"]))
    return match and json.loads(f'"{match[1]}"')


def with_unknown_class(values: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """Return a tokenizer.json with another regular expression of one unknown character."""
    replaced = dict(values)
    for step in ("normalizer", "pre_tokenizer"):
        replaced[step] = json.loads(json.dumps(values[step]).replace(json.dumps(old)[1:-1], json.dumps(new)[1:-1]))
    return replaced

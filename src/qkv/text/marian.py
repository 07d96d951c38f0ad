"""Marian's tokenizers: a SentencePiece model for each side that cuts, and a vocabulary that numbers what was cut.

A checkpoint's folder has source.spm and target.spm, and vocab.json for both of them, or target_vocab.json for the second. Ids
are those of the vocabulary. What a model cuts and the vocabulary lacks is unknown: such pieces get ids after all others, and the
translator must take them for the unknown one. A run of characters that a model has no pieces for is unknown as a whole, unless
the vocabulary has it, as a piece of the other language may be.

Ids are the same as those of transformers' tokenizer but for the strange texts that `sentencepiece.py` tells of, and for codes
such as >>de<<, which tell a translator into several languages what to write: known ones are tokens here wherever they stand,
others are text; there, a text may begin with one, and if it is not known it is unknown.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

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
UNUSED = "<unused_{}>"  # a word that a model has and its vocabulary has not
OUTSIDE = -1e6  # the score of a piece that is not the model's own: any of its own make up a word before it is taken
CODE = re.compile(">>.+<<")
STRANGE = "\U0010ffff"  # no character, so that no vocabulary has it


class MarianSide(NamedTuple):
    """What one of the two tokenizers is made of."""

    model: SentencePieceModel
    names: dict[str, int]  # the vocabulary


def is_marian(folder: Path) -> bool:
    """Whether a folder has such tokenizers."""
    return (folder / SOURCE).exists()


def read_marian(folder: Path, words: tuple[int, int], first: int) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of source and target, the same one twice if they are; of a model that knows so many words of each.

    `first` is the id that outputs begin after. Ids from `words` on are for pieces that the model takes for unknown.
    """
    source, target = _side(folder, SOURCE, VOCABULARY), _side(folder, TARGET, VOCABULARY)
    apart = (folder / TARGET_VOCABULARY).exists()
    if apart:
        target = target._replace(names=_vocabulary(folder / TARGET_VOCABULARY))
    for side, known in zip((source, target), words, strict=True):
        if len(side.names) > known:
            raise CheckpointError(
                f"{folder}: the tokenizer has {len(side.names):,} pieces, the model knows {known:,}; they do not belong together"
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
    """The names of the two languages, if both are told."""
    settings = read_json_object(folder / TOKENIZER_CONFIG)
    source, target = (settings.get(f"{side}_lang") for side in ("source", "target"))
    return (source, target) if isinstance(source, str) and isinstance(target, str) else None


def codes_in(folder: Path) -> list[str]:
    """The codes of languages that sources may begin with, as >>de<<; also in a folder of ours, where they are tokens."""
    tokens = read_json_object(folder / TOKENIZER_FILE).get("added_tokens", [])
    return [
        name for name in [*read_json_object(folder / VOCABULARY), *(token["content"] for token in tokens)] if CODE.fullmatch(name)
    ]


def _side(folder: Path, model: str, vocabulary: str) -> MarianSide:
    try:
        return MarianSide(convert_model(folder / model, _checked), _vocabulary(folder / vocabulary))
    except DataError as error:
        raise CheckpointError(str(error)) from None


def _checked(model: SentencePieceModel) -> SentencePieceModel:
    """Refuse a model that these rules do not hold for; none of Marian's is known to be such a one."""
    if model.kind != UNIGRAM:
        raise DataError("a SentencePiece model of kind bpe; Marian's are unigram")
    if any(piece.type not in (NORMAL, UNKNOWN, CONTROL_SYMBOL) for piece in model.pieces):
        raise DataError("a SentencePiece model with bytes or symbols of its own, which Marian's do not have: not known here")
    own = _own(model)
    if any(letter not in own for piece in own for letter in piece):
        raise DataError("a SentencePiece model with a character that is no piece by itself: not known here")
    return model


def _own(model: SentencePieceModel) -> dict[str, float]:
    """The pieces that texts are cut into, and their scores."""
    return {piece.text: piece.score for piece in model.pieces if piece.type == NORMAL}


def _vocabulary(path: Path) -> dict[str, int]:
    if not path.exists():
        raise CheckpointError(f"{path.parent}: no {path.name} there; save the tokenizer beside the model")
    names = read_json_object(path)
    numbers = [number for number in names.values() if type(number) is int and number >= 0]
    if len({*numbers}) < len(names):
        raise CheckpointError(f"{path}: not a vocabulary of pieces with a number each; download it again")
    if SPECIAL_TOKENS[1] not in names:
        raise CheckpointError(f"{path}: no {SPECIAL_TOKENS[1]} there, which every vocabulary of Marian's has; download it again")
    return names


def _unlisted(side: MarianSide) -> list[str]:
    return [piece for piece in _own(side.model) if piece not in side.names]


def _numbered(names: dict[str, int], words: int) -> list[str]:
    """The names in order of their numbers, with others where there is none."""
    by_number = {number: name for name, number in names.items()}
    if max(by_number) >= words:
        raise CheckpointError(f"the vocabulary has the number {max(by_number):,}, the model knows {words:,} words")
    return [by_number.get(number, UNUSED.format(number)) for number in range(words)]


def _library(side: MarianSide, names: list[str]) -> Library:
    """A tokenizer that cuts as the model does and has these names in order of ids."""
    own = _own(side.model)
    known = "".join(map(re.escape, sorted(letter for letter in own if len(letter) == 1)))
    model = unigram_model([(name, own.get(name, OUTSIDE)) for name in names])
    library = Library.from_str(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
    library.normalizer = normalizers.Sequence([build_normalizer(side.model.rules), _strange_runs(known, own, side.names)])
    control = [name for name in side.names if name not in own and re.fullmatch(r"<.+>|\[.+\]", name)]
    words = build_pre_tokenizer(control, side.model.pieces)
    library.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.Split(Regex(f"[^{known}]+"), "isolated")])
    joined = [decoders.Replace(SPACE, " "), decoders.Fuse(), decoders.Replace(Regex(r"\A +| +\z"), "")]
    library.decoder = decoders.Sequence(joined)
    library.add_tokens([AddedToken(name, normalized=False) for name in names if CODE.fullmatch(name)])
    return library


def _strange_runs(known: str, own: dict[str, float], names: Iterable[str]) -> normalizers.Normalizer:
    """Make one unknown character of several in a row, unless they are a piece together."""
    strange = f"[^{known}]"
    pieces = [name for name in names if len(name) > 1 and not any(letter in own for letter in name)]
    but = f"(?!(?:{'|'.join(map(re.escape, pieces))})(?!{strange}))" if pieces else ""
    return normalizers.Replace(Regex(f"(?<!{strange}){but}{strange}{{2,}}"), STRANGE)

"""Tokenizers: text to numbers and back, on Hugging Face's `tokenizers`, whose tokenizer.json is the file format.

What `decode(encode(text))` gives back, for text in NFC (any other is made NFC, and lower case where asked):

    kind            the same text exactly when              otherwise
    byte-bpe        always
    bpe, unigram    always, from a vocabulary of 1,000;     <unk> for each unseen character (unigram: each run)
                    below, all its characters were seen
    wordpiece       all its characters were seen            <unk> for the stretch with the unseen character
    characters      all its characters were seen            <unk> for each unseen character
    words           all its words were seen, with single    <unk> for each unseen word; white space becomes one
                    spaces between them                     space, and none at the ends

Control tokens have the first ids and never come from text, whatever the text or the text learned from: no piece can be
spelled like one (see `pipelines`), and the library's own search for them in text, its added tokens, is not used.

A tokenizer of another maker (see `foreign`) has its control tokens elsewhere and under other names. What each of them does
is kept where the library keeps such names: `bos`, the post-processor says, is spelled [CLS] and has the id 101.
"""

import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator
from tokenizers import Tokenizer as Library
from tokenizers import processors

from qkv.base.config import Config
from qkv.base.errors import CheckpointError, ConfigError, DataError
from qkv.base.files import atomic_file
from qkv.text.special_tokens import MASK, SENTINEL, SPECIAL_TOKENS, find_special_tokens, longest_stretch
from qkv.text.tokenizer_pipeline import build_decoder, build_normalizer, build_pre_tokenizer, check_special_token_name
from qkv.text.vocabulary import BYTES, ModelSettings, train_vocabulary

WORD_START = "▁"  # how `pieces` shows a space
WORD_END = "</w>"  # how a piece of the first GPT's tokenizer says that its word ends there
BLANK = (" ", WORD_START, "Ġ")  # a piece that is a space alone, by kind
SPACES_FIRST = ("Prepend", "Metaspace", "BertPreTokenizer")  # steps after which a first word is as one in the middle
_INSIDE = build_normalizer("bpe", lowercase=False)

# The library's threads do not live on in a forked process. It would warn, so the matter is settled before it asks.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: os.environ.update(TOKENIZERS_PARALLELISM="false"))


class TokenizerConfig(Config):
    """Which tokenizer to train, or which ready one to take."""

    kind: Literal["bpe", "byte-bpe", "wordpiece", "unigram", "characters", "words"] = "bpe"
    vocab: int = Field(8000, gt=len(SPECIAL_TOKENS))  # at most so many pieces, control tokens included; less from a small corpus
    lowercase: bool = False
    min_count: int = Field(1, ge=1)  # what was seen less often is not learned: pairs to merge, words, characters by kind
    special_tokens: tuple[str, ...] = ()  # more control tokens, such as [MASK], with the ids after </s>
    sentinels: int = Field(0, ge=0)  # control tokens that stand for spans of a text, such as a T5 needs
    file: str | None = None  # a ready tokenizer.json; nothing is trained, and the other keys are left out

    @field_validator("special_tokens")
    @classmethod
    def _may_be_control(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            check_special_token_name(name)
        if len({*names, *SPECIAL_TOKENS, *BYTES}) < len(names) + len(SPECIAL_TOKENS) + len(BYTES):
            raise ValueError("a control token is named twice, or has a name that is taken")
        return names

    @model_validator(mode="after")
    def _fits_together(self) -> "TokenizerConfig":
        defaults = type(self).model_fields
        changed = [key for key in defaults if key != "file" and getattr(self, key) != defaults[key].default]
        if self.file is not None and changed:
            raise ValueError(f"a ready tokenizer (file) is taken as it is; leave out {', '.join(changed)}")
        return self


class Tokenizer:
    """Text to ids and back; encoding adds no control tokens, and decoding leaves them out."""

    pad, unk, bos, eos = range(len(SPECIAL_TOKENS))  # so in ours; an encoder's [CLS] is bos, its [SEP] is eos

    def __init__(self, library: Library) -> None:
        """Wrap a tokenizer of the library whose control tokens can be told; see `assemble`."""
        self._library = library
        values = json.loads(library.to_str())
        special = find_special_tokens(library, values)
        self.pad, self.unk, self.bos, self.eos, self._mask = special[:5]
        self.special_ids = frozenset(special.names.values())
        self.made_by_qkv = special.made_by_qkv
        self.adds_bos = special.made_by_qkv or _begins_with_bos(values)  # whether a prompt stands after bos
        self.additional_special_tokens = {name: token for name, token in special.names.items() if token not in special[:4]}
        # Ids from here on are text; in another maker's tokenizer most of them are.
        self.first_text_id = (
            len(self.special_ids) if special.made_by_qkv else longest_stretch(self.special_ids - {self.unk}, len(self))
        )
        self._words = values["model"]["type"] == "WordLevel"
        self._bytes = _byte_letters() if _uses(values["decoder"], "ByteLevel") else {}
        self._prepends = _uses(values["normalizer"], "Prepend")
        self._spaced = any(_uses([values["normalizer"], values["pre_tokenizer"]], kind) for kind in SPACES_FIRST)
        library.encode_special_tokens = True  # text that is spelled like a control token is text

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._library.encode_special_tokens = True  # the one thing the library does not send along

    @property
    def has_mask(self) -> bool:
        return self._mask is not None

    @property
    def mask(self) -> int:
        """The id that stands for a hidden token."""
        if self._mask is None:
            raise ConfigError(f'this tokenizer has no {MASK} token; train it with tokenizer.special_tokens=["{MASK}"]')
        return self._mask

    @property
    def whole_words(self) -> bool:
        """Whether every token is a word, none a piece of one."""
        return self._words

    def word(self, number: int) -> str:
        """The word that an id of such a tokenizer stands for, without the space before it."""
        return str(self._library.id_to_token(number)).removeprefix(" ")

    @property
    def sentinels(self) -> list[int]:
        """The ids that stand for spans of a text, first to last; none where the tokenizer has no such tokens."""
        names = map(SENTINEL.format, itertools.count())
        return [
            self.additional_special_tokens[name]
            for name in itertools.takewhile(lambda name: name in self.additional_special_tokens, names)
        ]

    def __len__(self) -> int:
        return self._library.get_vocab_size()

    def same_vocabulary(self, other: "Tokenizer") -> bool:
        """Whether both have the same pieces under the same ids."""
        return self is other or self._library.get_vocab() == other._library.get_vocab()

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """The ids of each text, on all cores."""
        try:
            return [encoding.ids for encoding in self._library.encode_batch_fast(texts, add_special_tokens=False)]
        except TypeError:
            for text in texts:
                check_encodable(text)
            raise

    def encode_with_offsets(self, texts: list[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """The ids of each text, and of each id the characters it stands for, from and to, in the text as it was given.

        White space before a piece is left out; what a piece of nothing else stands for is empty.
        """
        texts = [check_encodable(text) for text in texts]
        found = self._library.encode_batch(texts, add_special_tokens=False)
        return [(one.ids, _spans(text, one.tokens, one.offsets)) for text, one in zip(texts, found, strict=True)]

    def encode_words(self, words: list[str]) -> list[list[int]]:
        """The pieces of each word as it stands inside a sentence, after a space if its script has any; never none."""
        inside = words if self._spaced else [_INSIDE.normalize_str(check_encodable(word)) for word in words]
        return [ids or [self.unk] for ids in self.encode_batch(inside)]

    def encode_masked(self, text: str, hidden: int | None = None) -> list[int]:
        """The ids of a text in which [MASK] stands for a hidden token; its id is `hidden`, or that of [MASK]."""
        first, *rest = text.split(MASK)
        ids = self.encode(first.rstrip() if self._spaced else first)  # a hidden token has its space itself
        for part in rest:
            ids += [self.mask if hidden is None else hidden, *self._going_on(part.rstrip() if self._spaced else part)]
        return ids

    def _going_on(self, text: str) -> list[int]:
        """The ids of a text that goes on after a token, where the first word gets no space that is not there."""
        if not self._spaced:
            return self.encode(text)
        if not self._prepends or self._words or not text or text[0].isspace():
            return self.encode(text.lstrip())
        before = "." if text[0].isalnum() else "a"  # our pieces never cross the edge between letters and signs
        ((ids, spans),) = self.encode_with_offsets([before + text])
        if any(start < len(before) < end for start, end in spans):  # but other makers' may
            return self.encode(text)
        return [number for number, (_, end) in zip(ids, spans, strict=True) if end > len(before)]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids, without control tokens; a word or character that is not known shows as <unk>."""
        return self._library.decode(list(self._heard(ids)), skip_special_tokens=False)

    def decode_batch(self, batch: Iterable[Iterable[int]]) -> list[str]:
        """The text of each list of ids, on all cores."""
        return self._library.decode_batch([list(self._heard(ids)) for ids in batch], skip_special_tokens=False)

    def _heard(self, ids: Iterable[int]) -> Iterator[int]:
        for number in self._checked(ids):
            if number not in self.special_ids or number == self.unk:
                yield number

    def _checked(self, ids: Iterable[int]) -> Iterator[int]:
        size = len(self)
        for number in map(int, ids):
            if not 0 <= number < size:
                raise DataError(f"id {number} is not among the {size} of this tokenizer; use the model's own tokenizer")
            yield number

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Each id as people can read it: a space as ▁ (words go without), what cannot be printed as its code."""
        return [self._piece(number) for number in self._checked(ids)]

    def _piece(self, number: int) -> str:
        piece = str(self._library.id_to_token(number))
        if number in self.special_ids:
            return piece
        if self._bytes:
            piece = bytes(self._bytes[letter] for letter in piece).decode("utf-8", "backslashreplace")
        piece = piece.removeprefix(" ") if self._words else piece.replace(" ", WORD_START)
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in piece)

    def byte_lengths(self) -> list[int]:
        """Bytes of text that each piece stands for, by id; none for control tokens, also where one stands for unknown text."""
        return [0 if number in self.special_ids else self._size(number) for number in range(len(self))]

    def _size(self, number: int) -> int:
        piece = str(self._library.id_to_token(number))
        if self._bytes:
            return len(piece)
        return 1 if piece in BYTES else len(piece.replace(WORD_END, " ").encode())

    def save(self, path: Path) -> None:
        """Write tokenizer.json, which `load` and the library's own `Tokenizer.from_file` read."""
        with atomic_file(path) as aside:
            aside.write_text(self.to_json(), encoding="utf-8")

    def to_json(self) -> str:
        """What a tokenizer.json holds."""
        return self._library.to_str(pretty=True)

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Read a tokenizer.json that `save` wrote."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ConfigError(f"{path}: no such file; a tokenizer.json is wanted") from None
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{path}: cannot be read as a tokenizer.json: {error}") from None
        try:
            return cls(Library.from_str(text))
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from None
        except Exception as error:  # the library raises nothing narrower
            why = " ".join(str(error).split())[:200]
            raise CheckpointError(f"{path}: damaged, or not a tokenizer.json ({why})") from None

    def fingerprint(self) -> str:
        """The same for tokenizers that do the same; another for any other."""
        canonical = json.dumps(json.loads(self._library.to_str()), sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()


def train_tokenizer(config: TokenizerConfig, texts: Iterable[str]) -> Tokenizer:
    """Learn a tokenizer from texts, read once; or load the ready one that the config names."""
    if config.file is not None:
        return Tokenizer.load(Path(config.file).expanduser())
    prepare = build_normalizer(config.kind, config.lowercase)
    control = [*SPECIAL_TOKENS, *config.special_tokens, *map(SENTINEL.format, range(config.sentinels))]
    normalised = (prepare.normalize_str(check_encodable(text)) for text in texts)
    model = train_vocabulary(config.kind, config.vocab, config.min_count, control, filter(None, normalised))
    return assemble(
        model, control, normalizer=prepare, pre_tokenizer=build_pre_tokenizer(config.kind), decoder=build_decoder(config.kind)
    )


def assemble(model: ModelSettings, control: list[str], **steps: Any) -> Tokenizer:
    """A tokenizer of a model and its steps; the names of control tokens are kept where the library keeps such names."""
    library = Library.from_str(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
    for name, step in steps.items():
        setattr(library, name, step)
    library.post_processor = processors.TemplateProcessing(
        single="$A", pair="$A $B", special_tokens=[(name, number) for number, name in enumerate(control)]
    )
    return Tokenizer(library)


def check_encodable(text: str) -> str:
    """The text, unless it holds half of a UTF-16 pair, which is no character and cannot be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"the text holds half a character (U+{ord(text[error.start]):04X} at {error.start}); read it as UTF-8"
        ) from None
    return text


def _spans(text: str, tokens: list[str], offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What pieces stand for: without white space before it, with what normalising joined to it (an accent, say) after it."""
    spans = []
    for token, (start, end), (limit, _) in zip(tokens, offsets, [*offsets[1:], (len(text), 0)], strict=False):
        while start < end and text[start].isspace():
            start += 1
        while end < limit and not text[end].isspace():
            end += 1
        if start < end and token in BLANK and text[start:end] != token:
            end = start  # a space before the first word, which the text does not have
        spans.append((start, end))
    return spans


def _begins_with_bos(values: dict[str, Any]) -> bool:
    """What another maker's tokenizer puts before a text; see `foreign.template`."""
    first = (values["post_processor"] or {}).get("single", [{}])[0]
    return first.get("SpecialToken", {}).get("id") == "bos"


def _uses(step: Any, kind: str) -> bool:
    return f'"type": "{kind}"' in json.dumps(step)


def _byte_letters() -> dict[str, int]:
    """Which byte each letter of a byte-level piece stands for: printable Latin-1 itself, the rest numbered from 256."""
    hidden = [byte for byte in range(256) if byte == ord(" ") or not chr(byte).isprintable()]
    shown = {chr(byte): byte for byte in range(256) if byte not in hidden}
    return shown | {chr(256 + number): byte for number, byte in enumerate(hidden)}

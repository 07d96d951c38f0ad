"""Tokenizers: text to ids and back. They use Hugging Face's `tokenizers` and its file format, tokenizer.json.

`decode(encode(text))` returns, for text in NFC (other text is normalised to NFC, and to lower case if wanted):

    kind            the same text if                        otherwise
    byte-bpe        always
    bpe, unigram    always, from a vocabulary of 1,000;     <unk> for each unseen character (unigram: each run)
                    below, all its characters were seen
    wordpiece       all its characters were seen            <unk> for the stretch with the unseen character
    characters      all its characters were seen            <unk> for each unseen character
    words           all its words were seen, with single    <unk> for each unseen word; white space becomes one
                    spaces between them                     space, and none at the ends

Special tokens have the first ids and never come from text: no piece can be spelled like one (see `tokenizer_pipeline`), and
the library's added tokens, which it finds in text, are not used. Those that `with_special_tokens` adds have the last ids.

A tokenizer of another maker (see `pretrained_tokenizer`) has its special tokens elsewhere and under other names. The
post-processor of its tokenizer.json holds their roles: `bos`, for example, is spelled [CLS] and has the id 101.
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
from qkv.text.special_tokens import MASK, SENTINEL, SPECIAL_TOKENS, TERM_TOKENS, add_special_tokens, find_special_tokens
from qkv.text.tokenizer_pipeline import build_decoder, build_normalizer, build_pre_tokenizer, check_special_token_name
from qkv.text.vocabulary import BYTES, ModelSettings, train_vocabulary

WORD_START = "▁"  # `pieces` shows a space so
WORD_END = "</w>"  # marks the end of a word in the first GPT's pieces
BLANK = (" ", WORD_START, "Ġ")  # a piece that is one space, by kind of tokenizer
SPACES_FIRST = ("Prepend", "Metaspace", "BertPreTokenizer")  # steps after which the first word looks like one in the middle
_MID_SENTENCE = build_normalizer("bpe", lowercase=False)

# The library's threads do not survive a fork, and it would warn about that; switch them off in forked processes.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: os.environ.update(TOKENIZERS_PARALLELISM="false"))


class TokenizerConfig(Config):
    """The tokenizer to train, or a trained one to load."""

    kind: Literal["bpe", "byte-bpe", "wordpiece", "unigram", "characters", "words"] = "bpe"
    vocab: int = Field(8000, gt=len(SPECIAL_TOKENS))  # most pieces, special tokens included; a small corpus gives fewer
    lowercase: bool = False
    min_count: int = Field(1, ge=1)  # rarer merges, words or characters (by kind) are not learned
    special_tokens: tuple[str, ...] = ()  # more special tokens, such as [MASK], with the ids after </s>
    sentinels: int = Field(0, ge=0)  # special tokens that stand for spans of a text, which T5 needs
    file: str | None = None  # a trained tokenizer.json to load; leave out the other keys

    @field_validator("special_tokens")
    @classmethod
    def _names_are_free(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            check_special_token_name(name)
        if len({*names, *SPECIAL_TOKENS, *BYTES}) < len(names) + len(SPECIAL_TOKENS) + len(BYTES):
            raise ValueError("a special token is named twice, or has a name that is taken")
        return names

    @model_validator(mode="after")
    def _fits_together(self) -> "TokenizerConfig":
        defaults = type(self).model_fields
        changed = [key for key in defaults if key != "file" and getattr(self, key) != defaults[key].default]
        if self.file is not None and changed:
            raise ValueError(f"a trained tokenizer (file) is loaded unchanged; leave out {', '.join(changed)}")
        return self


class Tokenizer:
    """Encodes text to ids and decodes ids to text; encoding adds no special tokens, and decoding leaves them out."""

    pad, unk, bos, eos = range(len(SPECIAL_TOKENS))  # in our tokenizers; an encoder's [CLS] is bos, its [SEP] is eos

    def __init__(self, library: Library) -> None:
        """Wrap a tokenizer of the library, in which the special tokens are listed as `assemble` does it."""
        self._library = library
        values = json.loads(library.to_str())
        special = find_special_tokens(library, values)
        self.pad, self.unk, self.bos, self.eos, self._mask = special[:5]
        self.special_ids = frozenset(special.names.values())
        self.made_by_qkv = special.made_by_qkv
        # Whether a prompt stands after bos; for another maker's tokenizer, `special_token_template` says so.
        first = (values["post_processor"] or {}).get("single", [{}])[0]
        self.adds_bos = special.made_by_qkv or first.get("SpecialToken", {}).get("id") == "bos"
        self.additional_special_tokens = {name: token for name, token in special.names.items() if token not in special[:4]}
        self.first_text_id = next(number for number in itertools.count() if number not in self.special_ids)
        if not special.made_by_qkv:  # special tokens lie anywhere: take the start of the longest run of ids without one
            edges = [-1, *sorted(self.special_ids - {self.unk}), len(self)]
            self.first_text_id = 1 + max(itertools.pairwise(edges), key=lambda pair: pair[1] - pair[0])[0]
        self._words = values["model"]["type"] == "WordLevel"
        self._bytes = _byte_letters() if _uses(values["decoder"], "ByteLevel") else {}
        self.prepends_space = _uses(values["normalizer"], "Prepend")  # before the first word
        self._spaced = any(_uses([values["normalizer"], values["pre_tokenizer"]], kind) for kind in SPACES_FIRST)
        library.encode_special_tokens = True  # text that is spelled like a special token stays text

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._library.encode_special_tokens = True  # the library does not pickle this

    @property
    def has_mask(self) -> bool:
        return self._mask is not None

    @property
    def mask(self) -> int:
        """The id of [MASK], which stands for a hidden token."""
        if self._mask is None:
            raise ConfigError(f'this tokenizer has no {MASK} token; train it with tokenizer.special_tokens=["{MASK}"]')
        return self._mask

    @property
    def whole_words(self) -> bool:
        """Whether every token is a whole word."""
        return self._words

    def word(self, number: int) -> str:
        """Return the word of an id of a tokenizer of words, without the space before it."""
        return str(self._library.id_to_token(number)).removeprefix(" ")

    @property
    def sentinels(self) -> list[int]:
        """The ids of the sentinels, which stand for spans of a text; empty if there are none."""
        names = map(SENTINEL.format, itertools.count())
        return [
            self.additional_special_tokens[name]
            for name in itertools.takewhile(lambda name: name in self.additional_special_tokens, names)
        ]

    @property
    def term_tokens(self) -> list[int]:
        """The ids of the separators of annotated terms; empty if there are none."""
        known = self.additional_special_tokens
        return [known[name] for name in TERM_TOKENS] if all(name in known for name in TERM_TOKENS) else []

    def with_special_tokens(self, names: Iterable[str]) -> "Tokenizer":
        """Return a tokenizer that has these special tokens; the missing ones get the next free ids."""
        missing = [name for name in dict.fromkeys(names) if self._library.token_to_id(name) not in self.special_ids]
        for name in missing:
            try:
                check_special_token_name(name)
            except ValueError as error:
                raise ConfigError(str(error)) from None
            if name in BYTES or self._library.token_to_id(name) is not None:
                raise ConfigError(f"the tokenizer has a piece of text named {name}; choose another name for the special token")
        return Tokenizer(add_special_tokens(self._library, missing, self.made_by_qkv)) if missing else self

    def __len__(self) -> int:
        return self._library.get_vocab_size()

    def same_vocabulary(self, other: "Tokenizer") -> bool:
        """Return whether both have the same pieces with the same ids."""
        return self is other or self._library.get_vocab() == other._library.get_vocab()

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of each text; uses all cores."""
        try:
            return [encoding.ids for encoding in self._library.encode_batch_fast(texts, add_special_tokens=False)]
        except TypeError:
            for text in texts:
                check_encodable(text)
            raise

    def encode_with_offsets(self, texts: list[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Return the ids of each text, and for each id the characters (start, end) in the given text.

        White space before a piece is left out; the span of a piece of white space is empty.
        """
        texts = [check_encodable(text) for text in texts]
        found = self._library.encode_batch(texts, add_special_tokens=False)
        return [(one.ids, _spans(text, one.tokens, one.offsets)) for text, one in zip(texts, found, strict=True)]

    def encode_words(self, words: list[str]) -> list[list[int]]:
        """Return the ids of each word as if inside a sentence, after a space if its script has spaces; at least one id each."""
        inside = words if self._spaced else [_MID_SENTENCE.normalize_str(check_encodable(word)) for word in words]
        return [ids or [self.unk] for ids in self.encode_batch(inside)]

    def encode_masked(self, text: str, hidden: int | None = None) -> list[int]:
        """Return the ids of a text in which [MASK] stands for a hidden token; `hidden` replaces the id of [MASK]."""
        first, *rest = text.split(MASK)
        ids = self.encode(first.rstrip() if self._spaced else first)  # a hidden token includes its space
        for part in rest:
            ids += [self.mask if hidden is None else hidden, *self._encode_continuation(part.rstrip() if self._spaced else part)]
        return ids

    def _encode_continuation(self, text: str) -> list[int]:
        """Return the ids of a text that continues after a token, without adding a space before its first word."""
        if not self._spaced:
            return self.encode(text)
        if not self.prepends_space or self._words or not text or text[0].isspace():
            return self.encode(text.lstrip())
        before = "." if text[0].isalnum() else "a"  # our pieces never cross the edge between letters and signs
        ((ids, spans),) = self.encode_with_offsets([before + text])
        if any(start < len(before) < end for start, end in spans):  # other makers' pieces may
            return self.encode(text)
        return [number for number, (_, end) in zip(ids, spans, strict=True) if end > len(before)]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of some ids, without special tokens; an unknown word or character becomes <unk>."""
        return self._library.decode(list(self._text_ids(ids)), skip_special_tokens=False)

    def decode_batch(self, batch: Iterable[Iterable[int]]) -> list[str]:
        """Return the text of each list of ids; uses all cores."""
        return self._library.decode_batch([list(self._text_ids(ids)) for ids in batch], skip_special_tokens=False)

    def _text_ids(self, ids: Iterable[int]) -> Iterator[int]:
        for number in self._valid_ids(ids):
            if number not in self.special_ids or number == self.unk:
                yield number

    def _valid_ids(self, ids: Iterable[int]) -> Iterator[int]:
        size = len(self)
        for number in map(int, ids):
            if not 0 <= number < size:
                raise DataError(f"id {number} is not among the {size} of this tokenizer; use the model's own tokenizer")
            yield number

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return each id as readable text: a space becomes ▁ (none for words), an unprintable character its code."""
        return [self._piece(number) for number in self._valid_ids(ids)]

    def _piece(self, number: int) -> str:
        piece = str(self._library.id_to_token(number))
        if number in self.special_ids:
            return piece
        if self._bytes:
            piece = bytes(self._bytes[letter] for letter in piece).decode("utf-8", "backslashreplace")
        piece = piece.removeprefix(" ") if self._words else piece.replace(" ", WORD_START)
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in piece)

    def byte_lengths(self) -> list[int]:
        """Return the number of bytes of text of each id; 0 for special tokens, <unk> included."""
        return [0 if number in self.special_ids else self._size(number) for number in range(len(self))]

    def _size(self, number: int) -> int:
        piece = str(self._library.id_to_token(number))
        if self._bytes:
            return len(piece)
        return 1 if piece in BYTES else len(piece.replace(WORD_END, " ").encode())

    def save(self, path: Path) -> None:
        """Write tokenizer.json, which `load` and the library's `Tokenizer.from_file` read."""
        with atomic_file(path) as partial:
            partial.write_text(self.to_json(), encoding="utf-8")

    def to_json(self) -> str:
        """Return the content of a tokenizer.json."""
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
        """Return a hash of all that the tokenizer does."""
        canonical = json.dumps(json.loads(self._library.to_str()), sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()


def train_tokenizer(config: TokenizerConfig, texts: Iterable[str]) -> Tokenizer:
    """Train a tokenizer on texts, which are read once; or load the one that the config names."""
    if config.file is not None:
        return Tokenizer.load(Path(config.file).expanduser())
    normalizer = build_normalizer(config.kind, config.lowercase)
    special = [*SPECIAL_TOKENS, *config.special_tokens, *map(SENTINEL.format, range(config.sentinels))]
    normalised = (normalizer.normalize_str(check_encodable(text)) for text in texts)
    model = train_vocabulary(config.kind, config.vocab, config.min_count, special, filter(None, normalised))
    return assemble(
        model, special, normalizer=normalizer, pre_tokenizer=build_pre_tokenizer(config.kind), decoder=build_decoder(config.kind)
    )


def assemble(model: ModelSettings, special: list[str], **steps: Any) -> Tokenizer:
    """Build a tokenizer from a model and the steps around it; the post-processor lists the special tokens."""
    library = Library.from_str(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
    for name, step in steps.items():
        setattr(library, name, step)
    library.post_processor = processors.TemplateProcessing(
        single="$A", pair="$A $B", special_tokens=[(name, number) for number, name in enumerate(special)]
    )
    return Tokenizer(library)


def check_encodable(text: str) -> str:
    """Return the text; refuse a lone surrogate (half of a UTF-16 pair), which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"the text holds half a character (U+{ord(text[error.start]):04X} at {error.start}); read it as UTF-8"
        ) from None
    return text


def _spans(text: str, tokens: list[str], offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the characters of each piece, without white space before it, with what normalising joined to it (say an accent)."""
    spans = []
    for token, (start, end), (limit, _) in zip(tokens, offsets, [*offsets[1:], (len(text), 0)], strict=False):
        while start < end and text[start].isspace():
            start += 1
        while end < limit and not text[end].isspace():
            end += 1
        if start < end and token in BLANK and text[start:end] != token:
            end = start  # the space that the normalizer put before the first word
        spans.append((start, end))
    return spans


def _uses(step: Any, kind: str) -> bool:
    return f'"type": "{kind}"' in json.dumps(step)


def _byte_letters() -> dict[str, int]:
    """Return the byte of each letter of a byte-level piece: printable Latin-1 is itself, the rest is numbered from 256."""
    hidden = [byte for byte in range(256) if byte == ord(" ") or not chr(byte).isprintable()]
    shown = {chr(byte): byte for byte in range(256) if byte not in hidden}
    return shown | {chr(256 + number): byte for number, byte in enumerate(hidden)}

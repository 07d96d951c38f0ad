"""Training of vocabularies on normalised text, as the `model` of a tokenizer.json.

BPE follows Sennrich et al. 2016, unigram Kudo 2018. WordPiece learns its pieces as BPE does, and then always takes the longest
that fits. Training is deterministic.
"""

import contextlib
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from qkv.base.errors import DataError
from qkv.base.files import write_error
from qkv.text.tokenizer_pipeline import build_pre_tokenizer
from qkv.text.unigram import CANDIDATES, LONGEST_PIECE, train_unigram

UNKNOWN = "<unk>"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]  # names that the library's byte fallback expects
BYTES_FROM = 1000  # smaller vocabularies have no byte pieces
RARE = 0.0005  # share of the text, in its rarest characters, that is left to bytes, as in SentencePiece
IN_MEMORY = 1 << 28  # characters of text stored in memory while training; more goes to a temporary file
ModelSettings = dict[str, Any]


def train_vocabulary(kind: str, vocab: int, min_count: int, special: list[str], texts: Iterable[str]) -> ModelSettings:
    """Train a model of at most `vocab` pieces; the special tokens have the first ids."""
    if kind in ("characters", "words"):
        return _train_closed(kind, vocab, min_count, special, texts)
    with _spooled(texts) as (counts, file):
        reserved = special + (BYTES if kind in ("bpe", "unigram") and vocab >= BYTES_FROM else [])
        alphabet = _alphabet(kind, vocab, reserved, counts)
        rare = set() if kind == "byte-bpe" else set(counts) - set(alphabet)
        text = _SpooledText(file, rare)
        if kind == "unigram":
            return _train_unigram(vocab, min_count, reserved, alphabet, text)
        model = _train_bpe(kind, vocab, min_count, reserved, alphabet, text)
        if kind != "wordpiece":
            return bpe_model(model["vocab"], model["merges"])
        # A word's first piece has its space, so the others need no prefix, and joining them is exact.
        options = {"unk_token": UNKNOWN, "continuing_subword_prefix": "", "max_input_chars_per_word": 100}
        return {"type": "WordPiece", "vocab": model["vocab"], **options}


def _train_closed(kind: str, vocab: int, min_count: int, special: list[str], texts: Iterable[str]) -> ModelSettings:
    """Take the most frequent characters or words."""
    counts = Counter[str]()
    for text in texts:
        counts.update(text if kind == "characters" else text.split(" ")[1:])
    frequent = _most_frequent(counts, vocab - len(special), min_count)
    if kind == "characters":  # byte-pair encoding without a merge
        return bpe_model({name: number for number, name in enumerate(special + frequent)}, [])
    # The space before a word also tells the word <s> from the special token.
    names = special + [f" {word}" for word in frequent]
    return {"type": "WordLevel", "vocab": {name: number for number, name in enumerate(names)}, "unk_token": UNKNOWN}


def _most_frequent(counts: Counter[str], room: int, min_count: int) -> list[str]:
    """Return the most frequent items, ties in alphabetical order."""
    _refuse_empty(counts)
    ranked = sorted((item for item in counts if counts[item] >= min_count), key=lambda item: (-counts[item], item))
    if not ranked or room < 1:
        raise DataError("the vocabulary would be empty; lower tokenizer.min_count or raise tokenizer.vocab")
    return ranked[:room]


def _refuse_empty(counts: Counter[str]) -> None:
    if not counts:
        raise DataError("there is no text to train a tokenizer on; check that the corpus is not empty")


@contextlib.contextmanager
def _spooled(texts: Iterable[str]) -> Iterator[tuple[Counter[str], IO[str]]]:
    """Count the characters and store the text, as the alphabet is chosen before the pieces are learned."""
    counts = Counter[str]()
    try:
        with tempfile.SpooledTemporaryFile(IN_MEMORY, "w+", encoding="utf-8", newline="\n") as file:
            for text in texts:
                counts.update(text)
                file.write(text + "\n")
            yield counts, file
    except OSError as error:
        raise write_error(Path(tempfile.gettempdir()), error) from error


def _alphabet(kind: str, vocab: int, reserved: list[str], counts: Counter[str]) -> list[str]:
    """Return the characters that are pieces by themselves: all, or the common ones if bytes spell the others."""
    _refuse_empty(counts)
    if kind == "byte-bpe":
        characters = pre_tokenizers.ByteLevel.alphabet()
    else:
        counts[" "] += 1  # any text may need a first space
        characters = _most_frequent(counts, len(counts), 1)
    room = vocab - len(reserved)
    if BYTES[0] in reserved and room > 0:
        return sorted(drop_rare(characters, counts)[: max(1, room * 3 // 4)])
    if room < len(characters):
        what = "bytes" if kind == "byte-bpe" else "different characters of this text"
        raise DataError(
            f"a {kind} vocabulary of {vocab} cannot hold {len(reserved)} special tokens and the {len(characters)} {what}"
            f"; set tokenizer.vocab to at least {len(reserved) + len(characters)}, better twice that"
        )
    return sorted(characters)


def drop_rare(ranked: list[str], counts: Counter[str]) -> list[str]:
    """Return the characters without the rarest, which together are a tiny share of the text."""
    left = counts.total() * RARE
    kept = len(ranked)
    while kept > 1 and counts[ranked[kept - 1]] <= left:
        kept -= 1
        left -= counts[ranked[kept]]
    return ranked[:kept]


class _SpooledText:
    """The stored text, which can be read more than once; characters outside the alphabet split it."""

    def __init__(self, file: IO[str], rare: set[str]) -> None:
        self.file = file
        self.cut = re.compile("[\n" + "".join(map(re.escape, sorted(rare))) + "]+")

    def __iter__(self) -> Iterator[str]:
        self.file.seek(0)
        for line in self.file:
            yield from filter(None, self.cut.split(line))


def _train_bpe(
    kind: str, vocab: int, min_count: int, reserved: list[str], alphabet: list[str], text: _SpooledText
) -> ModelSettings:
    """Learn the pieces and merges of byte-pair encoding, over characters or bytes."""
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        min_frequency=min_count,
        special_tokens=reserved,
        initial_alphabet=alphabet,
        max_token_length=LONGEST_PIECE if kind == "unigram" else None,
        show_progress=False,  # it would print to stdout
    )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = build_pre_tokenizer(kind)
    tokenizer.train_from_iterator(text, trainer)
    return json.loads(tokenizer.to_str())["model"]


def _train_unigram(vocab: int, min_count: int, reserved: list[str], alphabet: list[str], text: _SpooledText) -> ModelSettings:
    """Choose the pieces that make the text most probable from a larger vocabulary of byte-pair encoding."""
    size = vocab - len(reserved)
    candidates = _train_bpe("unigram", CANDIDATES * size, min_count, [], alphabet, text)["vocab"]
    pre_tokenizer = build_pre_tokenizer("unigram")
    counts = Counter[str]()
    for line in text:
        counts.update([pre_token for pre_token, _ in pre_tokenizer.pre_tokenize_str(line)])
    return unigram_model([(name, 0.0) for name in reserved] + train_unigram(size, candidates, counts))


def bpe_model(vocab: dict[str, int], merges: list[Any]) -> ModelSettings:
    """Return a BPE model, with byte fallback if bytes are pieces."""
    return {"type": "BPE", "vocab": vocab, "merges": merges, "unk_token": UNKNOWN, "byte_fallback": BYTES[0] in vocab}


def unigram_model(pieces: list[tuple[str, float]]) -> ModelSettings:
    """Return a unigram model of pieces and their scores, with byte fallback if bytes are pieces."""
    names = [name for name, _ in pieces]
    return {"type": "Unigram", "unk_id": names.index(UNKNOWN), "vocab": pieces, "byte_fallback": BYTES[0] in names}

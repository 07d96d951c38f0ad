"""Learning the pieces of a vocabulary from normalised text: what becomes the `model` of a tokenizer.json.

BPE: Sennrich et al. 2016; unigram: Kudo 2018; WordPiece: pieces learned as in BPE, then always the longest that fits. The same
text gives the same pieces, to the last bit.
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
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]  # spelled so for the library's byte fallback
BYTES_FROM = 1000  # smaller vocabularies keep their room for pieces
RARE = 0.0005  # share of the text whose rarest characters are left to bytes, as in SentencePiece
IN_MEMORY = 1 << 28  # characters of text kept in memory while learning; more goes to a temporary file
ModelSettings = dict[str, Any]


def train_vocabulary(kind: str, vocab: int, min_count: int, control: list[str], texts: Iterable[str]) -> ModelSettings:
    """A model of at most `vocab` pieces; the control tokens have the first ids."""
    if kind == "characters":
        return _characters(vocab, min_count, control, texts)
    if kind == "words":
        return _words(vocab, min_count, control, texts)
    with _kept(texts) as (counts, file):
        reserved = control + (BYTES if kind in ("bpe", "unigram") and vocab >= BYTES_FROM else [])
        alphabet = _alphabet(kind, vocab, reserved, counts)
        rare = set() if kind == "byte-bpe" else set(counts) - set(alphabet)
        if kind == "unigram":
            return _unigram(vocab, min_count, reserved, alphabet, _Text(file, rare))
        model = _merges(kind, vocab, min_count, reserved, alphabet, _Text(file, rare))
        return _word_piece(model) if kind == "wordpiece" else bpe_model(model["vocab"], model["merges"])


def _characters(vocab: int, min_count: int, control: list[str], texts: Iterable[str]) -> ModelSettings:
    """Byte-pair encoding without a single merge: every character stands alone."""
    counts = Counter[str]()
    for text in texts:
        counts.update(text)
    return bpe_model(_ids(control + _commonest(counts, vocab - len(control), min_count)), [])


def _words(vocab: int, min_count: int, control: list[str], texts: Iterable[str]) -> ModelSettings:
    """Words with the space before them, which also tells the word <s> from the control token."""
    counts = Counter[str]()
    for text in texts:
        counts.update(text.split(" ")[1:])
    words = [f" {word}" for word in _commonest(counts, vocab - len(control), min_count)]
    return {"type": "WordLevel", "vocab": _ids(control + words), "unk_token": UNKNOWN}


def _commonest(counts: Counter[str], room: int, min_count: int) -> list[str]:
    """What was seen most often, in an order that does not depend on chance."""
    _refuse_nothing(counts)
    ranked = sorted((item for item in counts if counts[item] >= min_count), key=lambda item: (-counts[item], item))
    if not ranked or room < 1:
        raise DataError("the tokenizer would know nothing; lower tokenizer.min_count or raise tokenizer.vocab")
    return ranked[:room]


def _refuse_nothing(counts: Counter[str]) -> None:
    if not counts:
        raise DataError("there is no text to train a tokenizer on; check that the corpus is not empty")


@contextlib.contextmanager
def _kept(texts: Iterable[str]) -> Iterator[tuple[Counter[str], IO[str]]]:
    """Count the characters and keep the text, as the choice of characters comes before the learning of pieces."""
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
    """The characters that are pieces by themselves: all of them, or the common ones where bytes spell the others."""
    _refuse_nothing(counts)
    if kind == "byte-bpe":
        characters = pre_tokenizers.ByteLevel.alphabet()
    else:
        counts[" "] += 1  # any text may need a first space
        characters = _commonest(counts, len(counts), 1)
    room = vocab - len(reserved)
    if BYTES[0] in reserved and room > 0:
        return sorted(_without_rare(characters, counts)[: max(1, room * 3 // 4)])
    if room < len(characters):
        what = "bytes" if kind == "byte-bpe" else "different characters of this text"
        raise DataError(
            f"a {kind} vocabulary of {vocab} cannot hold {len(reserved)} control tokens and the {len(characters)} {what}"
            f"; set tokenizer.vocab to at least {len(reserved) + len(characters)}, better twice that"
        )
    return sorted(characters)


def _without_rare(ranked: list[str], counts: Counter[str]) -> list[str]:
    """The characters less the rarest, which together are a tiny share of the text."""
    left = counts.total() * RARE
    kept = len(ranked)
    while kept > 1 and counts[ranked[kept - 1]] <= left:
        kept -= 1
        left -= counts[ranked[kept]]
    return ranked[:kept]


class _Text:
    """The kept text, to be read more than once, cut where a character stands that is no piece."""

    def __init__(self, file: IO[str], rare: set[str]) -> None:
        self.file = file
        self.cut = re.compile("[\n" + "".join(map(re.escape, sorted(rare))) + "]+")

    def __iter__(self) -> Iterator[str]:
        self.file.seek(0)
        for line in self.file:
            yield from filter(None, self.cut.split(line))


def _merges(kind: str, vocab: int, min_count: int, reserved: list[str], alphabet: list[str], text: _Text) -> ModelSettings:
    """Pieces and merges of byte-pair encoding, over characters or bytes."""
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


def _unigram(vocab: int, min_count: int, reserved: list[str], alphabet: list[str], text: _Text) -> ModelSettings:
    """Pieces that make the text most probable, chosen from a larger vocabulary of byte-pair encoding."""
    size = vocab - len(reserved)
    candidates = _merges("unigram", CANDIDATES * size, min_count, [], alphabet, text)["vocab"]
    cut = build_pre_tokenizer("unigram")
    counts = Counter[str]()
    for line in text:
        counts.update([stretch for stretch, _ in cut.pre_tokenize_str(line)])
    return unigram_model([(name, 0.0) for name in reserved] + train_unigram(size, candidates, counts))


def bpe_model(vocab: dict[str, int], merges: list[Any]) -> ModelSettings:
    """A BPE model; bytes stand in for unknown characters where they are pieces."""
    return {"type": "BPE", "vocab": vocab, "merges": merges, "unk_token": UNKNOWN, "byte_fallback": BYTES[0] in vocab}


def unigram_model(pieces: list[tuple[str, float]]) -> ModelSettings:
    """A unigram model of pieces and their scores; bytes stand in for unknown characters where they are pieces."""
    names = [name for name, _ in pieces]
    return {"type": "Unigram", "unk_id": names.index(UNKNOWN), "vocab": pieces, "byte_fallback": BYTES[0] in names}


def _word_piece(model: ModelSettings) -> ModelSettings:
    # A word's first piece has its space, so the others need no mark, and joining them is exact.
    shape = {"unk_token": UNKNOWN, "continuing_subword_prefix": "", "max_input_chars_per_word": 100}
    return {"type": "WordPiece", "vocab": model["vocab"], **shape}


def _ids(names: list[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}

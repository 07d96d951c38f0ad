"""Text as numbers of words, made once and kept in the cache, to be mapped into memory a stretch at a time.

Words are numbered by how often they occur, so that a minimum count is a highest number, and one cache serves all of them.
"""

import json
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

import numpy as np

from qkv.base.config import Config
from qkv.base.errors import ConfigError, DataError
from qkv.base.files import atomic_folder
from qkv.data.cache import cache_folder, counting, digest_of, key_of, lock_folder
from qkv.text.documents import shorten_file_list
from qkv.text.files import find_files, open_uncompressed, read_byte_chunks

END = -1  # stands between lines
TOGETHER = 1 << 20  # numbers written at once
LONGEST_LINE = 1 << 20  # bytes; what is longer is read in parts: some corpora are one line
SAMPLE = 1 << 16  # bytes by which Chinese is known
HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
PIECES, RUNS = re.compile(rf"[{HAN}]|[^\s{HAN}]+"), re.compile(rf"[{HAN}]+")
UNSPACED = 3  # Chinese characters in a row, on average: more are no words

Segmenter = Callable[[str], list[str]]


class CorpusConfig(Config):
    """How words are found in text."""

    lowercase: bool = False
    # characters: each Chinese character is a word; auto: so it is where most of the text is Chinese without spaces.
    segment: Literal["auto", "spaces", "characters", "jieba"] = "auto"


@dataclass
class Corpus:
    """An encoded corpus; `words` and `counts` are in order of count, the most frequent first."""

    folder: Path
    counts: np.ndarray  # (words,) int64
    length: int  # numbers in the file, ends of lines among them
    skipped: int  # bytes that are not UTF-8
    segment: str  # how words were found: spaces, characters or jieba

    def words(self, count: int) -> list[str]:
        """The most frequent words."""
        with (self.folder / "words.txt").open(encoding="utf-8", newline="\n") as file:
            return [line[:-1] for _, line in zip(range(count), file, strict=False)]

    def stretch(self, start: int, stop: int) -> np.ndarray:
        """Numbers of words, int32, END between lines; memory is needed only as long as somebody holds them."""
        return np.memmap(self.folder / "ids", np.int32, "r", 4 * start, (min(stop, self.length) - start,))


def corpus_files(paths: Sequence[str | Path]) -> list[Path]:
    """The files that paths, globs and folders name; of a folder all that it holds, in order of their names."""
    found: list[Path] = []
    for path in map(Path, paths):
        if path.expanduser().is_dir():
            inside = sorted(p for p in path.expanduser().rglob("*") if p.is_file() and not p.name.startswith("."))
            if not inside:
                raise DataError(f"{path}: the folder holds no files; name one with text")
            found += inside
        else:
            found += find_files(str(path))
    return list(dict.fromkeys(found))


def open_corpus(paths: Sequence[str | Path], config: CorpusConfig, quiet: bool = False) -> Corpus:
    """The encoded corpus of these files, from the cache or made now."""
    files = corpus_files(paths)
    kind = guess_segment(files[0]) if config.segment == "auto" else config.segment
    segment = segmenter(kind)  # before anything is written: jieba may not be there
    folder = cache_folder() / "words" / key_of([[digest_of(file) for file in files], config.lowercase, kind])
    with lock_folder(folder):
        if not (folder / "meta.json").exists():
            with atomic_folder(folder) as aside, counting("reading", "lines", quiet) as count:
                encode(files, config.lowercase, segment, aside, count)
    meta = json.loads((folder / "meta.json").read_text())
    return Corpus(folder, np.load(folder / "counts.npy"), meta["length"], meta["skipped"], kind)


def guess_segment(file: Path) -> str:
    """Characters where the text begins with Chinese without spaces between words, spaces otherwise."""
    with open_uncompressed(file) as opened:
        text = opened.read(SAMPLE).decode(errors="ignore")
    runs = RUNS.findall(text)
    chinese = sum(map(len, runs))
    return "characters" if chinese > len(text) / 2 and chinese > UNSPACED * len(runs) else "spaces"


def segmenter(kind: str) -> Segmenter:
    """A function that makes words of a line."""
    if kind == "characters":
        return PIECES.findall
    if kind == "spaces":
        return str.split
    try:
        import jieba
    except ImportError:
        raise ConfigError("segment jieba needs jieba: pip install jieba; or choose segment=characters") from None
    return lambda line: [word for word in jieba.lcut(line) if not word.isspace()]


class _Numbers(dict[str, int]):
    """Words get numbers as they come."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


@dataclass
class _Written:
    """What has been written so far, in numbers by first occurrence."""

    file: IO[bytes]
    waiting: "array[int]" = field(default_factory=lambda: array("i"))
    counts: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def flush(self) -> None:
        block = np.frombuffer(self.waiting, np.int32)
        more = np.bincount(block[block >= 0], minlength=len(self.counts))
        more[: len(self.counts)] += self.counts
        self.counts = more
        self.file.write(block.tobytes())
        self.waiting = array("i")


def encode(
    files: Sequence[Path],
    lowercase: bool,
    segment: Segmenter,
    folder: Path,
    count: Callable[[Iterator[bytes]], Iterator[bytes]] = lambda lines: lines,
) -> None:
    """Write a corpus into a folder: ids, words.txt, counts.npy, meta.json."""
    numbers, skipped = _Numbers(), 0
    number_of = numbers.__getitem__
    with (folder / "unsorted").open("wb") as file:
        written = _Written(file)
        for raw in count(part for path in files for part in read_byte_chunks(path, LONGEST_LINE)):
            text = raw.decode(errors="ignore")
            skipped += len(raw) - len(text.encode())
            written.waiting.extend(map(number_of, segment(text.lower() if lowercase else text)))
            if raw.endswith(b"\n"):
                written.waiting.append(END)
            if len(written.waiting) >= TOGETHER:
                written.flush()
        written.flush()
    if not numbers:
        raise DataError(f"{shorten_file_list(files)}: no words were found; lines of UTF-8 text are wanted")
    order = np.argsort(-written.counts, kind="stable")
    _renumber(folder, order)
    np.save(folder / "counts.npy", written.counts[order])
    words = list(numbers)
    with (folder / "words.txt").open("w", encoding="utf-8", newline="\n") as file_of_words:
        file_of_words.writelines(f"{words[number]}\n" for number in order)
    meta = {"length": (folder / "ids").stat().st_size // 4, "skipped": skipped}
    (folder / "meta.json").write_text(json.dumps(meta))


def _renumber(folder: Path, order: np.ndarray) -> None:
    """Turn numbers by first occurrence into numbers by count, block by block."""
    ranks = np.empty(len(order) + 1, np.int32)
    ranks[order], ranks[-1] = np.arange(len(order)), END  # END, which is -1, is the last element
    with (folder / "unsorted").open("rb") as old, (folder / "ids").open("wb") as new:
        while len(block := np.fromfile(old, np.int32, TOGETHER)):
            new.write(ranks[block].tobytes())
    (folder / "unsorted").unlink()

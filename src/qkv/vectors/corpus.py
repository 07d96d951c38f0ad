"""Text as word ids, encoded once into the cache and memory-mapped in chunks.

Words are numbered by falling count, so that a minimum count is a maximum id, and one cache serves every minimum count.
"""

import json
import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

import numpy as np

from qkv.base.config import Config
from qkv.base.errors import ConfigError, DataError
from qkv.base.files import atomic_folder
from qkv.data.cache import cache_folder, cache_key, cached_digest, lock_folder, progress_bar
from qkv.text.documents import shorten_file_list
from qkv.text.files import find_files, open_uncompressed, read_byte_chunks

LINE_END = -1  # stands between lines
BLOCK = 1 << 20  # ids written at once
MAX_LINE = 1 << 20  # bytes; longer lines are read in parts, because some corpora are one line
SAMPLE = 1 << 16  # bytes that the language is guessed from
HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
HAN_OR_WORD, HAN_RUN = re.compile(rf"[{HAN}]|[^\s{HAN}]+"), re.compile(rf"[{HAN}]+")
MAX_WORD_HAN = 3  # Chinese text with longer runs of characters on average has no spaces between words

Segmenter = Callable[[str], list[str]]


class WordCorpusConfig(Config):
    """How text is split into words."""

    lowercase: bool = False
    # spaces: split at white space; characters: each Chinese character is also a word; jieba: segment Chinese with jieba;
    # auto: characters where the text begins with Chinese without spaces, spaces otherwise
    segment: Literal["auto", "spaces", "characters", "jieba"] = "auto"


@dataclass
class WordCorpus:
    """An encoded corpus; word ids follow falling counts."""

    folder: Path
    counts: np.ndarray  # (words,) int64
    length: int  # ids in the file, line ends included
    skipped: int  # bytes that are not UTF-8
    segment: str  # how the text was split: spaces, characters or jieba

    def words(self, count: int) -> list[str]:
        """Return the most frequent words."""
        with (self.folder / "words.txt").open(encoding="utf-8", newline="\n") as file:
            return [line[:-1] for _, line in zip(range(count), file, strict=False)]

    def ids(self, start: int, stop: int) -> np.ndarray:
        """Map the word ids from `start` to `stop`, int32, LINE_END between lines; the mapping ends with the returned array."""
        return np.memmap(self.folder / "ids", np.int32, "r", 4 * start, (min(stop, self.length) - start,))


def corpus_files(paths: Sequence[str | Path]) -> list[Path]:
    """Return the files that paths, globs and folders name; a folder's files are sorted by name."""
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


def open_corpus(paths: Sequence[str | Path], config: WordCorpusConfig, quiet: bool = False) -> WordCorpus:
    """Open the encoded corpus of these files; encode it first unless the cache holds it."""
    files = corpus_files(paths)
    kind = guess_segment(files[0]) if config.segment == "auto" else config.segment
    segmenter = make_segmenter(kind)  # before anything is written: jieba may not be installed
    folder = cache_folder() / "words" / cache_key([[cached_digest(file) for file in files], config.lowercase, kind])
    with lock_folder(folder):
        if not (folder / "meta.json").exists():
            with atomic_folder(folder) as aside, progress_bar("reading", "lines", quiet) as count:
                encode_corpus(files, config.lowercase, segmenter, aside, count)
    meta = json.loads((folder / "meta.json").read_text())
    return WordCorpus(folder, np.load(folder / "counts.npy"), meta["length"], meta["skipped"], kind)


def guess_segment(file: Path) -> str:
    """Return "characters" if the file begins with Chinese without spaces between words, else "spaces"."""
    with open_uncompressed(file) as opened:
        text = opened.read(SAMPLE).decode(errors="ignore")
    runs = HAN_RUN.findall(text)
    chinese = sum(map(len, runs))
    return "characters" if chinese > len(text) / 2 and chinese > MAX_WORD_HAN * len(runs) else "spaces"


def make_segmenter(kind: str) -> Segmenter:
    """Return the function that splits a line into words."""
    if kind == "characters":
        return HAN_OR_WORD.findall
    if kind == "spaces":
        return str.split
    try:
        import jieba
    except ImportError:
        raise ConfigError("segment=jieba needs jieba: pip install jieba; or choose segment=characters") from None
    return lambda line: [word for word in jieba.lcut(line) if not word.isspace()]


@dataclass
class _IdWriter:
    """Writes ids to a file in blocks and counts them; ids follow first occurrence."""

    file: IO[bytes]
    block: "array[int]" = field(default_factory=lambda: array("i"))
    counts: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def flush(self) -> None:
        ids = np.frombuffer(self.block, np.int32)
        counts = np.bincount(ids[ids >= 0], minlength=len(self.counts))
        counts[: len(self.counts)] += self.counts
        self.counts = counts
        self.file.write(ids.tobytes())
        self.block = array("i")


def encode_corpus(
    files: Sequence[Path],
    lowercase: bool,
    segmenter: Segmenter,
    folder: Path,
    progress: Callable[[Iterator[bytes]], Iterator[bytes]] = lambda lines: lines,
) -> None:
    """Write a corpus into a folder: ids, words.txt, counts.npy, meta.json."""
    vocabulary: defaultdict[str, int] = defaultdict()
    vocabulary.default_factory = vocabulary.__len__  # a new word gets the next id
    skipped = 0
    with (folder / "unsorted").open("wb") as file:
        writer = _IdWriter(file)
        for raw in progress(part for path in files for part in read_byte_chunks(path, MAX_LINE)):
            text = raw.decode(errors="ignore")
            skipped += len(raw) - len(text.encode())
            writer.block.extend(map(vocabulary.__getitem__, segmenter(text.lower() if lowercase else text)))
            if raw.endswith(b"\n"):
                writer.block.append(LINE_END)
            if len(writer.block) >= BLOCK:
                writer.flush()
        writer.flush()
    if not vocabulary:
        raise DataError(f"{shorten_file_list(files)}: no words were found; give lines of UTF-8 text")
    order = np.argsort(-writer.counts, kind="stable")
    _sort_ids(folder, order)
    np.save(folder / "counts.npy", writer.counts[order])
    words = list(vocabulary)
    with (folder / "words.txt").open("w", encoding="utf-8", newline="\n") as words_file:
        words_file.writelines(f"{words[word]}\n" for word in order)
    meta = {"length": (folder / "ids").stat().st_size // 4, "skipped": skipped}
    (folder / "meta.json").write_text(json.dumps(meta))


def _sort_ids(folder: Path, order: np.ndarray) -> None:
    """Replace ids by first occurrence with ids by falling count, block by block."""
    ranks = np.empty(len(order) + 1, np.int32)
    ranks[order], ranks[-1] = np.arange(len(order)), LINE_END  # LINE_END is -1 and so indexes the last element
    with (folder / "unsorted").open("rb") as old, (folder / "ids").open("wb") as new:
        while len(block := np.fromfile(old, np.int32, BLOCK)):
            new.write(ranks[block].tobytes())
    (folder / "unsorted").unlink()

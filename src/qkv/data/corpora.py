"""From files to checked pairs: pieces of a corpus are checked one by one, then duplicates are dropped over all of them.

All is kept in the cache (data/store.py): `pieces/` has checked pieces, `checked/` the index of each corpus with the rows that
are dropped.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from qkv.base.files import atomic_file
from qkv.data.cache import cache_folder, cache_key, cached_digests, lock_folder, refuse_replaced
from qkv.data.checked_pieces import PAIRS, PIECES, write_piece
from qkv.data.duplicates import DROPS, MadePiece, merge_pieces
from qkv.data.store import Part, find_metas, find_missing
from qkv.data.token_shards import INDEX
from qkv.data.tokens import map_file
from qkv.data.workers import Work
from qkv.text.check import CheckConfig, CheckReport
from qkv.text.corpus import ParallelCorpusConfig, corpus_files, read_pairs, reader_versions
from qkv.text.input_files import WholeFile, input_file
from qkv.text.pieces import CorpusPiece, Cut, cut_aligned, cut_corpus, read_piece
from qkv.text.protected_text import compile_patterns, find_spans, has_letters, outside_spans
from qkv.text.sentences import split_sentences
from qkv.text.tokenizer import Tokenizer
from qkv.text.treebank import TextWithHeads

SAMPLED_PAIRS = 20_000  # of a corpus, whose sources are counted and whose languages are learned
SAMPLED_PIECES = 4  # pieces of a large corpus that these are taken from
BLOCK = 1 << 16  # dropped rows that are Python numbers at once
IN_PIECES = {"duplicates", "overlap"}  # rules that do not concern a piece by itself

Languages = tuple[str, str] | None


class Tokenizers(NamedTuple):
    """The tokenizers of source and target; the same one twice when the vocabulary is shared."""

    source: Tokenizer
    target: Tokenizer

    @property
    def shared(self) -> bool:
        return self.source is self.target


class SourceStatistics(NamedTuple):
    """Shares of training sources, by which a translator prepares texts; None where they are not known."""

    several_sentences: float | None = None  # sources with more than one sentence
    without_letters: float | None = None  # sources without a letter outside of placeholders


class CheckedPiece(NamedTuple):
    """The usable pairs of a piece: those of its part of the cache without the rows that are dropped."""

    key: str
    rows: int  # that are left
    files: dict[str, list[Any]]  # fingerprints
    dropped: str = ""  # the file of the dropped rows, "" without any
    drops_fingerprint: list[Any] | None = None  # of that file

    @property
    def drops_key(self) -> str:
        """A digest of the dropped rows."""
        return self.drops_fingerprint[1] if self.drops_fingerprint else ""

    def pairs(self, drops: np.ndarray) -> Iterator[tuple[str, str]]:
        """Yield the pairs that are left; `drops` are the others, in order."""
        left = (row for start in range(0, len(drops), BLOCK) for row in drops[start : start + BLOCK].tolist())
        skipped = next(left, -1)
        part = Part(PIECES, self.key)
        with part.open(PAIRS, lambda path: path.open(encoding="utf-8", newline="\n"), self.files[PAIRS]) as file:
            for row, line in enumerate(file):
                if row == skipped:
                    skipped = next(left, -1)
                    continue
                source, target, *heads = line.rstrip("\n").split("\t")
                yield TextWithHeads(source, [int(head) for head in heads[0].split()]) if heads else source, target


@dataclass(frozen=True)
class CheckedCorpus:
    """A corpus after checking: its pieces and the report."""

    part: Part
    pieces: list[CheckedPiece]
    report: CheckReport
    trees: bool = False  # whether sources come with heads

    @property
    def key(self) -> str:
        """A digest of the corpus's content and of how it was checked."""
        return self.part.key

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for piece in self.pieces:
            yield from self.read(piece)

    def read(self, piece: CheckedPiece) -> Iterator[tuple[str, str]]:
        """Yield the pairs of a piece."""
        return piece.pairs(self.drops(piece))

    def drops(self, piece: CheckedPiece) -> np.ndarray:
        """Return the rows of a piece that are dropped, in order, mapped into memory."""
        if not piece.dropped:
            return np.zeros(0, dtype=np.uint32)
        return self.part.open(piece.dropped, lambda path: map_file(path, np.uint32), piece.drops_fingerprint)


class PlannedPiece(NamedTuple):
    """A piece of a corpus's files, the part of the cache for its checked pairs, and the digest of each file."""

    piece: CorpusPiece
    part: Part
    digests: list[str]


class Checking(NamedTuple):
    """A corpus, and how it is checked."""

    corpus: ParallelCorpusConfig
    rules: CheckConfig
    languages: Languages
    held_out: set[int]  # `pair_hashes` of dev and test
    trees: bool = False

    def part(self) -> Part:
        """Return the part of the cache with the index of the corpus."""
        unsaid = {"weight", "pairs", "source", "target"} | ({"prefix"} if not self.corpus.prefix else set())
        options = self.corpus.model_dump(mode="json", exclude=unsaid)
        paths = corpus_files(self.corpus)
        files = [(path.suffixes, found) for path, found in zip(paths, cached_digests(paths), strict=True)]
        # Without newer readers a key stays what it was, so that older runs still know their texts.
        versions = [found] if (found := reader_versions(self.corpus, self.languages)) else []
        rules = self.rules.model_dump(mode="json")
        content = [[options, files, *versions], rules, self.languages, cache_key(sorted(self.held_out))]
        return Part("checked", cache_key([*content, "trees"] if self.trees else content), INDEX)

    def pieces(self) -> list[PlannedPiece]:
        """Return the pieces of the corpus's files, each with its part of the cache."""
        if self.trees:
            read_pairs(self.corpus, self.languages, trees=True)  # refuses files without heads
        paths = corpus_files(self.corpus)
        digests = {str(path): (path.suffixes, found) for path, found in zip(paths, cached_digests(paths), strict=True)}
        options = self.corpus.model_dump(mode="json", exclude={"weight", "pairs", "source", "target"})
        versions = reader_versions(self.corpus, self.languages)
        rules = self.rules.model_dump(mode="json", exclude=IN_PIECES)
        how = [options, versions, rules, self.languages, cache_key(sorted(self.held_out)), self.trees]
        found = []
        for piece in cut_corpus(self.corpus, self.languages, self.trees, _known_cuts):
            content = [digests[file] for file in piece.files]
            part = Part(PIECES, cache_key(["piece", content, piece.ranges, *how]))
            found.append(PlannedPiece(piece, part, [known for _, known in content]))
        return found

    def make_pieces(self, pieces: Sequence[PlannedPiece], work: Work, share: slice = slice(None), thorough: bool = False) -> int:
        """Make the pieces of a share that are not there; return how many of all `pieces` are missing then.

        Thorough work reads those that are there, and makes damaged ones again.
        """
        own = pieces[share]
        absent = [own[number] for number in sorted(find_missing([planned.part for planned in own], thorough))]
        shared = {
            "corpus": self.corpus.model_dump(mode="json"),
            "rules": self.rules.model_dump(mode="json"),
            "languages": self.languages,
            "held_out": sorted(self.held_out),
            "trees": self.trees,
        }
        tasks = [{**piece._asdict(), "size": piece.size, "key": part.key, "digests": found} for piece, part, found in absent]
        work.run(PieceChecker, shared, tasks, "checking", "pairs")
        return find_metas([planned.part for planned in pieces]).count(None) if share != slice(None) else 0


class PieceChecker:
    """Makes checked pieces, in this process or a worker."""

    def __init__(self, corpus: dict[str, Any], rules: dict[str, Any], languages: Any, held_out: list[int], trees: bool):
        self.corpus, self.rules = ParallelCorpusConfig(**corpus), CheckConfig(**rules)
        self.languages: Languages = tuple(languages) if languages else None
        self.held_out, self.trees = set(held_out), trees

    def __call__(self, task: dict[str, Any]) -> dict[str, Any]:
        piece = CorpusPiece(tuple(task["files"]), tuple((start, stop) for start, stop in task["ranges"]))
        part = Part(PIECES, task["key"])

        def write(folder: Path) -> dict[str, Any]:
            pairs = read_piece(piece, self.corpus, self.languages, self.trees)
            found = write_piece(folder, pairs, piece.files, self.rules, self.held_out)
            for name, known in zip(piece.files, task["digests"], strict=True):
                refuse_replaced(input_file(name), known)
            return found

        with lock_folder(cache_folder() / PIECES / part.key):
            if find_missing([part]):
                part.make(write)
        found = part.meta()
        return {"items": found["report"]["read"] if found else 0}


def check_corpus(
    corpus: ParallelCorpusConfig,
    rules: CheckConfig,
    languages: Languages,
    held_out: set[int],
    work: Work,
    trees: bool = False,
    thorough: bool = False,
) -> CheckedCorpus:
    """Return the usable pairs of a corpus, from the cache when its files, the rules and the held-out texts are the same.

    Thorough work also reads the lists of dropped rows of a remote cache, and makes damaged ones again.
    """
    checking = Checking(corpus, rules, languages, held_out, trees)
    part = checking.part()
    index = _known_index(part, thorough)
    if index is None:
        pieces = checking.pieces()
        checking.make_pieces(pieces, work)
        with lock_folder(cache_folder() / "checked" / part.key):
            metas = find_metas([planned.part for planned in pieces])
            made = [MadePiece(planned.piece, planned.part, meta or {}) for planned, meta in zip(pieces, metas, strict=True)]
            part.make(lambda folder: merge_pieces(folder, made, rules))
        index = part.meta()
        assert index is not None
    drops = index["files"]
    checked = []
    for number, entry in enumerate(index["pieces"]):
        name = DROPS.format(number)
        dropped = (name, drops[name]) if name in drops else ()
        checked.append(CheckedPiece(entry["key"], entry["rows"], entry["files"], *dropped))
    return CheckedCorpus(part, checked, CheckReport.from_dict(index["report"]), trees)


def _known_index(part: Part, thorough: bool) -> dict[str, Any] | None:
    """Return the index of a corpus; None where there is none yet, or something on this machine is missing or damaged.

    The lists of dropped rows of a remote cache are read only if `thorough`.
    """
    index = part.meta()
    try:
        pieces = [Part(PIECES, entry["key"]) for entry in index["pieces"]] if index else []
        CheckReport.from_dict(index["report"] if index else {})
    except (KeyError, TypeError, AttributeError, ValueError):
        return None
    damaged = part.is_damaged(thorough) if thorough or not part.remote else False
    return None if damaged or (not part.remote and find_missing(pieces)) else index


def _known_cuts(source: WholeFile, target: WholeFile) -> list[Cut]:
    """Return the cuts of two aligned files, from the cache if they were found before."""
    digests = cached_digests([source, target])
    note = cache_folder() / "cuts" / cache_key(digests)
    try:
        return [tuple(map(int, cut)) for cut in json.loads(note.read_text())]
    except (OSError, ValueError, TypeError):
        found = cut_aligned(source, target)
    for file, known in zip((source, target), digests, strict=True):
        refuse_replaced(file, known)
    with atomic_file(note) as aside:
        aside.write_text(json.dumps(found))
    return found


def sample_pairs(corpora: Sequence[CheckedCorpus]) -> Iterator[tuple[str, str]]:
    """Yield a sample of the pairs of each corpus; of a large one, of some of its pieces."""
    for corpus in corpora:
        pieces = corpus.pieces[:: -(-len(corpus.pieces) // SAMPLED_PIECES)]
        step = 1 + sum(piece.rows for piece in pieces) // SAMPLED_PAIRS
        yield from islice((pair for piece in pieces for pair in corpus.read(piece)), 0, None, step)


def count_sources(pairs: Iterable[tuple[str, str]]) -> SourceStatistics:
    """Return the statistics of the sources of some pairs."""
    read = several = without = 0
    for source, _ in pairs:
        read += 1
        several += len(split_sentences(source)) > 1
        without += not has_letters(outside_spans(source, find_spans(source, compile_patterns())))
    return SourceStatistics(several / max(1, read), without / max(1, read))

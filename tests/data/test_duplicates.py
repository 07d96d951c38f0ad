"""Duplicates and held-out texts over a corpus: pieces, buckets and processes change nothing, compared with one set in memory."""

import json
import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from qkv.base.errors import DataError
from qkv.data import checked_pieces, duplicates, workers
from qkv.data.cache import cache_folder
from qkv.data.checked_pieces import HASHES, LINES, OVERLAPS, PAIRS, PIECES, ROWS
from qkv.data.corpora import CheckedCorpus, CheckedPiece, check_corpus
from qkv.data.duplicates import DROPS, MadePiece, merge_pieces
from qkv.data.store import Part
from qkv.data.workers import Work
from qkv.text import pieces
from qkv.text.check import DUPLICATE, OVERLAP, CheckConfig, CheckReport, check_pairs, pair_hashes, text_hash
from qkv.text.corpus import ParallelCorpusConfig, read_pairs

HELD_OUT = pair_hashes([("word 3 x", "wort 3 x"), ("word 7 y", "other")])


def in_memory(corpus: ParallelCorpusConfig, rules: CheckConfig, held_out: set[int]) -> tuple[list[tuple[str, str]], CheckReport]:
    """Check a corpus with a set of all pairs seen, in one pass."""
    report, seen, kept = CheckReport(), set(), []
    for pair in check_pairs(read_pairs(corpus), rules, report):
        both = text_hash(f"{pair.source}\t{pair.target}")
        if rules.duplicates == "drop" and both in seen:
            report.drop(DUPLICATE, pair.line, pair.file)
            continue
        seen.add(both)
        if text_hash(pair.source) in held_out:
            report.overlap += 1
            report.overlap_pairs += both in held_out
            if rules.overlap == "drop":
                report.drop(OVERLAP, pair.line, pair.file)
                continue
        kept.append((pair.source, pair.target))
    return kept, report


def write_corpus(folder: Path, kind: str, count: int = 400) -> ParallelCorpusConfig:
    """Write pairs of which many are equal, empty, the same on both sides, or in dev."""
    rng = random.Random(5)
    rows = []
    for _ in range(count):
        number, letter = rng.randrange(40), rng.choice("xyz")
        rows.append(rng.choice([(f"word {number} {letter}", f"wort {number} {letter}")] * 8 + [("", "leer"), ("same", "same")]))
    if kind == "lines":
        for side, name in enumerate(("a.en", "a.de")):
            (folder / name).write_text("\n".join(row[side] for row in rows))  # no line feed at the end
        return ParallelCorpusConfig(source=str(folder / "a.en"), target=str(folder / "a.de"))
    lines = {
        "tsv": ["source\ttarget", *map("\t".join, rows)],
        "jsonl": [json.dumps({"de": target, "en": source}) for source, target in rows] + ["not JSON"],
    }[kind]
    half = len(lines) // 2 if kind == "jsonl" else len(lines)
    for number, part in enumerate([lines[:half], lines[half:]]):
        if part:
            (folder / f"part-{number}.{kind}").write_text("\n".join(part) + "\n")
    columns = ("en", "de") if kind == "jsonl" else None
    return ParallelCorpusConfig(pairs=str(folder / f"part-*.{kind}"), columns=columns)


def checked(corpus: ParallelCorpusConfig, rules: CheckConfig, held_out: set[int] = HELD_OUT, processes: int = 1) -> CheckedCorpus:
    return check_corpus(corpus, rules, None, held_out, Work(processes))


@pytest.mark.parametrize("kind", ["tsv", "jsonl", "lines"])
@pytest.mark.parametrize("rules", [{}, {"overlap": "drop"}, {"duplicates": "keep"}], ids=str)
def test_pieces_and_buckets_change_nothing(kind: str, rules: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, config = write_corpus(tmp_path, kind), CheckConfig(**rules)
    wanted, report = in_memory(corpus, config, HELD_OUT)
    monkeypatch.setattr(pieces, "PIECE", 1000)
    monkeypatch.setattr(pieces, "BLOCK", 300)
    monkeypatch.setattr(checked_pieces, "RUN", 7)
    monkeypatch.setattr(duplicates, "BUCKET_PAIRS", 50)
    found = checked(corpus, config)
    assert len(found.pieces) > 3
    assert list(found) == wanted
    assert found.report == report
    assert sum(piece.rows for piece in found.pieces) == report.kept


def test_processes_change_nothing_and_hand_on_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write_corpus(tmp_path, "tsv")
    monkeypatch.setattr(pieces, "PIECE", 4000)
    monkeypatch.setattr(workers, "SMALL", 0)
    found = checked(corpus, CheckConfig(), processes=2)
    parts = {path.relative_to(cache_folder()): path.read_bytes() for path in cache_folder().glob("[cp]*/*/*")}
    assert list(found) == in_memory(corpus, CheckConfig(), HELD_OUT)[0]
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "other"))
    checked(corpus, CheckConfig())
    assert {path.relative_to(cache_folder()): path.read_bytes() for path in cache_folder().glob("[cp]*/*/*")} == parts
    for name in "ab":
        (tmp_path / f"{name}.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(DataError, match=r"[ab]\.parquet: cannot be read as Parquet"):
        checked(ParallelCorpusConfig(pairs=str(tmp_path / "*.parquet")), CheckConfig(), processes=2)


def test_only_what_is_missing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `kill -9`: some pieces are there, one is half-written, and the index is not there yet."""
    corpus = write_corpus(tmp_path, "tsv")
    monkeypatch.setattr(pieces, "PIECE", 1000)
    wanted = list(checked(corpus, CheckConfig()))
    for index in cache_folder().glob("checked/*/index.json"):
        index.unlink()
    made = sorted(cache_folder().glob("pieces/*"))
    (made[0] / "meta.json").unlink()
    (made[1] / "pairs.tsv").write_bytes(b"")
    before = {path: path.stat().st_mtime_ns for path in cache_folder().glob("pieces/*/meta.json")}
    assert list(checked(corpus, CheckConfig())) == wanted
    again = {path for path in cache_folder().glob("pieces/*/meta.json") if before.get(path) != path.stat().st_mtime_ns}
    assert again == {made[0] / "meta.json", made[1] / "meta.json"}


def test_files_that_are_not_aligned_are_refused_with_both_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write_corpus(tmp_path, "lines")
    monkeypatch.setattr(pieces, "PIECE", 1000)
    with (tmp_path / "a.de").open("a") as file:
        file.write("\none more")
    with pytest.raises(DataError, match=r"misaligned: .*a\.en has 400 lines, .*a\.de has 401"):
        checked(corpus, CheckConfig())


def make_piece(number: int, rows: int) -> MadePiece:
    """Make a piece as `write_piece` does, without a Python step for each pair; half of its pairs are the same one."""
    run = checked_pieces.RUN
    hashes = np.random.default_rng(number).integers(0, 1 << 63, rows, dtype=np.uint64) * np.uint64(2)
    hashes[::2] = 1 << 40

    def fill(folder: Path) -> dict:
        orders = [start + np.argsort(hashes[start : start + run], kind="stable") for start in range(0, rows, run)]
        hashes[np.concatenate(orders)].tofile(folder / HASHES)
        np.concatenate(orders).astype(np.uint32).tofile(folder / ROWS)
        np.arange(rows, dtype=np.uint32).tofile(folder / LINES)
        np.arange(0, 2 * rows, 64).tofile(folder / OVERLAPS)
        (folder / PAIRS).write_bytes(b"a\tb\n" * rows)
        report = CheckReport(read=rows).as_dict()
        return {"rows": rows, "lines": rows, "runs": [len(order) for order in orders], "report": report}

    part = Part(PIECES, f"{number}-{rows}")
    part.make(fill)
    return MadePiece(pieces.CorpusPiece((f"{number}.tsv",)), part, part.meta() or {})


def test_memory_does_not_grow_with_the_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither with the rows of a piece (a compressed file is one), nor with how often a pair occurs."""
    monkeypatch.setattr(checked_pieces, "RUN", 1 << 13)
    monkeypatch.setattr(duplicates, "BUCKET_PAIRS", 1 << 13)
    monkeypatch.setattr("qkv.data.corpora.BLOCK", 1 << 10)
    peaks = []
    for rows in (1 << 14, 1 << 17):
        made = [make_piece(number, rows) for number in range(2)]
        (folder := tmp_path / str(rows)).mkdir()
        tracemalloc.start()
        index = merge_pieces(folder, made, CheckConfig())
        entry = index["pieces"][1]
        drops = np.memmap(folder / DROPS.format(1), dtype=np.uint32, mode="r")
        left = sum(1 for _ in CheckedPiece(entry["key"], entry["rows"], entry["files"]).pairs(drops))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert left == entry["rows"] == rows // 2 == len(drops) and (drops == np.arange(0, rows, 2)).all()
        assert index["report"]["dropped"][DUPLICATE]["count"] == rows - 1
    assert peaks[1] < 1.5 * peaks[0]

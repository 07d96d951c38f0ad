"""Imported checkpoints with larger and smaller vocabularies: they translate as before, and transformers agrees."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

import test_t5_runs as t5
from test_marian_runs import GREEDY, TEXTS, our_texts, spaced, their_texts

from marian_folders import corpus, write_checkpoint
from qkv.folder.run import read_run
from qkv.interop.export import export
from qkv.interop.huggingface.runs import import_huggingface
from qkv.jobs.shrink import shrink
from qkv.jobs.train import train

CHINESE = ["我们在设置中", "设置在我们中", "我们在这里"]


def write_pairs(file: Path, sources: list[str], targets: list[str]) -> Path:
    file.write_text("".join(f"{source}\t{target}\n" for source, target in zip(sources, targets, strict=True)))
    return file


def grow(tmp_path: Path, start: Path) -> Path:
    """Adapt a run to Chinese targets and new words; its weights hardly change."""
    pairs = write_pairs(tmp_path / "zh.tsv", ["zuzu kuku", "kuku zuzu", "zuku"] * 4, CHINESE * 4)
    given = {"start": str(start), "data.train": str(pairs), "data.dev": str(pairs), "data.check.duplicates": "keep"}
    given |= {
        "data.languages": ["en", "zh"],
        "tokenizer.grow": 60,
        "training.steps": 1,
        "training.learning_rate": 1e-12,
        "metrics": ["exact"],
    }
    return train("adapt", tmp_path / "grown", settings={**given, "decoding.beam": 1, "decoding.max_extra": 2})


@pytest.mark.parametrize(
    "options", [{"lacking": 9}, {"same": True, "more": 3}, {"apart": True}], ids=["one vocabulary", "one tokenizer", "two"]
)
def test_a_marian_grows(options: dict[str, Any], tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "hf", **options)
    import_huggingface(folder, tmp_path / "run")
    grown = grow(tmp_path, tmp_path / "run")
    (_, old), (_, new) = read_run(tmp_path / "run"), read_run(grown)
    assert new.shared == old.shared and len(new.target) > len(old.target)
    for text in CHINESE:
        assert new.target.decode(new.target.encode(text)) == text
    wanted = spaced(their_texts(folder, TEXTS[:3]))
    assert our_texts(grown, TEXTS[:3], **GREEDY) == wanted
    export(grown, "hf", tmp_path / "back")
    assert spaced(their_texts(tmp_path / "back", TEXTS[:3], "" if new.shared else "target")) == wanted
    import_huggingface(tmp_path / "back", tmp_path / "again")
    assert our_texts(tmp_path / "again", TEXTS[:3], **GREEDY) == wanted


def test_a_marian_shrinks(tmp_path: Path) -> None:
    import_huggingface(write_checkpoint(tmp_path / "hf", lacking=9), tmp_path / "run")
    wanted = our_texts(tmp_path / "run", TEXTS[:3], **GREEDY)
    used = write_pairs(tmp_path / "used.tsv", [*corpus(0)[:5], *TEXTS[:3]], [*corpus(1)[:5], *wanted])
    before, after = shrink(tmp_path / "run", [used], tmp_path / "small")
    assert after.pieces < before.pieces
    kept = read_run(tmp_path / "small")[1].target
    assert [kept.decode(kept.encode(text)) for text in wanted] == wanted
    export(tmp_path / "small", "hf", tmp_path / "back")
    assert spaced(their_texts(tmp_path / "back", TEXTS[:3], "target")) == our_texts(tmp_path / "small", TEXTS[:3], **GREEDY)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_t5_grows(version: str, tmp_path: Path) -> None:
    t5.write_theirs(tmp_path / "hf", version)
    import_huggingface(tmp_path / "hf", tmp_path / "run")
    grown = grow(tmp_path, tmp_path / "run")
    old, new = read_run(tmp_path / "run")[1].source, read_run(grown)[1].source
    assert new.sentinels == old.sentinels and len(new) > len(old)
    wanted = t5.our_texts(tmp_path / "run")
    assert t5.our_texts(grown) == wanted
    export(grown, "hf", tmp_path / "back")
    assert t5.their_texts(tmp_path / "back") == wanted

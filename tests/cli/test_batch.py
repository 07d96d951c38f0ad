"""The command line of batch work: which arguments ask for it, and what is refused before any worker starts."""

import re
from pathlib import Path
from typing import Any

import pytest

from batch_runs import write_runs, write_shards
from qkv.base.errors import DataError
from qkv.cli.batch import BatchProgress, summarise
from qkv.distributed.batch import BatchReport
from qkv.distributed.shards import Shard
from qkv.inference.load import load
from workbench import Commands


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    write_shards(folder / "in")
    (folder / "table.csv").write_text("a,b\n")
    return folder


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("score RUN in --out out --on spark", "--on spark is not known; give local or ray"),
        ("score RUN in", "many shards give many outputs; name a folder or a URL for them with --out"),
        ("score RUN - --out out --on local", "batch work reads shards, not standard input"),
        ("score RUN in --out https://127.0.0.1:1/out", "https://127.0.0.1:1/out: an address of the web cannot be written; give"),
        ("score RUN in nowhere.txt --out out", "nowhere.txt: no such file"),
        ("score RUN in/*.csv --out out", "*.csv: no such file, or no file there"),
        ("score RUN in --out in", "holds other files, such as 00.txt; choose a new folder for --out"),
        ("score nothing in --out out", "nothing: no such run folder"),
        ("predict RUN table.csv in --out out", "table.csv: its name does not say that it is a shard of text (.txt), JSONL"),
        ("predict RUN in --out out --set label=1", "--set label is not for shards"),
        ("generate RUN two prompts", "several prompts; put quotes around one, or give shards of prompts with --out"),
        ("translate RUN in --out out --on local --all", "--all is for documents translated whole, not for shards"),
        ("translate RUN in/01.jsonl in/02.parquet --out out", "IN/01.jsonl: a shard, which --on local translates"),
    ],
)  # fmt: skip
def test_wrong_arguments(arguments: str, says: str, commands: Commands, runs: dict[str, Path], inputs: Path) -> None:
    verb, *rest = arguments.split()
    places = {"RUN": runs[verb]} | {
        one: inputs / one for one in rest if one.startswith(("in", "out", "no", "table")) and one != "nothing"
    }
    says = says.replace("IN", str(inputs / "in"))
    assert says in commands.run(verb, *(places.get(one, one) for one in rest)).complaint()
    assert not (inputs / "out").exists()


def test_a_single_file_is_scored_as_lines(commands: Commands, runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("the fox\nParis is the capital of France\n")
    done = commands.run("score", runs["score"], tmp_path / "texts.txt", "--device", "cpu")
    model = load(runs["score"], "cpu")
    expected = model.score(["the fox", "Paris is the capital of France"])  # type: ignore[union-attr, arg-type]
    assert [float(line) for line in done.out.splitlines()] == pytest.approx(expected, abs=1e-3)
    written = commands.run("score", runs["score"], tmp_path / "texts.txt", "--out", tmp_path / "scores.txt", "--device", "cpu")
    assert (written.code, (tmp_path / "scores.txt").read_text()) == (0, done.out)
    complaint = commands.run("score", runs["translate"], tmp_path / "texts.txt").complaint()
    assert "line 1: a translator scores pairs; give a source, one tab and a target on each line" in complaint


def test_every_shard_is_counted_and_one_is_no_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shards = [Shard(str(tmp_path / name), name) for name in ("kept", "failed", "done")]
    results: list[dict[str, Any]] = [{"mark": {"rows": 3}, "kept": True}, {"failed": "why"}, {"mark": {"rows": 1}, "kept": False}]
    with BatchProgress(shards) as progress:
        for shard, result in zip(shards, results, strict=True):
            progress.show(shard, result)
    assert re.fullmatch(r"3 of 3 shards, 1 failed  [\d,]+ rows/s  0 s left\n", capsys.readouterr().err)
    with pytest.raises(DataError, match="1 of 3 shards failed; mend what is wrong"):
        summarise("out", BatchReport(1, 1, 1, ["why"]))
    assert capsys.readouterr().err == "qkv: out: 1 shard done, 1 row, 1 was there\nqkv: why\n"

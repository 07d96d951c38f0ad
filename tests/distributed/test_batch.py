"""Batch work: one shard in, one shard out, the same bytes whatever the workers, and nothing twice."""

import errno
import gzip
import json
import os
import signal
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batch_runs import contents, write_runs, write_shards
from qkv.base import hardware, urls
from qkv.base.errors import ConfigError, QkvError
from qkv.base.pool import LocalWorkers, WorkerEvent
from qkv.base.urls import read_bytes
from qkv.distributed import batch
from qkv.distributed.batch import WORK, BatchReport, BatchWork, finish_batch, plan_batch, run_batch
from qkv.distributed.shard_writers import write_shard
from qkv.distributed.shards import CHUNK, Chunk, find_shards, read_chunks
from qkv.distributed.verbs import EmbedVerb
from qkv.inference.load import load
from workbench import SOURCE, wait_until

OPTIONS: dict[str, dict[str, Any]] = {
    "translate": {"scores": True},
    "embed": {},
    "predict": {},
    "score": {},
    "generate": {"max_tokens": 4, "decoding": {"sampling": True}},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(autouse=True)
def _one_core_for_a_test_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "_one_core", False)
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")


class WorkersHere:
    """A worker of this process, so that nothing needs to start."""

    def __init__(self, plan: Any):
        self.work, self.answers = BatchWork(**plan.model_dump()), deque([{"result": None}])

    def start(self) -> int:
        return 0

    def send(self, worker: int, task: str) -> None:
        self.answers.append({"result": self.work(**json.loads(task))})

    def wait(self) -> list[WorkerEvent]:
        return [WorkerEvent(0, json.dumps({**self.answers.popleft(), "warnings": []}))]

    def close(self) -> None:
        pass


def do(verb: str, run: Path, inputs: Iterable[Any], out: Any, **options: Any) -> BatchReport:
    plan = plan_batch(verb, run, str(out), "cpu", **options)
    shards, _ = find_shards([str(one) for one in inputs])
    return run_batch(plan, shards, WorkersHere(plan), 1, lambda *_: None)


@pytest.mark.filterwarnings("ignore:--scores gives scores of the search")  # the run has no calibration
@pytest.mark.parametrize("verb", OPTIONS)
def test_the_order_of_shards_and_their_company_change_nothing(verb: str, runs: dict[str, Path], tmp_path: Path) -> None:
    names = write_shards(tmp_path / "in")
    report = do(verb, runs[verb], [tmp_path / "in"], tmp_path / "out", **OPTIONS[verb])
    assert report == BatchReport(4, 0, 24, [])
    plan = plan_batch(verb, runs[verb], str(tmp_path / "apart"), "cpu", **OPTIONS[verb])
    apart = [BatchWork(**plan.model_dump())(str(tmp_path / "in" / name), name) for name in reversed(names)]
    finish_batch(plan, apart)
    assert contents(tmp_path / "apart") == contents(tmp_path / "out")
    assert (tmp_path / "apart" / "manifest.json").read_bytes() == (tmp_path / "out" / "manifest.json").read_bytes()


def test_outputs_are_what_the_run_says_of_each_text(runs: dict[str, Path], tmp_path: Path) -> None:
    import pyarrow.parquet

    write_shards(tmp_path / "in")
    for verb in ("embed", "score", "translate"):
        do(verb, runs[verb], [tmp_path / "in" / "*"], tmp_path / verb)
    texts = (tmp_path / "in" / "00.txt").read_text().splitlines()
    encoder: Any = load(runs["embed"], "cpu")
    np.testing.assert_allclose(np.load(tmp_path / "embed" / "00.txt.npy"), encoder.embed(texts), rtol=1e-5, atol=1e-6)
    scores = [float(line) for line in (tmp_path / "score" / "00.txt").read_text().splitlines()]
    model: Any = load(runs["score"], "cpu")
    assert scores == pytest.approx([model.score([text])[0] for text in texts], abs=1e-3)
    translator: Any = load(runs["translate"], "cpu")
    table = pyarrow.parquet.read_table(tmp_path / "translate" / "02.parquet").to_pydict()
    assert list(table) == ["id", "text", "translation"]
    assert table["translation"] == translator.translate(table["text"])
    lines = gzip.decompress((tmp_path / "translate" / "03.jsonl.gz").read_bytes()).decode().splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["id"] for record in records] == list(range(6))
    assert [record["translation"] for record in records] == translator.translate([record["text"] for record in records])


def test_a_translator_scores_pairs(runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "pairs.txt").write_text("the fox\tthe dog\nParis\tRome of Italy\n")
    do("score", runs["translate"], [tmp_path / "pairs.txt"], tmp_path / "out")
    translator: Any = load(runs["translate"], "cpu")
    (found,) = translator.n_best(["the fox"], protect=None, beam=1, length_penalty=0)
    best = translator.score([("the fox", found[0].text)])[0]
    short, long = map(float, (tmp_path / "out" / "pairs.txt").read_text().splitlines())
    assert [short, long] == pytest.approx(translator.score([("the fox", "the dog"), ("Paris", "Rome of Italy")]), abs=1e-3)
    assert long < short < 0
    assert best < 0


def test_only_what_is_missing_is_done(runs: dict[str, Path], tmp_path: Path) -> None:
    run, inputs, out = runs["score"], [tmp_path / "in"], tmp_path / "out"
    names = write_shards(tmp_path / "in")
    do("score", run, inputs, out)
    whole = contents(out)
    (out / names[1]).unlink()
    (out / ".done" / f"{names[2]}.json").unlink()  # as after a kill between the output and its mark
    assert do("score", run, inputs, out) == BatchReport(2, 2, 12, [])
    assert contents(out) == whole
    (tmp_path / "in" / names[0]).write_text("another text\n")
    assert do("score", run, inputs, out) == BatchReport(1, 3, 1, [])
    (out / names[1]).write_text("by hand")
    report = do("score", run, inputs, out)
    assert report.failed == [
        f"{tmp_path / 'in' / names[1]}: {out / names[1]} has changed since it was written; delete it to have it made again"
    ]
    assert (out / names[1]).read_text() == "by hand"
    assert not json.loads((out / "manifest.json").read_text())["complete"]


def test_an_output_of_another_input_is_kept(runs: dict[str, Path], tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "z.txt").write_text(f"of {folder}\n")
    do("score", runs["score"], [tmp_path / "a"], tmp_path / "out")
    before = contents(tmp_path / "out")
    report = do("score", runs["score"], [tmp_path / "b"], tmp_path / "out")
    assert f"is the output of {tmp_path / 'a' / 'z.txt'}; choose another --out" in report.failed[0]
    assert contents(tmp_path / "out") == before


def test_a_folder_that_another_command_takes_meanwhile_is_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    plans = [plan_batch("score", runs["score"], str(tmp_path / "out"), "cpu", how=how) for how in ("left", None)]
    with pytest.raises(ConfigError, match="another command with other options writes there too"):
        finish_batch(plans[0], [])
    finish_batch(plans[1], [])


@pytest.mark.parametrize("store", ["", "memory:/"])
def test_two_commands_that_end_at_the_same_time_are_both_in_the_manifest(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    """The second one ends between the moments at which the first one reads what is there and writes the manifest."""
    names, out, write = write_shards(tmp_path / "in"), f"{store}{tmp_path}/out", batch.write_json
    plans = [plan_batch("score", runs["score"], out, "cpu") for _ in range(2)]
    results = [[BatchWork(**plans[0].model_dump())(str(tmp_path / "in" / names[0]), names[0])]]

    def late(place: str, values: dict[str, Any]) -> None:
        if len(results) == 1 and place.endswith("manifest.json"):
            results.append([BatchWork(**plans[1].model_dump())(str(tmp_path / "in" / name), name) for name in names[1:]])
            finish_batch(plans[1], results[1])
        write(place, values)

    monkeypatch.setattr(batch, "write_json", late)
    assert finish_batch(plans[0], results[0]).done == 1
    assert sorted(json.loads(read_bytes(f"{out}/manifest.json"))["shards"]) == names


def test_a_folder_of_another_command_is_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("the fox\n")
    plan_batch("embed", runs["embed"], str(tmp_path / "out"))  # nothing came of it, so that another command may have the folder
    do("score", runs["score"], [tmp_path / "one.txt"], tmp_path / "out")
    with pytest.raises(ConfigError, match=r"another command: options\.column: 'text' -> 'body'; choose another"):
        plan_batch("score", runs["score"], str(tmp_path / "out"), column="body")
    with pytest.raises(ConfigError, match="outputs of another run"):
        plan_batch("score", runs["embed"], str(tmp_path / "out"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").touch()
    with pytest.raises(ConfigError, match=r"holds other files, such as letter\.txt"):
        plan_batch("score", runs["score"], str(tmp_path / "mine"))


def test_damaged_shards_are_named_and_the_others_done(runs: dict[str, Path], tmp_path: Path) -> None:
    names, folder = write_shards(tmp_path / "in", 8), tmp_path / "in"
    (folder / names[1]).write_text('{"text": "good"}\n{"text": "cut')
    (folder / names[2]).write_bytes((folder / names[2]).read_bytes()[:-30])
    (folder / names[3]).write_bytes((folder / names[3]).read_bytes()[:-12])
    (folder / names[4]).write_bytes(b"good\n\xff\xff\xff and \xff\n" + b"a long text \n" * 9)
    (folder / names[5]).write_text('{"text": "the fox"}\n\n{"text": "the fox", "score": 1}\n')
    (folder / names[7]).unlink()
    (folder / names[7]).symlink_to("nowhere")  # it is gone when its turn comes
    (folder / "08.jsonl").write_text('{"text": "the fox", "id": "\\ud800"}\n')
    assert [shard.name for shard in find_shards([str(folder)])[0]] == [*names, "08.jsonl"]
    names.append("08.jsonl")
    plan = plan_batch("score", runs["score"], str(tmp_path / "out"), "cpu")
    work = BatchWork(**plan.model_dump())
    report = finish_batch(plan, [work(str(folder / name), name) for name in names])
    assert report.done == 2
    reasons = ("line 2 is not valid JSON", "cannot be read as Parquet", "damaged, cut short", "line 2 is not UTF-8",
               "row 3 has a field 'score' already", "no such file", "row 1, with 'the fox', cannot be written again")  # fmt: skip
    for reason, number, got in zip(reasons, (1, 2, 3, 4, 5, 7, 8), report.failed, strict=True):
        assert got.startswith(f"{folder / names[number]}: ")
        assert reason in got, got
        assert got.count(str(folder)) == 1
    assert sorted(contents(tmp_path / "out")) == [names[0], names[6]]


def test_vectors_are_written_as_they_come(tmp_path: Path) -> None:
    given, alive = np.arange(60, dtype=np.float32).reshape(5, 4, 3), []

    def rows() -> Iterator[tuple[Chunk, np.ndarray]]:
        for one in given:
            vectors = one.copy()
            alive.append(weakref.ref(vectors))
            yield Chunk([""] * 4, [1, 2, 3, 4], None), vectors
            assert sum(vectors() is not None for vectors in alive) <= 2

    assert write_shard(tmp_path / "out", "a.npy", EmbedVerb.__new__(EmbedVerb), rows()) == 20
    np.save(tmp_path / "wanted.npy", given.reshape(20, 3))
    assert (tmp_path / "out").read_bytes() == (tmp_path / "wanted.npy").read_bytes()


def test_a_row_group_of_parquet_is_not_read_whole(tmp_path: Path) -> None:
    import pyarrow.parquet

    texts = [os.urandom(500).hex() for _ in range(8 * CHUNK)]
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "a.parquet", use_dictionary=False, compression="none")
    before = pyarrow.total_allocated_bytes()
    chunks = read_chunks(tmp_path / "a.parquet", ["text"])
    assert next(chunks).values == texts[:CHUNK]
    assert pyarrow.total_allocated_bytes() - before < (tmp_path / "a.parquet").stat().st_size / 2
    assert [value for chunk in chunks for value in chunk.values] == texts[CHUNK:]


def test_a_full_disk_stops_all_and_loses_nothing(runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shards(tmp_path / "in")
    do("embed", runs["embed"], [tmp_path / "in"], tmp_path / "whole")
    plan_batch("embed", runs["embed"], str(tmp_path / "out"), "cpu")
    flush, left = os.fsync, [5]

    def until_full(handle: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(handle)

    monkeypatch.setattr(os, "fsync", until_full)
    with pytest.raises(QkvError, match="the disk is full; make room and run the same command again"):
        do("embed", runs["embed"], [tmp_path / "in"], tmp_path / "out")
    monkeypatch.setattr(os, "fsync", flush)
    assert not list(tmp_path.rglob("*.partial"))
    assert do("embed", runs["embed"], [tmp_path / "in"], tmp_path / "out").kept == 1
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_shards_on_an_object_store(runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    names, store = write_shards(tmp_path / "in"), fsspec.filesystem("memory")
    for name in names:
        store.pipe_file(f"/batch-test/in/{name}", (tmp_path / "in" / name).read_bytes())
    do("score", runs["score"], [tmp_path / "in"], tmp_path / "here")
    assert do("score", runs["score"], ["memory://batch-test/in"], "memory://batch-test/out").done == 4
    assert {name: store.cat_file(f"/batch-test/out/{name}") for name in names} == contents(tmp_path / "here")
    assert do("score", runs["score"], ["memory://batch-test/in/*"], "memory://batch-test/out").kept == 4
    # Whether an object without a tag has changed is not known.
    monkeypatch.setattr(urls, "_object_info", lambda found: urls.ObjectInfo(found["size"], ""))
    for _ in range(2):
        assert do("score", runs["score"], ["memory://batch-test/in/*"], "memory://batch-test/out").done == 4
    store.rm("/batch-test", recursive=True)


@pytest.mark.needs_fork
def test_processes_give_the_bytes_of_one_and_a_killed_one_is_replaced(runs: dict[str, Path], tmp_path: Path) -> None:
    write_shards(tmp_path / "in", 6)
    options = OPTIONS["generate"]
    do("generate", runs["generate"], [tmp_path / "in"], tmp_path / "one", **options)
    plan = plan_batch("generate", runs["generate"], str(tmp_path / "two"), "cpu", **options)
    workers, killed = LocalWorkers(WORK, plan.model_dump()), list[int]()

    def show(*_: Any) -> None:
        if not killed:
            killed.append(next(iter(workers.processes.values())).pid)
            os.kill(killed[0], signal.SIGKILL)

    report = run_batch(plan, find_shards([str(tmp_path / "in")])[0], workers, 2, show)
    assert (report.done + report.kept, report.failed) == (6, [])
    assert killed
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


@pytest.mark.needs_linux
def test_a_command_killed_in_the_middle_goes_on_where_it_was(runs: dict[str, Path], tmp_path: Path) -> None:
    names = write_shards(tmp_path / "in", 12, 600)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "qkv", "score", runs["score"], tmp_path / "in", "--out", out, "--workers", "1"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen([*map(str, command), "--device", "cpu"], env=environment, stderr=subprocess.DEVNULL) as started:
        wait_until(lambda: list((out / ".done").glob("*.json")) or started.poll() is not None)
        workers = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
        started.kill()
    wait_until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))  # they see that the command is gone
    marks = {path.name.removesuffix(".json"): path for path in (out / ".done").glob("*.json")}
    assert marks
    done = {name: path.stat().st_mtime_ns for name, path in marks.items()}
    report = do("score", runs["score"], [tmp_path / "in"], out)
    assert report.kept >= len(done)  # the worker may have finished a shard before it saw that the command was gone
    assert report.done + report.kept == 12
    assert {name: marks[name].stat().st_mtime_ns for name in done} == done
    do("score", runs["score"], [tmp_path / "in"], tmp_path / "whole")
    assert contents(out) == contents(tmp_path / "whole")
    assert sorted(contents(out)) == names

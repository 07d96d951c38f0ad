"""The log survives a kill, drops the updates that a resumed run repeats, and TensorBoard's own reader agrees with it."""

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from qkv.base.errors import QkvError
from qkv.training.log import EVENTS, METRICS, NO_TENSORBOARD, Log, append, read_metrics
from toy_training import toy_trainer


def tensorboard_scalars(run):
    """Return the scalars that TensorBoard's reader finds in the run's events."""
    reason = "needs the tensorboard package"
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason=reason)
    reader = accumulators.EventAccumulator(str(run / EVENTS))
    reader.Reload()
    return {tag: [(e.step, e.value) for e in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}


def test_a_line_is_json_with_the_step_first(tmp_path):
    Log(tmp_path).write(7, loss=1.5, note="für")
    assert (tmp_path / METRICS).read_text("utf-8") == '{"step": 7, "loss": 1.5, "note": "für"}\n'
    assert read_metrics(tmp_path) == [{"step": 7, "loss": 1.5, "note": "für"}]


def test_numbers_that_are_not_finite_stay_json(tmp_path):
    Log(tmp_path).write(1, loss=math.nan, rate=math.inf)
    assert json.loads((tmp_path / METRICS).read_text()) == {"step": 1, "loss": None, "rate": None}


def test_rewind_drops_later_lines(tmp_path):
    log = Log(tmp_path)
    for step in (10, 20, 20, 30):
        log.write(step, loss=step / 10)
    log.rewind(20)
    log.write(30, loss=9.0)
    assert [(line["step"], line["loss"]) for line in read_metrics(tmp_path)] == [(10, 1), (20, 2), (20, 2), (30, 9)]
    assert not list(tmp_path.glob(".*"))


def test_rewind_of_a_log_without_lines(tmp_path):
    Log(tmp_path).rewind(0)
    assert read_metrics(tmp_path) == []


@pytest.mark.parametrize("rest", [b'{"step": 3, "lo', b"\xff\xfe", b"{"])
def test_half_a_line_is_cut_off(tmp_path, rest):
    Log(tmp_path).write(1, loss=2.0)
    with (tmp_path / METRICS).open("ab") as file:
        file.write(rest)
    assert [line["step"] for line in read_metrics(tmp_path)] == [1]
    Log(tmp_path).write(2, loss=1.0)
    assert [json.loads(line)["step"] for line in (tmp_path / METRICS).read_text().splitlines()] == [1, 2]


@pytest.mark.needs_fork
def test_killed_while_writing(tmp_path):
    script = """
        import sys
        from pathlib import Path
        from qkv.training.log import Log
        log = Log(Path(sys.argv[1]))
        step = 0
        while True:
            step += 1
            log.write(step, loss=1 / step, text="x" * 3000)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script), str(tmp_path)])
    while len(read_metrics(tmp_path)) < 5:
        time.sleep(0.01)
        assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    steps = [line["step"] for line in read_metrics(tmp_path)]
    assert steps == list(range(1, len(steps) + 1))
    Log(tmp_path).rewind(4)
    assert [line["step"] for line in read_metrics(tmp_path)] == [1, 2, 3, 4]


def test_tensorboard_reads_what_was_written(tmp_path):
    log = Log(tmp_path)
    for step in (1, 128, 70_000):
        log.write(step, loss=1 / step, tokens=step * 3, note="not a number", nothing=None)
        assert tensorboard_scalars(tmp_path)["loss"][-1][0] == step  # at once, while the log is open
    scalars = tensorboard_scalars(tmp_path)
    assert set(scalars) == {"loss", "tokens"}
    assert scalars["tokens"] == [(1, 3.0), (128, 384.0), (70_000, 210_000.0)]
    assert [value for _, value in scalars["loss"]] == pytest.approx([1, 1 / 128, 1 / 70_000])


def test_tensorboard_forgets_what_is_done_again(tmp_path):
    first = Log(tmp_path)
    for step in (10, 20, 30):
        first.write(step, loss=1.0)
    second = Log(tmp_path)
    second.rewind(10)
    second.write(20, loss=2.0)
    assert len(list((tmp_path / EVENTS).iterdir())) == 2
    assert tensorboard_scalars(tmp_path)["loss"] == [(10, 1.0), (20, 2.0)]


def test_without_tensorboard_one_line_says_so_and_training_goes_on(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)  # importing it fails
    trainer = toy_trainer(tmp_path / "run")
    assert trainer.train().step == 12
    assert trainer.progress.said.count(NO_TENSORBOARD) == 1 and "\n" not in NO_TENSORBOARD
    assert [line["step"] for line in read_metrics(tmp_path / "run") if "loss" in line] == list(range(1, 13))
    assert not (tmp_path / "run" / EVENTS).exists()


def test_with_tensorboard_nothing_is_said_of_it(tmp_path):
    pytest.importorskip("tensorboard")
    assert NO_TENSORBOARD not in toy_trainer(tmp_path / "run").progress.said


def test_unwritable_folder_is_one_clear_line(tmp_path):
    (tmp_path / "run").write_text("a file where the folder should be")
    with pytest.raises(QkvError, match="cannot be written"):
        Log(tmp_path / "run")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_is_one_clear_line(tmp_path):
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(QkvError, match="the disk is full"):
        append(tmp_path / "full", b"data")

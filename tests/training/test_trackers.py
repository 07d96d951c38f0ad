"""MLflow and Weights & Biases hold what metrics.jsonl holds, once, whatever happens to the run; and nothing stops training."""

import contextlib
import importlib.util
import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from qkv.base.errors import ConfigError
from qkv.training import trackers
from qkv.training.log import Log, read_metrics
from qkv.training.tracked_runs import WANDB_FLUSH, Tracking
from qkv.training.trackers import Follower, check_trackers
from toy_training import ToyTrainer, toy_trainer
from tracked import mlflow_run, wandb_run

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the libraries
NAMES = ("mlflow", "wandb")


@pytest.fixture(autouse=True)
def _offline(tmp_path, monkeypatch):
    """MLflow's default is a file of the current folder; nothing of the environment may lead elsewhere."""
    for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def logged(run: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the points in metrics.jsonl."""
    points: dict[str, list[tuple[int, float]]] = {}
    for line in read_metrics(run):
        for name, value in line.items():
            if name not in ("step", "warnings"):
                points.setdefault(name, []).append((line["step"], value))
    return points


def trained(trainer: ToyTrainer) -> ToyTrainer:
    assert trainer.log
    with trainer.log:
        trainer.train()
        (trainer.run / "result.json").write_text(
            json.dumps({"scores": [{"name": "bleu", "value": 7.5, "low": 6.0, "high": None}]})
        )
    return trainer


def test_both_hold_what_the_log_holds(tmp_path):
    pytest.importorskip("mlflow"), pytest.importorskip("wandb")
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.yaml").write_text("seed: 3\ntraining: {steps: 12, betas: [0.9, 0.98]}\n")
    trainer = trained(toy_trainer(run, trackers=NAMES))
    assert trainer.progress.warnings == []
    found, points = mlflow_run(tmp_path)
    ids, values, rows = wandb_run(run)
    result = {"result/bleu": [(12, 7.5)], "result/bleu_low": [(12, 6.0)]}
    expected = logged(run)
    assert points.keys() == expected.keys() | result.keys() and {name: points[name] for name in result} == result
    for name, series in expected.items():
        assert np.array(points[name]) == pytest.approx(np.array(series)) and np.array(rows[name]) == pytest.approx(
            np.array(series)
        )
    assert found.info.status == "FINISHED" and found.info.run_name == "run"
    assert found.data.params == {"seed": "3", "training.steps": "12", "training.betas": "[0.9, 0.98]"}
    assert values["training.betas"] == [0.9, 0.98] and values["result/bleu"] == 7.5 and len(ids) == 1
    for facts in (found.data.tags, values):
        assert {"qkv", "code", "torch", "device", "host"} <= facts.keys()
    assert not [path for path in tmp_path.rglob("*.safetensors") if run / "checkpoints" not in path.parents]  # none was copied


def test_warnings_of_the_guard_are_shown(tmp_path):
    pytest.importorskip("mlflow"), pytest.importorskip("wandb")
    given = Tracking(tmp_path, "qkv", {}, {})
    with Log(tmp_path, [Follower(name, given, print) for name in NAMES]) as log:  # type: ignore[arg-type]
        log.write(40, loss=2.0, warnings={"loss-rises": "the training loss has risen"})
    for facts in (mlflow_run(tmp_path)[0].data.tags, wandb_run(tmp_path)[1]):
        assert facts["warning/loss-rises"] == "since step 40 the training loss has risen"


@pytest.mark.parametrize("steps", [9])
def test_a_killed_run_goes_on_in_the_same_tracked_run(tmp_path, steps):
    """A fork is killed after some updates, of which the checkpoints hold fewer."""
    pytest.importorskip("mlflow"), pytest.importorskip("wandb")
    run = tmp_path / "run"
    process = os.fork()
    if process == 0:
        trainer = toy_trainer(run, trackers=NAMES)
        after = trainer.report

        def report() -> None:
            after()
            if trainer.state.step == steps:
                assert trainer.log
                for tracker in trainer.log.trackers:
                    while isinstance(tracker, Follower) and tracker._sent() < (steps, 1):
                        tracker.thread.join(0.02)
                time.sleep(2 * WANDB_FLUSH)
                os.kill(os.getpid(), signal.SIGKILL)

        trainer.report = report  # type: ignore[method-assign]
        trainer.train()
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    assert trained(toy_trainer(run, trackers=NAMES)).progress.warnings == []
    _, points = mlflow_run(tmp_path)
    ids, _, rows = wandb_run(run)
    assert len(ids) == 1
    for held in (points, rows):
        assert [step for step, _ in held["loss"]] == list(range(1, 13))
        assert held["dev_loss"] == [(step, pytest.approx(1 / step)) for step in (4, 8, 12)]
        assert np.array(held["loss"]) == pytest.approx(np.array(logged(run)["loss"]))  # what is done again is the same


class Failing:
    """A tracked run whose server fails from some call on."""

    def __init__(self, sent: list[int], works: int):
        self.memory, self.sent, self.works = {"id": "x"}, sent, works

    def send(self, lines):
        for line in lines:
            if self.works == 0:
                raise ConnectionError("503: server is down\nand a second line")
            self.works -= 1
            self.sent.append(line["step"])

    def end(self, status, result):
        pass


def test_a_tracker_that_fails_is_one_warning_and_a_resumed_run_sends_the_rest(tmp_path, monkeypatch):
    sent: list[int] = []
    monkeypatch.setattr(trackers, "CHUNK", 1)
    monkeypatch.setitem(trackers.TRACKED_RUNS, "mlflow", lambda given: Failing(sent, 3))
    trainer = toy_trainer(tmp_path / "run", trackers=["mlflow"], steps=8)
    assert trained(trainer).state.step == 8
    (warning,) = trainer.progress.warnings
    assert "mlflow does not take the figures (503: server is down and a second line)" in warning and "\n" not in warning
    assert sent == [1, 2, 3]
    monkeypatch.setitem(trackers.TRACKED_RUNS, "mlflow", lambda given: Failing(sent, 99))
    trained(toy_trainer(tmp_path / "run", trackers=["mlflow"], steps=12))
    assert sent == [1, 2, 3, 4, 4, 5, 6, 7, 8, 8, 9, 10, 11, 12, 12]  # each line of the log once; validations are lines


@pytest.mark.parametrize(
    ("name", "variables"),
    [
        ("mlflow", {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}),
        ("mlflow", {"MLFLOW_TRACKING_URI": "sqlite:////dev/null/no.db"}),
        ("wandb", {"WANDB_MODE": "online", "WANDB_API_KEY": "bad", "WANDB_BASE_URL": "http://127.0.0.1:9"}),
    ],
)
def test_no_server_or_a_bad_key_is_one_warning(tmp_path, monkeypatch, name, variables):
    pytest.importorskip(name)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    trainer = trained(toy_trainer(tmp_path / "run", trackers=[name]))
    assert trainer.state.step == 12
    (warning,) = trainer.progress.warnings
    assert warning.startswith(f"{name} does not take the figures (") and "\n" not in warning


def test_a_tracker_that_hangs_is_left_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(trackers, "LONGEST_END", 0.05)
    run = Failing([], 0)
    run.send = lambda lines: time.sleep(1)  # type: ignore[method-assign]
    monkeypatch.setitem(trackers.TRACKED_RUNS, "wandb", lambda given: run)
    trainer = trained(toy_trainer(tmp_path / "run", trackers=["wandb"]))
    assert trainer.progress.warnings == ["wandb has not taken all figures after 0 s, and is left; metrics.jsonl has them"]


def test_a_missing_package_shows_before_any_work(monkeypatch):
    monkeypatch.setattr(trackers, "find_spec", lambda name: importlib.util.find_spec(name) if name == "os" else None)
    with pytest.raises(ConfigError, match=r"pip install 'qkv\[wandb\]'"):
        check_trackers(("wandb",))
    check_trackers(())


@pytest.mark.parametrize(("error", "status"), [(None, "finished"), (KeyboardInterrupt(), "stopped"), (RuntimeError(), "failed")])
def test_how_the_training_ended_is_told(tmp_path, monkeypatch, error, status):
    run = Failing([], 99)
    run.end = lambda status, result: run.sent.append(status)  # type: ignore[method-assign]
    monkeypatch.setitem(trackers.TRACKED_RUNS, "mlflow", lambda given: run)
    log = Log(tmp_path, [Follower("mlflow", Tracking(tmp_path, "qkv", {}, {}), print)])
    with contextlib.suppress(KeyboardInterrupt, RuntimeError), log:
        log.write(1, loss=1.0)
        if error:
            raise error
    assert run.sent == [1, status]

"""Ctrl-C and SIGTERM save everything, and the same command resumes.

A second one exits at once and leaves nothing half-written.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from workbench import Commands, RunningCommand, UninterruptedRun, environment, step_reached, wait_until

# Saving takes a while, so that a second signal finds it under way.
SLOW_SAVING = """
import time
import qkv.training.checkpoints as checkpoints
save = checkpoints.save_weights
def slowly(*args):
    save(*args)
    time.sleep(30)
checkpoints.save_weights = slowly
"""


def started_at(commands: Commands, whole: UninterruptedRun, run: Path, step: int, first: str = "") -> RunningCommand:
    """Start a run, and return it once it has reached a step."""
    started = commands.start("train", whole.recipe, "--out", run, first=first, QKV_CACHE=str(whole.cache))
    wait_until(lambda: step_reached(run) >= step)
    return started


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_the_same_command_goes_on(
    commands: Commands, whole: UninterruptedRun, tmp_path: Path, number: int, code: int
) -> None:
    run = tmp_path / "run"
    for step in (3, 27, 48):
        started = started_at(commands, whole, run, step)
        started.signal(number)
        done = started.result()
        assert done.code == code
        saved = max((run / "checkpoints").glob("step-*"))
        reached = int(saved.name.removeprefix("step-"))
        assert reached >= step and reached == step_reached(run)  # no update is lost
        assert f"saved at step {reached}; run the same command to resume" in done.err
        assert "Traceback" not in done.err and "qkv: " not in done.err
    assert commands.run("train", whole.recipe, "--out", run, QKV_CACHE=str(whole.cache)).code == 0
    assert whole.equals(run)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_leaves_at_once_and_nothing_half_written(
    commands: Commands, whole: UninterruptedRun, tmp_path: Path, number: int
) -> None:
    run = tmp_path / "run"
    started = started_at(commands, whole, run, 2, SLOW_SAVING)
    started.signal(number)
    wait_until(lambda: list(run.rglob("model.safetensors")))  # it is saving
    started.signal(number)
    before = time.monotonic()
    done = started.result()
    assert time.monotonic() - before < 10
    assert done.code == 130 and "Traceback" not in done.err
    assert not list((run / "checkpoints").iterdir())  # not even a part
    assert commands.run("train", whole.recipe, "--out", run, QKV_CACHE=str(whole.cache)).code == 0
    assert whole.equals(run)


def test_a_signal_before_training_leaves_at_once(commands: Commands, whole: UninterruptedRun, tmp_path: Path) -> None:
    run = tmp_path / "run"
    slow = "import time, qkv.jobs.translation as p\np.train_tokenizer = lambda *_: time.sleep(30)"
    started = commands.start("train", whole.recipe, "--out", run, first=slow, QKV_CACHE=str(whole.cache))
    wait_until((run / "recipe.yaml").exists)
    time.sleep(0.1)
    started.signal(signal.SIGINT)
    done = started.result()
    assert done.code == 130 and "Traceback" not in done.err
    assert commands.run("train", whole.recipe, "--out", run, QKV_CACHE=str(whole.cache)).code == 0
    assert whole.equals(run)


def test_ctrl_c_and_kill_of_the_command_as_people_start_it(whole: UninterruptedRun, tmp_path: Path) -> None:
    """The same with a process that was not forked: stopped, then killed, it gives the same result bit for bit."""
    run = tmp_path / "run"
    command = [sys.executable, "-m", "qkv", "train", str(whole.recipe), "--out", str(run)]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(command, env=environment(whole.cache), stderr=subprocess.PIPE, text=True)

    first = start()
    wait_until(lambda: step_reached(run) >= 11)
    first.send_signal(signal.SIGINT)
    _, err = first.communicate()
    assert first.returncode == 130 and "run the same command to resume" in err and "Traceback" not in err
    second = start()
    wait_until(lambda: step_reached(run) >= 44)
    os.kill(second.pid, signal.SIGKILL)
    second.communicate()
    third = start()
    _, err = third.communicate()
    assert third.returncode == 0, err
    assert whole.equals(run)

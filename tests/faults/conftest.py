"""An uninterrupted run, to which all others are compared."""

import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from workbench import (
    Commands,
    UninterruptedRun,
    commands_in,
    metrics_without_times,
    step_reached,
    wait_until,
    weights,
    write_recipe,
)


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return commands_in(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def whole(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> UninterruptedRun:
    folder = tmp_path_factory.mktemp("whole")
    recipe = write_recipe(folder / "corpus", training={"keep_checkpoints": True})  # tests go on with it, or finish it again
    run, cache = folder / "run", folder / "cache"
    commands.run("recipes")  # waits until the process to fork is ready
    times = [time.monotonic()]
    started = commands.start("train", recipe, "--out", run, QKV_CACHE=str(cache))
    for step in (1, 60):
        wait_until(lambda step=step: step_reached(run) >= step)
        times.append(time.monotonic())
    done = started.result()
    assert done.code == 0, done.err
    before, after = times[1] - times[0], time.monotonic() - times[2]
    return UninterruptedRun(recipe, run, cache, weights(run), metrics_without_times(run), before, after)

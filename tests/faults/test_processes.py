"""Several processes train the same model as one, and stop together."""

import signal
from pathlib import Path

import pytest
import yaml

from interruptions import assert_same, results, together
from workbench import Commands, step_reached, wait_until, write_recipe

SAME = {"training": {"steps": 30, "averaging": "none"}}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("processes"), **SAME)


@pytest.fixture(scope="module")
def one_process(commands: Commands, recipe: Path) -> Path:
    """The run of a single process."""
    run = recipe.parent / "alone"
    assert commands.run("train", recipe, "--out", run, QKV_CACHE=str(recipe.parent / "cache")).code == 0
    return run


def test_two_processes_are_one_with_the_same_batch(commands: Commands, recipe: Path, one_process: Path, tmp_path: Path) -> None:
    done = results(together(commands, recipe, tmp_path / "two", recipe.parent / "cache"))
    assert [one.code for one in done] == [0, 0], done[0].err
    assert_same(one_process, tmp_path / "two")
    assert done[1].err == ""  # only the first process prints


def test_two_processes_add_the_penalty_towards_the_start_once(
    commands: Commands, recipe: Path, one_process: Path, tmp_path: Path
) -> None:
    values = yaml.safe_load(recipe.read_text())
    training = {**values["training"], "start_penalty": 3.0, "steps": 10, "learning_rate": 0.002}
    adapted = tmp_path / "adapted.yaml"
    adapted.write_text(yaml.safe_dump({"start": str(one_process), "data": values["data"], "training": training, "score_dev": 4}))
    cache = recipe.parent / "cache"
    assert commands.run("train", adapted, "--out", tmp_path / "one", QKV_CACHE=str(cache)).code == 0
    done = results(together(commands, adapted, tmp_path / "two", cache))
    assert [one.code for one in done] == [0, 0], done[0].err
    assert_same(tmp_path / "one", tmp_path / "two")


def test_more_processes_than_rows(commands: Commands, recipe: Path, one_process: Path, tmp_path: Path) -> None:
    """Batches have at most three rows, so that the fourth process often has none."""
    done = results(together(commands, recipe, tmp_path / "four", recipe.parent / "cache", count=4))
    assert [one.code for one in done] == [0, 0, 0, 0], done[3].err
    assert_same(one_process, tmp_path / "four")


def test_a_run_may_change_its_number_of_processes(commands: Commands, recipe: Path, one_process: Path, tmp_path: Path) -> None:
    started = together(commands, recipe, tmp_path / "run", recipe.parent / "cache")
    wait_until(lambda: step_reached(tmp_path / "run") >= 13)
    for one in started:
        one.signal(signal.SIGKILL)
    results(started)
    assert commands.run("train", recipe, "--out", tmp_path / "run", QKV_CACHE=str(recipe.parent / "cache")).code == 0
    assert_same(one_process, tmp_path / "run")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_one_stops_all_and_everything_is_saved(
    commands: Commands, recipe: Path, one_process: Path, tmp_path: Path, rank: int
) -> None:
    run, cache = tmp_path / "run", recipe.parent / "cache"
    started = together(commands, recipe, run, cache)
    wait_until(lambda: step_reached(run) >= 5)
    started[rank].signal(signal.SIGTERM)
    done = results(started)
    assert [one.code for one in done] == [143, 143], done[0].err
    assert not (run / "result.json").exists()
    assert int(max((run / "checkpoints").glob("step-*")).name.removeprefix("step-")) == step_reached(run)
    assert [one.code for one in results(together(commands, recipe, run, cache))] == [0, 0]
    assert_same(one_process, run)


def test_processes_with_different_clocks_agree_on_a_plan(commands: Commands, recipe: Path, tmp_path: Path) -> None:
    """The second process believes that all takes five times as long."""
    slow = "import os, time; real = time.perf_counter; time.perf_counter = lambda: real() * (1 + 4 * int(os.environ['RANK']))"
    planned = write_recipe(tmp_path, **{**SAME, "training": {**SAME["training"], "steps": None, "minutes": 0.05}})
    done = results(together(commands, planned, tmp_path / "run", recipe.parent / "cache", first=slow))
    assert [one.code for one in done] == [0, 0], done[0].err
    assert step_reached(tmp_path / "run") > 3


def test_qkv_train_gpus_starts_the_processes(commands: Commands, recipe: Path, one_process: Path, tmp_path: Path) -> None:
    """The real torchrun, with pretended GPUs: the processes train on the CPU."""
    gpus = "import torch; torch.cuda.device_count = lambda: 2"
    run, cache = tmp_path / "run", {"QKV_CACHE": str(recipe.parent / "cache")}
    started = commands.start("train", recipe, "--out", run, "--gpus", "all", first=gpus, **cache)
    wait_until(lambda: step_reached(run) >= 5)
    started.signal(signal.SIGTERM)
    assert started.result().code != 0
    assert int(max((run / "checkpoints").glob("step-*")).name.removeprefix("step-")) == step_reached(run) < 30
    done = commands.run("train", recipe, "--out", run, "--gpus", "all", first=gpus, **cache)
    assert done.code == 0, done.err
    assert_same(one_process, run)


def test_more_gpus_than_there_are(commands: Commands, recipe: Path, tmp_path: Path) -> None:
    gpus = "import torch; torch.cuda.device_count = lambda: 2"
    for wanted, says in (("3", "torch sees 2 GPUs here"), ("0", "torch sees 2 GPUs here"), ("both", "give a number, or all")):
        done = commands.run("train", recipe, "--out", tmp_path / "run", "--gpus", wanted, first=gpus)
        assert says in done.complaint()
    assert not (tmp_path / "run").exists()

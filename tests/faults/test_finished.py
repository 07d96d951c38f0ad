"""A finished run keeps what using it needs; its checkpoints only where the recipe asks for them, to train it further."""

import re
import shutil
import signal
from pathlib import Path

import pytest

import qkv
from workbench import Commands, UninterruptedRun, metrics_without_times, step_reached, weights

# Kills the process when one of the checkpoints, by its index, is half deleted.
DIE_IN_DELETION = """
import os, shutil, signal
import qkv.training.checkpoints as checkpoints
delete_all, rmtree = checkpoints.delete_all, shutil.rmtree
def delete_and_die(run):
    fatal = checkpoints.folders(run)[{index}].name
    def dying(folder, *args, **options):
        if fatal in folder.name:
            (folder / checkpoints.STATE).unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return rmtree(folder, *args, **options)
    shutil.rmtree = dying
    return delete_all(run)
checkpoints.delete_all = delete_and_die
"""
FORGET = ("--set", "training.keep_checkpoints=false")


@pytest.fixture(scope="module")
def finished(commands: Commands, whole: UninterruptedRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of `whole` with the default: without checkpoints."""
    run = tmp_path_factory.mktemp("finished") / "run"
    done = commands.run("train", whole.recipe, "--out", run, *FORGET, QKV_CACHE=str(whole.cache))
    says = r"^checkpoints deleted, (\S+) MB \(training.keep_checkpoints=true keeps them, to train further\)$"
    said = re.search(says, done.err, re.MULTILINE)
    assert done.code == 0 and said and float(said[1]) > 0, done.err
    return run


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_it_holds_weights_tokenizer_recipe_metrics_and_report(finished: Path, whole: UninterruptedRun) -> None:
    names = {path.name for path in finished.iterdir()} - {".lock"}
    assert names == {path.name for path in whole.run.iterdir()} - {".lock", "checkpoints"}
    assert whole.equals(finished)
    texts = ["sun rain", "old bird"]
    assert qkv.load(finished, "cpu").translate(texts) == qkv.load(whole.run, "cpu").translate(texts)  # type: ignore[union-attr]


@pytest.mark.parametrize("change", ["training.steps=70", "training.keep_checkpoints=true", "seed=2"])
@pytest.mark.parametrize("accept", [[], ["--accept-changes"]])
def test_more_steps_are_refused_and_nothing_changes(
    commands: Commands, whole: UninterruptedRun, finished: Path, tmp_path: Path, change: str, accept: list[str]
) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    before = contents(run)
    words = ["train", whole.recipe, "--out", run, *FORGET, "--set", change, *accept]
    complaint = commands.run(*words, QKV_CACHE=str(whole.cache)).complaint()
    assert f"{run} is finished and has no checkpoints, so that it cannot continue with {change.partition('=')[0]}" in complaint
    assert "choose another --out, and training.keep_checkpoints=true for a run that is to be trained further" in complaint
    assert contents(run) == before


def test_it_says_that_it_is_finished(commands: Commands, whole: UninterruptedRun, finished: Path) -> None:
    before = contents(finished)
    done = commands.run("train", whole.recipe, "--out", finished, *FORGET, QKV_CACHE=str(whole.cache))
    assert done.code == 0 and done.err == f"{finished} is finished; choose another --out to train again\n"
    kept = commands.run("train", whole.recipe, "--out", whole.run, QKV_CACHE=str(whole.cache))
    assert "choose another --out to train again, or larger training.steps or minutes to continue" in kept.err
    assert contents(finished) == before


def test_checkpoints_that_are_kept_can_be_given_up(commands: Commands, whole: UninterruptedRun, tmp_path: Path) -> None:
    run = Path(shutil.copytree(whole.run, tmp_path / "run"))
    done = commands.run("train", whole.recipe, "--out", run, *FORGET, QKV_CACHE=str(whole.cache))
    assert done.code == 0 and "changed: training.keep_checkpoints: true -> false" in done.err.lower(), done.err
    assert whole.equals(run) and not (run / "checkpoints").exists()


def test_a_run_that_is_trained_further_equals_one_of_more_steps(
    commands: Commands, whole: UninterruptedRun, tmp_path: Path
) -> None:
    run, cache, more = Path(shutil.copytree(whole.run, tmp_path / "run")), str(whole.cache), ("--set", "training.steps=70")
    assert commands.run("train", whole.recipe, "--out", run, *more, QKV_CACHE=cache).code == 0
    assert commands.run("train", whole.recipe, "--out", tmp_path / "once", *more, QKV_CACHE=cache).code == 0
    assert step_reached(run) == 70 and weights(run) == weights(tmp_path / "once")
    updates = [
        [line for line in metrics_without_times(one) if "loss" in line and line["step"] > 60] for one in (run, tmp_path / "once")
    ]
    assert updates[0] == updates[1] and len(updates[0]) == 10


def test_what_is_not_ours_stays(commands: Commands, whole: UninterruptedRun, tmp_path: Path) -> None:
    run = Path(shutil.copytree(whole.run, tmp_path / "run"))
    (run / "checkpoints" / "step-best").mkdir()
    (run / "checkpoints" / "step-best" / "note.txt").write_text("precious")
    assert commands.run("train", whole.recipe, "--out", run, *FORGET, QKV_CACHE=str(whole.cache)).code == 0
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-best"]
    assert (run / "checkpoints" / "step-best" / "note.txt").read_text() == "precious"


@pytest.mark.parametrize("index", [1, -1])
def test_killed_while_checkpoints_are_deleted(commands: Commands, whole: UninterruptedRun, tmp_path: Path, index: int) -> None:
    """The result is there before, so that nothing is trained again; half a checkpoint counts as none."""
    run, words = tmp_path / "run", ("train", whole.recipe, *FORGET, "--out", tmp_path / "run")
    done = commands.run(*words, first=DIE_IN_DELETION.format(index=index), QKV_CACHE=str(whole.cache))
    assert done.code == -signal.SIGKILL and (run / "result.json").exists() and (run / "checkpoints").exists(), done.err
    again = commands.run(*words, QKV_CACHE=str(whole.cache))
    assert again.code == 0 and "is finished" in again.err
    assert whole.equals(run)
    done = commands.run(*words, "--set", "training.steps=70", QKV_CACHE=str(whole.cache))
    if index == -1:
        assert "is finished and has no checkpoints" in done.complaint() and whole.equals(run)
    else:
        assert done.code == 0 and "resuming from step 60 of 70" in done.err  # what is left suffices
        assert not (run / "checkpoints").exists()

"""A run's folder refuses another recipe, another process and foreign files; a finished run stays."""

import shutil
from pathlib import Path

import pytest

from qkv.base.locks import lock_file
from workbench import (
    Commands,
    UninterruptedRun,
    metrics_without_times,
    step_reached,
    wait_until,
    weights,
    write_corpus,
    write_recipe,
)


@pytest.fixture
def run(whole: UninterruptedRun, tmp_path: Path) -> Path:
    """A copy of the finished run, which the test may damage."""
    return Path(shutil.copytree(whole.run, tmp_path / "run"))


@pytest.fixture
def unfinished(commands: Commands, whole: UninterruptedRun, tmp_path: Path) -> Path:
    run = tmp_path / "unfinished"
    started = commands.start("train", whole.recipe, "--out", run, QKV_CACHE=str(whole.cache))
    wait_until(lambda: step_reached(run) >= 22 and (run / "checkpoints" / "step-00000020").exists())
    started.signal()
    started.result()
    return run


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_another_recipe_is_refused_and_what_differs_is_listed(
    commands: Commands, whole: UninterruptedRun, unfinished: Path
) -> None:
    before = contents(unfinished)
    changes = ["--set", "training.learning_rate=0.5", "--set", "model.dropout=0.25"]
    complaint = commands.run("train", whole.recipe, "--out", unfinished, *changes, QKV_CACHE=str(whole.cache)).complaint()
    assert "model.dropout: 0.1 -> 0.25" in complaint and "training.learning_rate: 0.01 -> 0.5" in complaint
    assert "--accept-changes" in complaint and "--out" in complaint
    assert contents(unfinished) == before


def test_accepted_changes_go_on_with_the_new_values(commands: Commands, whole: UninterruptedRun, unfinished: Path) -> None:
    change = ("--set", "training.learning_rate=0.5", "--accept-changes")
    done = commands.run("train", whole.recipe, "--out", unfinished, *change, QKV_CACHE=str(whole.cache))
    assert done.code == 0, done.err
    rates = {line["step"]: line["learning_rate"] for line in metrics_without_times(unfinished) if "loss" in line}
    assert rates[20] == pytest.approx(0.01 * (10 / 20) ** 0.5)
    assert rates[60] == pytest.approx(0.5 * (10 / 60) ** 0.5)
    assert "learning_rate: 0.5" in (unfinished / "recipe.yaml").read_text()


@pytest.mark.parametrize("change", ["model.width=32", "model.norm=pre", "tokenizer.shared.vocab=80"])
def test_another_model_or_tokenizer_cannot_be_accepted(
    commands: Commands, whole: UninterruptedRun, run: Path, change: str
) -> None:
    before, changed = contents(run), ("--set", change, "--accept-changes")
    complaint = commands.run("train", whole.recipe, "--out", run, *changed, QKV_CACHE=str(whole.cache)).complaint()
    assert f"cannot continue with {change.partition('=')[0]}: " in complaint and "choose another --out" in complaint
    assert contents(run) == before


def test_more_steps_need_no_permission(commands: Commands, whole: UninterruptedRun, run: Path) -> None:
    done = commands.run("train", whole.recipe, "--out", run, "--set", "training.steps=70", QKV_CACHE=str(whole.cache))
    assert done.code == 0, done.err
    assert "resuming from step 60 of 70" in done.err and step_reached(run) == 70
    assert weights(run) != whole.weights


def test_a_finished_run_says_so(commands: Commands, whole: UninterruptedRun, run: Path) -> None:
    before = contents(run)
    done = commands.run("train", whole.recipe, "--out", run, QKV_CACHE=str(whole.cache))
    assert done.code == 0 and f"{run} is finished" in done.err
    assert contents(run) == before


def test_a_finished_run_without_checkpoints_is_not_made_another(commands: Commands, whole: UninterruptedRun, run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    before = contents(run)
    words = ["train", whole.recipe, "--out", run, "--set", "training.steps=70", "--accept-changes"]
    complaint = commands.run(*words, QKV_CACHE=str(whole.cache)).complaint()
    assert f"{run} is finished and has no checkpoints, so that it cannot continue with training.steps: 60 -> 70" in complaint
    assert "choose another --out, and training.keep_checkpoints=true for a run that is to be trained further" in complaint
    assert contents(run) == before


def test_two_processes_cannot_train_in_one_folder(commands: Commands, whole: UninterruptedRun, unfinished: Path) -> None:
    before = contents(unfinished)
    with (unfinished / ".lock").open("w") as lock:
        lock_file(lock)
        complaint = commands.run("train", whole.recipe, "--out", unfinished, QKV_CACHE=str(whole.cache)).complaint()
    assert "is being trained by another process; wait, or choose another --out" in complaint
    assert contents(unfinished) == before


def test_a_folder_with_other_files_is_refused(commands: Commands, whole: UninterruptedRun, tmp_path: Path) -> None:
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter.txt").write_text("precious")
    complaint = commands.run("train", whole.recipe, "--out", folder, QKV_CACHE=str(whole.cache)).complaint()
    assert "is not empty and not a run folder; choose another --out" in complaint
    assert [path.name for path in folder.iterdir()] == ["chapter.txt"]


def test_files_of_a_run_follow_the_umask(whole: UninterruptedRun) -> None:
    folder_mode = whole.run.stat().st_mode & 0o666
    modes = {path.name: path.stat().st_mode & 0o777 for path in whole.run.rglob("*") if path.is_file()}
    assert {"model.safetensors", "optimizer.safetensors", "result.json"} <= modes.keys()
    assert modes == dict.fromkeys(modes, folder_mode)


def test_a_file_where_the_folder_should_be_is_refused(commands: Commands, whole: UninterruptedRun, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    complaint = commands.run("train", whole.recipe, "--out", tmp_path / "file").complaint()
    assert "is a file; choose another --out" in complaint
    assert commands.run("train", whole.recipe, "--out", tmp_path / "file" / "run").complaint().startswith(f"qkv: {tmp_path}/file")
    assert (tmp_path / "file").read_text() == "precious"


def test_the_tokenizer_of_another_run_is_refused(
    commands: Commands, whole: UninterruptedRun, unfinished: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    recipe = write_recipe(tmp_path / "corpus", tokenizer={"shared": {"kind": "wordpiece", "vocab": 60}}, training={"steps": 1})
    assert commands.run("train", recipe, "--out", other).code == 0
    shutil.copy(other / "tokenizer.json", unfinished / "tokenizer.json")
    before = contents(unfinished)
    complaint = commands.run("train", whole.recipe, "--out", unfinished, QKV_CACHE=str(whole.cache)).complaint()
    assert "the tokenizer is not the one this model was trained with; put the right one back" in complaint
    assert contents(unfinished) == before


def test_names_among_checkpoints_that_are_not_ours_are_left_alone(
    commands: Commands, whole: UninterruptedRun, unfinished: Path
) -> None:
    mine = unfinished / "checkpoints" / "step-best"
    mine.mkdir()
    (mine / "note.txt").write_text("precious")
    assert commands.run("train", whole.recipe, "--out", unfinished, QKV_CACHE=str(whole.cache)).code == 0
    assert whole.equals(unfinished) and (mine / "note.txt").read_text() == "precious"


def test_other_training_text_is_refused(commands: Commands, tmp_path: Path) -> None:
    recipe, run = write_recipe(tmp_path / "corpus", training={"steps": 20, "keep_checkpoints": True}), tmp_path / "run"
    assert commands.run("train", recipe, "--out", run).code == 0
    write_corpus(tmp_path / "corpus", seed=2)
    more = ("train", recipe, "--out", run, "--set", "training.steps=30")
    assert "the training text is not what" in commands.run(*more).complaint()
    assert commands.run(*more, "--accept-changes").code == 0

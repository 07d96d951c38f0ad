"""Run folders that are missing, unfinished, damaged, or put together from two: translate and evaluate refuse them in one line."""

import shutil
from pathlib import Path

import pytest

from workbench import Commands, step_reached, wait_until


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    """The trained run, to be spoilt."""
    return Path(shutil.copytree(run, tmp_path / "copy"))


def complaint(commands: Commands, run: Path) -> str:
    """What both commands say of a run they cannot use."""
    said = {commands.run(verb, run, stdin=b"sun\n").complaint() for verb in ("translate", "evaluate")}
    assert len(said) == 1
    return said.pop()


def test_no_folder(commands: Commands, tmp_path: Path) -> None:
    assert (
        complaint(commands, tmp_path / "nowhere")
        == f"qkv: {tmp_path / 'nowhere'}: no such run folder; give the folder that qkv train or qkv import wrote"
    )


def test_a_folder_that_is_no_run(commands: Commands, tmp_path: Path) -> None:
    assert complaint(commands, tmp_path) == f"qkv: {tmp_path}: not a run folder, it has no recipe.yaml"


def test_a_checkpoint_of_transformers(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert complaint(commands, tmp_path).endswith("for a checkpoint of transformers run qkv import first")


def test_a_file(commands: Commands, recipe: Path) -> None:
    assert "no such run folder" in complaint(commands, recipe)


def test_the_tokenizer_of_another_model(commands: Commands, copy: Path, other: Path) -> None:
    shutil.copy(other / "tokenizer.json", copy)
    assert "the tokenizer is not the one this model was trained with; put the right one back" in complaint(commands, copy)


def test_the_weights_of_another_model(commands: Commands, copy: Path, other: Path) -> None:
    shutil.copy(other / "model.safetensors", copy)
    assert "model.safetensors: the weights are of another model" in complaint(commands, copy)


def test_the_recipe_of_another_model(commands: Commands, copy: Path, other: Path) -> None:
    shutil.copy(other / "recipe.yaml", copy)
    assert "recipe.yaml describes another model than config.json; put the right one back" in complaint(commands, copy)


@pytest.mark.parametrize("name", ["recipe.yaml", "config.json", "tokenizer.json", "model.safetensors"])
@pytest.mark.parametrize("content", [b"", b"\xff\x00\xfe", b"[]", b"{"], ids=["empty", "bytes", "list", "half"])
def test_a_damaged_file_is_named(commands: Commands, copy: Path, name: str, content: bytes) -> None:
    (copy / name).write_bytes(content)
    assert str(copy / name) in commands.run("translate", copy, stdin=b"sun\n").complaint()


def test_truncated_weights(commands: Commands, copy: Path) -> None:
    path = copy / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert f"{path}: not a readable safetensors file" in complaint(commands, copy)


def test_a_run_that_has_not_come_far_enough(commands: Commands, copy: Path) -> None:
    (copy / "model.safetensors").unlink()
    assert "no such file; is this a run folder whose training has saved something?" in complaint(commands, copy)
    (copy / "tokenizer.json").unlink()
    assert "training stopped before it was made" in complaint(commands, copy)


def test_a_run_still_in_training_is_used_as_of_its_newest_checkpoint(commands: Commands, recipe: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    started = commands.start("train", recipe, "--out", run)
    wait_until(lambda: step_reached(run) >= 61)
    done = commands.run("translate", run, stdin=b"sun rain\n")
    assert done.code == 0 and done.out.strip()
    started.signal()
    started.result()

"""Checkpoints load bit for bit, damaged ones are refused, and those that are not needed are deleted."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.base.errors import CheckpointError, QkvError
from qkv.training import checkpoints
from qkv.training.config import TrainingConfig
from qkv.training.optimiser import make_optimiser
from toy_training import VOCAB, Transformer, TransformerConfig, toy_model, toy_trainer, weights_of
from written_checkpoints import write_checkpoint

STATE = {"position": [1, 2, 3], "best": float("-inf"), "seconds": 1.5}


def some(seed: int) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    return {"a": torch.randn(5, 7), "b.c": torch.randn(3)}


def saved(run: Path, *steps: int, **state: Any) -> list[Path]:
    files = (checkpoints.MODEL, checkpoints.OPTIMISER)
    return [write_checkpoint(run, step, {name: some(step) for name in files}, {**STATE, **state}) for step in steps]


def steps_of(run: Path) -> list[int]:
    return [checkpoints.step_of(folder) for folder in checkpoints.folders(run)]


def flip(path: Path, byte: int, bit: int) -> None:
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[byte] ^= 1 << bit
    path.write_bytes(data)


def test_what_is_saved_comes_back_bit_for_bit(tmp_path: Path) -> None:
    saved(tmp_path, 10, 20)
    folder, state, problems = checkpoints.newest(tmp_path)
    assert folder is not None and folder.name == "step-00000020"
    assert {k: state[k] for k in STATE} == STATE and state["step"] == 20 and not problems
    loaded = checkpoints.load_weights(folder / checkpoints.MODEL)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in some(20).items())


def test_nothing_but_the_checkpoint_is_left_in_the_folder(tmp_path: Path) -> None:
    (folder,) = saved(tmp_path, 10)
    assert [f.name for f in folder.parent.iterdir()] == ["step-00000010"]
    assert sorted(f.name for f in folder.iterdir()) == [checkpoints.MODEL, checkpoints.OPTIMISER, checkpoints.STATE]


def test_the_same_step_again_replaces_the_older_one(tmp_path: Path) -> None:
    saved(tmp_path, 10)
    saved(tmp_path, 10, best=4.0)
    assert checkpoints.newest(tmp_path)[1]["best"] == 4.0


def test_what_a_killed_process_left_half_written_is_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getpid", lambda: 7)  # in a container every process has the same number
    (folder,) = saved(tmp_path, 10)
    shutil.copytree(folder, folder.with_name(".step-00000020.7.partial"))
    saved(tmp_path, 20)
    assert steps_of(tmp_path) == [10, 20]
    assert checkpoints.read_state(checkpoints.folders(tmp_path)[1])["step"] == 20


@pytest.mark.parametrize("name", [checkpoints.MODEL, checkpoints.OPTIMISER, checkpoints.STATE])
@pytest.mark.parametrize("size", [0, 1, 100, -1])
def test_a_truncated_checkpoint_is_refused_and_the_one_before_is_used(tmp_path: Path, name: str, size: int) -> None:
    _, newest = saved(tmp_path, 10, 20)
    data = (newest / name).read_bytes()
    (newest / name).write_bytes(data[:size])
    folder, state, problems = checkpoints.newest(tmp_path)
    assert folder is not None and folder.name == "step-00000010" and state["step"] == 10
    assert len(problems) == 1 and "step-00000020" in problems[0] and "\n" not in problems[0]


@pytest.mark.parametrize("name", [checkpoints.MODEL, checkpoints.OPTIMISER, checkpoints.STATE])
def test_one_bit_that_differs_is_noticed_wherever_it_is(tmp_path: Path, name: str) -> None:
    (folder,) = saved(tmp_path, 10)
    whole, rng = (folder / name).read_bytes(), random.Random(name)
    for _ in range(60):
        flip(folder / name, rng.randrange(len(whole)), rng.randrange(8))
        with pytest.raises(CheckpointError, match="step-00000010"):
            checkpoints.read_state(folder)
        (folder / name).write_bytes(whole)
    assert checkpoints.read_state(folder)["step"] == 10


@pytest.mark.parametrize("text", ["", "[]", "null", "3", '{"step": 10}', '{"step": 10, "digests": []}', "{", "\udcff"])
def test_a_state_that_is_something_else_is_refused(tmp_path: Path, text: str) -> None:
    (folder,) = saved(tmp_path, 10)
    (folder / checkpoints.STATE).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(CheckpointError, match="step-00000010"):
        checkpoints.read_state(folder)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    _, newest = saved(tmp_path, 10, 20)
    (newest / checkpoints.OPTIMISER).unlink()
    assert checkpoints.newest(tmp_path)[1]["step"] == 10


def test_all_damaged_is_one_clear_error(tmp_path: Path) -> None:
    for folder in saved(tmp_path, 10, 20):
        (folder / checkpoints.MODEL).write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"no checkpoint of .* is intact.*delete its checkpoints/ to start anew"):
        checkpoints.newest(tmp_path)


def test_no_checkpoint_is_no_error(tmp_path: Path) -> None:
    assert checkpoints.newest(tmp_path) == (None, {}, [])


def test_other_names_among_the_checkpoints_are_left_alone(tmp_path: Path) -> None:
    (folder,) = saved(tmp_path, 10)
    shutil.copytree(folder, folder.with_name("step-00000010.mine"))
    assert steps_of(tmp_path) == [10]


def test_pruning_keeps_the_needed_ones_and_two_to_resume_from(tmp_path: Path) -> None:
    saved(tmp_path, *range(10, 70, 10))
    left = tmp_path / "checkpoints" / "step-00000020" / "optimizer-00002-of-00002.safetensors"
    left.touch()  # by a process that was killed while it deleted the parts
    checkpoints.prune(tmp_path, {20, 40})
    assert not left.exists()
    assert steps_of(tmp_path) == [20, 40, 50, 60]
    with_optimiser = [f.name for f in checkpoints.folders(tmp_path) if (f / checkpoints.OPTIMISER).exists()]
    assert with_optimiser == ["step-00000050", "step-00000060"]
    assert checkpoints.newest(tmp_path)[1]["step"] == 60


def test_the_mean_is_that_of_the_weights_in_any_order(tmp_path: Path) -> None:
    paths = [folder / checkpoints.MODEL for folder in saved(tmp_path, 1, 2, 3)]
    mean = checkpoints.average(paths)
    wanted = torch.stack([some(step)["a"].double() for step in (1, 2, 3)]).mean(0).float()
    assert torch.equal(mean["a"], wanted) and mean["a"].dtype == torch.float32
    assert all(torch.equal(mean[name], t) for name, t in checkpoints.average(paths[::-1]).items())


def test_a_damaged_file_is_never_averaged(tmp_path: Path) -> None:
    paths = [folder / checkpoints.MODEL for folder in saved(tmp_path, 1, 2, 3)]
    flip(paths[1], -1, 3)
    with pytest.raises(CheckpointError, match="step-00000002"):
        checkpoints.average(paths)


def test_optimiser_and_weights_go_on_as_if_never_saved(tmp_path: Path) -> None:
    def step(model: Transformer, optimiser: torch.optim.Optimizer, seed: int) -> None:
        torch.manual_seed(seed)
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimiser.step()

    config = TrainingConfig(steps=1)
    model = toy_model()
    optimiser = make_optimiser(model, config)
    for group in optimiser.param_groups:
        group["lr"] = 0.01
    for seed in range(3):
        step(model, optimiser, seed)
    tensors = {
        checkpoints.MODEL: checkpoints.named_weights(model),
        checkpoints.OPTIMISER: checkpoints.optimiser_tensors(optimiser, checkpoints.named_weights(model)),
    }
    folder = write_checkpoint(tmp_path, 3, tensors, STATE)
    other = toy_model()
    second = make_optimiser(other, config)
    for group in second.param_groups:
        group["lr"] = 0.01
    checkpoints.set_weights(other, checkpoints.load_weights(folder / checkpoints.MODEL), "test")
    checkpoints.set_optimiser_tensors(
        second, checkpoints.named_weights(other), checkpoints.load_weights(folder / checkpoints.OPTIMISER)
    )
    step(model, optimiser, 9)
    step(other, second, 9)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("other", [{"width": 32}, {"encoder_layers": 2}, {"tied": "none"}, {"activation": "swiglu"}])
def test_weights_of_another_model_are_refused(other: dict[str, Any]) -> None:
    stranger = Transformer(TransformerConfig(**{**toy_model().config.model_dump(), **other}), VOCAB, VOCAB)
    with pytest.raises(CheckpointError, match=r"run/x: the weights are of another model .*"):
        checkpoints.set_weights(toy_model(), checkpoints.named_weights(stranger), "run/x")


def test_a_tied_weight_is_saved_once() -> None:
    names = checkpoints.named_weights(toy_model())
    assert "target_embedding.weight" in names and not {"output.weight", "source_embedding.weight"} & names.keys()


@pytest.mark.parametrize("content", [None, b"", b"not safetensors at all"])
def test_weights_that_cannot_be_read_are_one_clear_error(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / checkpoints.MODEL
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        checkpoints.load_weights(path)


def test_a_full_disk_while_saving_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, 10)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "save_weights", full)
    with pytest.raises(QkvError, match="the disk is full; make room and run the same command again"):
        saved(tmp_path, 20)
    assert steps_of(tmp_path) == [10] and checkpoints.newest(tmp_path)[1]["step"] == 10
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1


def test_a_run_ends_with_the_newest_regular_checkpoints(tmp_path: Path) -> None:
    trainer = toy_trainer(tmp_path, steps=18, save_every=3, validate_every=6, keep=4)
    trainer.train()
    assert trainer.steps_to_average() == [9, 12, 15, 18]
    assert steps_of(tmp_path) == [9, 12, 15, 18]  # the best is the last one here
    loaded = checkpoints.load_weights(checkpoints.folders(tmp_path)[-1] / checkpoints.MODEL)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in weights_of(trainer).items())

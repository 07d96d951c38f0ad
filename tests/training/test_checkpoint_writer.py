"""Checkpoints in parts, read by any number of processes, and written in the background."""

import errno
import shutil
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from qkv.base.errors import CheckpointError, QkvError
from qkv.training import checkpoints
from qkv.training.checkpoint_writer import CheckpointWriter
from qkv.training.weights import Weights
from toy_training import toy_trainer, weights_of

ROWS = {"matrix": torch.randn(5, 3), "bias": torch.randn(2), "step": torch.tensor(7.0), "empty": torch.zeros(0, 4)}


def write_parts(folder: Path, count: int) -> Path:
    """Write tensors as so many processes do. -> the name of the file."""
    folder.mkdir(exist_ok=True)
    for rank in range(count):
        part = Weights(nn.Linear(1, 1), rank, count).own_part(ROWS)
        checkpoints.save_weights(folder / checkpoints.part_name(checkpoints.MODEL, rank, count), part)
    return folder / checkpoints.MODEL


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_parts_are_read_by_any_number_of_processes(tmp_path: Path, count: int) -> None:
    path = write_parts(tmp_path, count)
    whole = checkpoints.load_weights(path)
    assert whole.keys() == ROWS.keys() and all(torch.equal(whole[name], tensor) for name, tensor in ROWS.items())
    for others in (1, 2, 3, 4):
        parts = [checkpoints.load_weights(path, number, others) for number in range(others)]
        for name, tensor in ROWS.items():
            if tensor.dim():
                assert torch.equal(torch.cat([part[name] for part in parts]), tensor)
                wanted = [len(chunk) for chunk in tensor.chunk(others)] if len(tensor) else []
                assert [len(part[name]) for part in parts if len(part[name])] == wanted
            else:
                assert all(torch.equal(part[name], tensor) for part in parts)


def test_a_missing_part_is_an_incomplete_checkpoint(tmp_path: Path) -> None:
    path = write_parts(tmp_path, 3)
    (tmp_path / checkpoints.part_name(checkpoints.MODEL, 1, 3)).unlink()
    with pytest.raises(CheckpointError, match=r"incomplete checkpoint \(parts of model.safetensors are missing\)"):
        checkpoints.load_weights(path)


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first checkpoint, at step 4, is written only after step 7, with the weights of step 4; the end waits for the last."""
    save, reached = checkpoints.save_weights, threading.Event()

    def late(*args: object) -> None:
        assert reached.wait(30)
        save(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoints, "save_weights", late)
    trainer = toy_trainer(tmp_path)
    update, kept = trainer.update, {}

    def noted(batch: object) -> None:
        update(batch)  # type: ignore[arg-type]
        if trainer.state.step == 4:
            kept.update(weights_of(trainer))
        if trainer.state.step == 7:
            assert not checkpoints.folders(tmp_path)
            reached.set()

    trainer.update = noted  # type: ignore[method-assign]
    trainer.train()
    first = checkpoints.load_weights(checkpoints.folder_of(tmp_path, 4) / checkpoints.MODEL)
    assert all(torch.equal(first[name], tensor) for name, tensor in kept.items())
    assert checkpoints.newest(tmp_path)[1]["step"] == 12


def test_an_error_in_the_background_ends_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = checkpoints.save_weights

    def full(path: Path, weights: dict[str, torch.Tensor]) -> None:
        if "step-00000008" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        save(path, weights)

    monkeypatch.setattr(checkpoints, "save_weights", full)
    with pytest.raises(QkvError, match="the disk is full; make room"):
        toy_trainer(tmp_path).train()
    assert [checkpoints.step_of(folder) for folder in checkpoints.folders(tmp_path)] == [4]
    assert not list(tmp_path.rglob("*.partial"))


def test_a_checkpoint_that_is_abandoned_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked, go_on = threading.Event(), threading.Event()
    save = checkpoints.save_weights

    def block(path: Path, weights: dict[str, torch.Tensor]) -> None:
        save(path, weights)
        blocked.set()
        go_on.wait(30)

    monkeypatch.setattr(checkpoints, "save_weights", block)
    writer = CheckpointWriter(tmp_path, 0, 1)
    writer.save(3, {checkpoints.MODEL: {"a": torch.ones(2)}}, {}, set())
    assert blocked.wait(30)
    writer.abandon()
    assert not list((tmp_path / "checkpoints").iterdir())
    go_on.set()
    with pytest.raises(QkvError):
        writer.wait()
    assert not list((tmp_path / "checkpoints").iterdir())


def test_a_checkpoint_that_is_abandoned_when_it_is_written_is_whole_or_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer goes on to its end when the first of its files is deleted."""
    written, go_on = threading.Event(), threading.Event()
    write_state, delete = checkpoints.write_state, shutil.rmtree

    def block(*args: object) -> None:
        write_state(*args)  # type: ignore[arg-type]
        written.set()
        go_on.wait(30)

    def slowly(folder: Path, **options: bool) -> None:
        (folder / checkpoints.MODEL).unlink(missing_ok=True)
        go_on.set()
        assert writer.thread is not None
        if threading.current_thread() is not writer.thread:
            writer.thread.join(30)
        delete(folder, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(checkpoints, "write_state", block)
    writer = CheckpointWriter(tmp_path, 0, 1)
    writer.save(3, {checkpoints.MODEL: {"a": torch.ones(2)}}, {}, set())
    assert written.wait(30)
    monkeypatch.setattr(shutil, "rmtree", slowly)
    writer.abandon()
    assert not list((tmp_path / "checkpoints").iterdir())

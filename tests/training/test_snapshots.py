"""Snapshots: log-spaced steps, in half precision; the same after a resume, without an effect on training."""

import itertools
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from process_group import in_processes
from qkv.base.errors import ConfigError
from qkv.base.snapshots import snapshot_files, snapshot_steps
from qkv.folder.run import find_weights
from qkv.training.config import TrainingConfig
from qkv.training.loop import Validation
from toy_training import FakeClock, largest_difference, toy_trainer, weights_of

EMA = {"averaging": "ema", "warmup": 1}


def snapshots(run: Path) -> dict[int, dict[str, Tensor]]:
    return {step: load_file(path) for step, path in snapshot_files(run).items()}


def assert_same_snapshots(one: Path, other: Path) -> None:
    first, second = snapshots(one), snapshots(other)
    assert [*first] == [*second]
    assert max(largest_difference(first[step], second[step]) for step in first) == 0


@pytest.mark.parametrize("count", [2, 3, 8, 20])
def test_steps_are_few_evenly_spaced_and_end_with_the_last(count: int) -> None:
    kept: set[int] = set()
    for step in range(2500):
        wanted = snapshot_steps(count, step)
        assert len(wanted) <= count and {*wanted} <= kept | {step}  # what was deleted is never wanted again
        kept = {*wanted}
        ended = snapshot_steps(count, step, ended=True)
        assert len(ended) <= count and ended[0] == 0 and ended[-1] == step and {*ended} <= kept | {step}
    ratios = [b / a for a, b in itertools.pairwise(ended) if a > 10]
    assert not ratios or max(ratios) < 100 ** (1.4 / (count - 2))


def test_training_is_the_same_with_snapshots_and_they_hold_its_weights(tmp_path: Path) -> None:
    plain, trainer = toy_trainer(tmp_path / "plain"), toy_trainer(tmp_path / "kept", snapshots=4)
    first = weights_of(trainer)
    plain.train()
    trainer.train()
    assert largest_difference(weights_of(plain), weights_of(trainer)) == 0
    assert not snapshot_files(tmp_path / "plain")
    found = snapshots(tmp_path / "kept")
    assert [*found] == [0, 1, 12]
    assert {tensor.dtype for tensor in found[12].values()} == {torch.float16}
    for step, weights in ((0, first), (12, weights_of(trainer))):
        assert largest_difference({name: t.half() for name, t in weights.items()}, found[step]) == 0


def test_the_average_over_training_is_what_is_kept(tmp_path: Path) -> None:
    trainer = toy_trainer(tmp_path, snapshots=3, **EMA)
    trainer.train()
    average = {name: t.half() for name, t in trainer.average.items()}
    assert largest_difference(average, snapshots(tmp_path)[12]) == 0


def stopped(trainer: Any, step: int) -> Any:
    trainer.stop_requested = lambda: trainer.state.step == step
    return trainer


@pytest.mark.needs_fork
def test_a_run_that_is_stopped_or_killed_anywhere_has_the_snapshots_of_the_whole_one(tmp_path: Path) -> None:
    toy_trainer(tmp_path / "whole", snapshots=12, **EMA).train()
    for step in (1, 3, 10):
        assert stopped(toy_trainer(tmp_path / "parts", snapshots=12, **EMA), step).train().step == step
    last = toy_trainer(tmp_path / "parts", snapshots=12, **EMA)
    last.train()
    assert_same_snapshots(tmp_path / "whole", tmp_path / "parts")
    # A kill leaves snapshots that are newer than the checkpoint, and the one that was being written.
    process = os.fork()
    if not process:
        trainer = toy_trainer(tmp_path / "killed", snapshots=12, **EMA)
        write = trainer.snapshots.write

        def killed(step: int, ended: bool, weights: Any) -> None:
            write(step, ended, weights)
            if step == 6:
                os.kill(os.getpid(), signal.SIGKILL)

        trainer.snapshots.write = killed  # type: ignore[method-assign]
        trainer.train()
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    assert [*snapshot_files(tmp_path / "killed")] == [0, 1, 2, 3, 4, 6]
    toy_trainer(tmp_path / "killed", snapshots=12, **EMA).train()
    assert_same_snapshots(tmp_path / "whole", tmp_path / "killed")


def test_a_run_that_starts_anew_or_goes_back_has_no_snapshots_of_another_one(tmp_path: Path) -> None:
    toy_trainer(tmp_path, snapshots=4).train()
    later = snapshot_files(tmp_path)[12]
    (tmp_path / "checkpoints" / "step-00000012").rename(tmp_path / "gone")
    trainer = toy_trainer(tmp_path, snapshots=4)
    trainer.resume()
    assert trainer.state.step == 8 and not later.exists() and [*snapshot_files(tmp_path)] == [0, 1]
    (tmp_path / "checkpoints").rename(tmp_path / "gone too")
    toy_trainer(tmp_path, snapshots=0).resume()
    assert not snapshot_files(tmp_path)


def test_minutes_end_with_a_snapshot_and_time_for_one_is_not_time_for_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock(monkeypatch, 1.0)
    trainer = clock.on(toy_trainer(tmp_path, steps=None, minutes=0.5, snapshots=4, log_every=100))
    write = trainer.snapshots.write

    def slowly(step: int, ended: bool, weights: Any) -> None:
        clock.now += 1000
        write(step, ended, weights)

    trainer.snapshots.write = slowly  # type: ignore[method-assign]
    assert trainer.train().step == 30
    assert [*snapshot_files(tmp_path)] == snapshot_steps(4, 30, ended=True) == [0, 1, 10, 30]


def test_a_run_out_of_patience_ends_with_a_snapshot(tmp_path: Path) -> None:
    trainer = toy_trainer(tmp_path, steps=100, validate_every=2, patience=1, snapshots=4)
    trainer.validate = lambda step: Validation({}, -float(step))
    assert trainer.train().step == 4
    assert [*snapshot_files(tmp_path)] == [0, 1, 4]


def train_in_processes(rank: int, folder: Path) -> None:
    for name, shard in (("whole", False), ("sharded", True)):
        toy_trainer(folder / name, snapshots=4, shard=shard, **EMA).train()


def test_several_processes_write_what_one_writes_sharded_or_not(tmp_path: Path) -> None:
    toy_trainer(tmp_path / "one", snapshots=4, **EMA).train()
    in_processes(2, train_in_processes, tmp_path)
    wanted = snapshots(tmp_path / "one")
    for name in ("whole", "sharded"):
        found = snapshots(tmp_path / name)
        assert [*found] == [*wanted]
        for step, weights in wanted.items():
            for key, tensor in weights.items():
                if not key.endswith("bias"):  # a key's bias gets no gradient but rounding
                    torch.testing.assert_close(found[step][key], tensor, rtol=1e-2, atol=2e-3, msg=f"{name} {step} {key}")


def test_one_snapshot_is_refused() -> None:
    with pytest.raises(ValueError, match="give 2 or more, or 0 for none"):
        TrainingConfig(steps=1, snapshots=1)


def test_a_missing_snapshot_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no snapshots of its training; set"):
        find_weights(tmp_path, None, 3)  # type: ignore[arg-type]
    toy_trainer(tmp_path, snapshots=4).train()
    with pytest.raises(ConfigError, match="no snapshot of step 3; it has those of 0, 1, 12"):
        find_weights(tmp_path, None, 3)  # type: ignore[arg-type]
    assert find_weights(tmp_path, None, 12).path.name == "12.safetensors"  # type: ignore[arg-type]

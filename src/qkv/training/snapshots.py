"""Snapshots of the weights through training, in half precision, to look at; nothing else needs them."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from qkv.base.files import atomic_file
from qkv.base.snapshots import delete_other_snapshots, snapshot_files, snapshot_path, snapshot_steps
from qkv.training.checkpoints import save_weights


class SnapshotWriter:
    """Writes the snapshots of a run at log-spaced steps; `count` 0 writes none."""

    def __init__(self, run: Path, count: int):
        self.run, self.count = run, count

    def due(self, step: int, ended: bool) -> bool:
        """Whether the weights after `step` steps are kept; `ended` says that there are no more steps."""
        return self.count > 0 and step in snapshot_steps(self.count, step, ended)

    def write(self, step: int, ended: bool, weights: Mapping[str, Tensor]) -> None:
        """Write a snapshot, and delete those that are no longer wanted."""
        half = {name: t.detach().half() if t.is_floating_point() else t.detach() for name, t in weights.items()}
        with atomic_file(snapshot_path(self.run, step)) as aside:
            save_weights(aside, half)
        delete_other_snapshots(self.run, snapshot_steps(self.count, step, ended))

    def rewind(self, step: int | None) -> None:
        """Delete the snapshots after the step that training continues from; all of them, if it starts anew (None)."""
        delete_other_snapshots(self.run, [kept for kept in snapshot_files(self.run) if step is not None and kept <= step])

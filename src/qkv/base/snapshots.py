"""Snapshots through training: at which steps they are made, and their files, `snapshots/STEP.safetensors` in a folder.

Steps are spaced evenly on a logarithmic scale, since most happens early. They depend on the number of snapshots and on the steps
so far alone, not on a plan that may change; so a run that was killed and resumed has those of the uninterrupted one.
"""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

SNAPSHOTS, SUFFIX = "snapshots", ".safetensors"
RANGE = 100.0  # the last step, relative to the first one that is kept after step 0
NEAR = 1 / 3  # share of the distance between two snapshots within which the last step replaces the one before it


def _refuse_one(count: int) -> int:
    if count == 1:
        raise ValueError("one snapshot is that of the start alone; give 2 or more, or 0 for none")
    return count


SnapshotCount = Annotated[int, Field(ge=0), AfterValidator(_refuse_one)]  # in recipes: 0 keeps none


def snapshot_steps(count: int, step: int, ended: bool = False) -> list[int]:
    """Return the steps of the snapshots that are kept after `step` steps, at most `count`: 0, and the newest ones.

    >>> snapshot_steps(8, 5000, ended=True)
    [0, 46, 100, 215, 464, 1000, 2154, 5000]
    """
    steps = log_spaced_steps(count, step)
    if ended and step > 0:
        near = steps[-1] * RANGE ** (NEAR / max(1, count - 2)) > step
        steps = [*(steps[:-1] if near else steps), step]
    return [0, *steps[1 - count :]]


def log_spaced_steps(count: int, last: int) -> list[int]:
    """Return the steps from 1 to `last` at which snapshots are made: `count` - 2 for each factor of RANGE."""
    steps, value = {0}, 1.0
    while round(value) <= last:
        steps.add(round(value))
        value *= RANGE ** (1 / max(1, count - 2))
    return sorted(steps)[1:]


def snapshot_files(folder: Path) -> dict[int, Path]:
    """Return the files of a folder's snapshots by step, the first step first."""
    found = [path for path in (folder / SNAPSHOTS).glob(f"*{SUFFIX}") if path.stem.isdecimal()]
    return dict(sorted((int(path.stem), path) for path in found))


def snapshot_path(folder: Path, step: int) -> Path:
    """Return the file of the snapshot of a step."""
    return folder / SNAPSHOTS / f"{step}{SUFFIX}"


def delete_other_snapshots(folder: Path, steps: list[int]) -> None:
    """Delete the snapshots of all steps but these."""
    for step, path in snapshot_files(folder).items():
        if step not in steps:
            path.unlink(missing_ok=True)

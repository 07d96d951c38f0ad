"""Checkpoints: complete or absent, verified when read, safetensors and JSON only.

`checkpoints/step-00001000/` holds `model.safetensors`, `optimizer.safetensors` (Adam's moments), `average.safetensors` (where
weights are averaged over training) and `state.json` (step, position in the data, a digest of each other file and one of itself).

Several processes write a file in parts, such as `model-00001-of-00002.safetensors`: part i of n holds the i-th of n chunks of
each tensor's rows. Joined, they are the file that one process writes, and any number of processes can read them. `folder / MODEL`
names the file in both forms.
"""

import contextlib
import json
import shutil
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from qkv.base.errors import CheckpointError
from qkv.base.files import delete_folder, digest

MODEL, OPTIMISER, AVERAGE, STATE = "model.safetensors", "optimizer.safetensors", "average.safetensors", "state.json"
RESUMABLE = 2  # newest checkpoints that keep the optimiser's state: one to resume from, and one in case that is damaged


# Checkpoint folders


def folders(run: Path) -> list[Path]:
    """Return the run's checkpoints, oldest first."""
    return sorted(f for f in (run / "checkpoints").glob("step-*") if f.name.removeprefix("step-").isdigit())


def step_of(folder: Path) -> int:
    """Return the step of a checkpoint."""
    return int(folder.name.removeprefix("step-"))


def folder_of(run: Path, step: int) -> Path:
    """Return the folder of the checkpoint of a step."""
    return run / "checkpoints" / f"step-{step:08d}"


def write_state(folder: Path, step: int, state: dict[str, Any], digests: dict[str, str]) -> None:
    """Write the state of a checkpoint with the digests of its files; it makes the checkpoint complete."""
    values = {**state, "step": step, "digests": digests}
    (folder / STATE).write_text(json.dumps({**values, "digest": _digest_of(values)}, indent=1))


def prune(run: Path, needed: set[int]) -> None:
    """Delete checkpoints whose steps are not needed; the newest two stay complete, to resume from."""
    for folder in folders(run)[:-RESUMABLE]:
        if step_of(folder) in needed:
            # By their names, not by `weight_files`: a process that was killed here has left some of the parts.
            for file in folder.glob(f"{Path(OPTIMISER).stem}*{Path(OPTIMISER).suffix}"):
                file.unlink(missing_ok=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def delete_all(run: Path) -> int:
    """Delete all checkpoints of a run, the oldest first, and those that cannot be deleted stay. -> the bytes that were freed."""
    freed = 0
    for folder in folders(run):
        with contextlib.suppress(OSError):
            size = sum(file.stat().st_size for file in folder.iterdir())
            delete_folder(folder)
            freed += size
    with contextlib.suppress(OSError):  # other files in it are not ours
        (run / "checkpoints").rmdir()
    return freed


def newest(run: Path) -> tuple[Path | None, dict[str, Any], list[str]]:
    """Return the newest intact checkpoint, its state, and what is wrong with any newer ones."""
    problems: list[str] = []
    for folder in reversed(folders(run)):
        try:
            return folder, read_state(folder), problems
        except CheckpointError as error:
            problems.append(str(error))
    if problems:
        raise CheckpointError(f"no checkpoint of {run} is intact ({problems[0]}); delete its checkpoints/ to start anew")
    return None, {}, problems


def read_state(folder: Path, verify: bool = True) -> dict[str, Any]:
    """Read the state of a checkpoint, and compare all its files with their digests."""
    try:
        state = json.loads((folder / STATE).read_text())
        if state.pop("digest") != _digest_of(state):
            raise CheckpointError(f"{folder / STATE}: damaged")
        names = list(state["digests"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{folder}: incomplete checkpoint ({error})") from None
    for name in names if verify else ():
        _verify(folder / name, state)
    return state


def _verify(path: Path, state: dict[str, Any]) -> None:
    """Compare one file of a checkpoint with its digest."""
    try:
        if digest(path) != state["digests"][path.name]:
            raise CheckpointError(f"{path}: damaged or truncated")
    except (OSError, KeyError) as error:
        raise CheckpointError(f"{path.parent}: incomplete checkpoint ({error})") from None


def _digest_of(values: dict[str, Any]) -> str:
    return blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=16).hexdigest()


def scored_weights(folder: Path) -> Path:
    """Return the file of the weights that were validated at this checkpoint: the average over training if there is one."""
    return folder / AVERAGE if weight_files(folder / AVERAGE) else folder / MODEL


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read one file of a checkpoint and verify its digest; an older checkpoint may have lost its other files."""
    try:
        state = read_state(path.parent, verify=False)
        for file in weight_files(path) or [path]:
            _verify(file, state)
    except CheckpointError as error:
        raise CheckpointError(f"{error}; delete {path.parent} to continue without it") from None
    return load_weights(path)


def average(paths: list[Path]) -> dict[str, Tensor]:
    """Return the mean of several checkpoints' weights, summed in float64 so that the order does not matter."""
    total: dict[str, Tensor] = {}
    for path in paths:
        for name, tensor in read_weights(path).items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(paths)).float() for name, tensor in total.items()}


# Weights


def save_weights(path: Path, weights: dict[str, Tensor]) -> None:
    """Write tensors by name."""
    try:
        save_file({name: t.detach().contiguous().cpu() for name, t in weights.items()}, path)
    except SafetensorError as error:
        # safetensors wraps the system's error in its own; the caller needs to know whether the disk is full.
        raise OSError(28 if "No space" in str(error) else 5, str(error)) from error


def load_weights(path: Path, number: int = 0, count: int = 1) -> dict[str, Tensor]:
    """Read tensors by name onto the CPU: all rows, or chunk `number` of `count` chunks of each tensor's rows.

    The file may be in parts, whose number need not be `count`.
    """
    try:
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(safe_open(file, framework="pt")) for file in weight_files(path) or [path]]
            slices: dict[str, list[Any]] = {}
            for file in files:
                for name in file.keys():  # noqa: SIM118  (it is no dict)
                    slices.setdefault(name, []).append(file.get_slice(name))
            return {name: _read_rows(parts, number, count) for name, parts in slices.items()}
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file; is this a run folder whose training has saved something?") from None
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: not a readable safetensors file ({error})") from None


def _read_rows(parts: list[Any], number: int, count: int) -> Tensor:
    """Read chunk `number` of `count` chunks of the rows of a tensor that lies in several parts; a scalar is always whole."""
    if not parts[0].get_shape():
        return parts[0][...]
    sizes = [part.get_shape()[0] for part in parts]
    begin, end = chunk(sum(sizes), number, count)
    found, offset = [], 0
    for part, size in zip(parts, sizes, strict=True):
        first, last = max(begin - offset, 0), min(end - offset, size)
        if first < last:
            found.append(part[first:last])
        offset += size
    if len(found) > 1:
        return torch.cat(found)
    return found[0] if found else parts[0][:0]


def chunk(rows: int, number: int, count: int) -> tuple[int, int]:
    """Return the first row of chunk `number` of `count` and the row after its last, as `torch.chunk` and FSDP divide them."""
    size = -(-rows // count)
    return min(rows, number * size), min(rows, (number + 1) * size)


def part_name(name: str, number: int, count: int) -> str:
    """Return the name of part `number`, counted from 0, of a file in `count` parts."""
    path = Path(name)
    return name if count == 1 else f"{path.stem}-{number + 1:05d}-of-{count:05d}{path.suffix}"


def weight_files(path: Path) -> list[Path]:
    """Return the files that hold what `path` names: itself, or all its parts; nothing where there are none."""
    if path.exists():
        return [path]
    found = sorted(path.parent.glob(f"{path.stem}-?????-of-?????{path.suffix}"))
    if found and [file.name for file in found] != [part_name(path.name, number, len(found)) for number in range(len(found))]:
        raise CheckpointError(f"{path.parent}: incomplete checkpoint (parts of {path.name} are missing)")
    return found


def digest_weights(path: Path) -> str:
    """Return a hash of a file of weights, which may be in parts."""
    found = [digest(file) for file in weight_files(path) or [path]]
    return found[0] if len(found) == 1 else _digest_of({"parts": found})


def named_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters that a run saves, by name, a tied one only once: of a model with adapters the trained ones alone."""
    only_trained = getattr(model, "saves_only_trained", False)
    return {name: p for name, p in model.named_parameters() if p.requires_grad or not only_trained}


def set_weights(model: nn.Module, weights: Mapping[str, Tensor], source: str) -> None:
    """Copy weights into a model with the same names and shapes; an error names their source."""
    copy_weights(named_weights(model), weights, source)


@torch.no_grad()
def copy_weights(own: Mapping[str, Tensor], weights: Mapping[str, Tensor], source: str) -> None:
    """Copy weights into tensors with the same names and shapes; an error names their source."""
    differing = sorted(own.keys() ^ weights.keys())
    if differing:
        raise CheckpointError(f"{source}: the weights are of another model (differs at {differing[0]!r})")
    for name, tensor in own.items():
        if tensor.shape != weights[name].shape:
            got, want = tuple(weights[name].shape), tuple(tensor.shape)
            raise CheckpointError(f"{source}: the weights are of another model ({name} is {got}, expected {want})")
        tensor.copy_(weights[name])


def optimiser_tensors(optimiser: torch.optim.Optimizer, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the optimiser's tensors, named by kind and parameter, such as `exp_avg.embedding.weight`."""
    return {f"{key}.{name}": value for name, parameter in parameters.items() for key, value in optimiser.state[parameter].items()}


def set_optimiser_tensors(
    optimiser: torch.optim.Optimizer, parameters: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
) -> None:
    """Restore what `optimiser_tensors` returned."""
    for full_name, value in tensors.items():
        key, _, name = full_name.partition(".")
        optimiser.state[parameters[name]][key] = value.to(parameters[name].device)

"""Checkpoints: whole or not there, verified when read, safetensors and JSON only.

`checkpoints/step-00001000/` holds `model.safetensors`, `optimizer.safetensors` (Adam's moments), `average.safetensors` (where
weights are averaged over training) and `state.json` (step, position in the data, a digest of each other file and one of itself).
"""

import json
import shutil
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from qkv.base.errors import CheckpointError
from qkv.base.files import atomic_folder, digest

MODEL, OPTIMISER, AVERAGE, STATE = "model.safetensors", "optimizer.safetensors", "average.safetensors", "state.json"
RESUMABLE = 2  # newest checkpoints that keep their optimiser's state: one to resume from, and one should that be damaged


def folders(run: Path) -> list[Path]:
    """The run's checkpoints, oldest first."""
    return sorted(f for f in (run / "checkpoints").glob("step-*") if f.name.removeprefix("step-").isdigit())


def save(run: Path, step: int, tensors: dict[str, dict[str, Tensor]], state: dict[str, Any]) -> Path:
    """Write a checkpoint, a file for each name in `tensors`; until it is whole on the disk, the ones before it count."""
    folder = run / "checkpoints" / f"step-{step:08d}"
    with atomic_folder(folder) as aside:
        for name, weights in tensors.items():
            save_weights(aside / name, weights)
        digests = {name: digest(aside / name) for name in tensors}
        values = {**state, "step": step, "digests": digests}
        (aside / STATE).write_text(json.dumps({**values, "digest": _digest_of(values)}, indent=1))
    return folder


def prune(run: Path, needed: set[int]) -> None:
    """Delete what is not needed any more; the newest two stay whole, to resume from."""
    for folder in folders(run)[:-RESUMABLE]:
        if step_of(folder) in needed:
            (folder / OPTIMISER).unlink(missing_ok=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def step_of(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def validated(folder: Path) -> Path:
    """The weights that were scored at this checkpoint: averaged ones where there are any."""
    return folder / AVERAGE if (folder / AVERAGE).exists() else folder / MODEL


def read_state(folder: Path) -> dict[str, Any]:
    """The state of a checkpoint, after its files have been compared with their digests."""
    state = _own_state(folder)
    for name in state["digests"]:
        _verify(folder / name, state)
    return state


def read_weights(path: Path) -> dict[str, Tensor]:
    """One file of a checkpoint, compared with its digest; an older checkpoint may have lost its other files."""
    try:
        _verify(path, _own_state(path.parent))
    except CheckpointError as error:
        raise CheckpointError(f"{error}; delete {path.parent} to go on without it") from None
    return load_weights(path)


def _own_state(folder: Path) -> dict[str, Any]:
    try:
        state = json.loads((folder / STATE).read_text())
        if state.pop("digest") != _digest_of(state):
            raise CheckpointError(f"{folder / STATE}: damaged")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{folder}: not a whole checkpoint ({error})") from None
    return state


def _verify(path: Path, state: dict[str, Any]) -> None:
    try:
        if digest(path) != state["digests"][path.name]:
            raise CheckpointError(f"{path}: damaged or cut short")
    except (OSError, KeyError) as error:
        raise CheckpointError(f"{path.parent}: not a whole checkpoint ({error})") from None


def _digest_of(values: dict[str, Any]) -> str:
    return blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=16).hexdigest()


def newest(run: Path) -> tuple[Path | None, dict[str, Any], list[str]]:
    """The newest checkpoint that is whole, its state, and what was wrong with any newer ones."""
    problems: list[str] = []
    for folder in reversed(folders(run)):
        try:
            return folder, read_state(folder), problems
        except CheckpointError as error:
            problems.append(str(error))
    if problems:
        raise CheckpointError(f"no checkpoint of {run} is whole ({problems[0]}); delete its checkpoints/ to start anew")
    return None, {}, problems


def save_weights(path: Path, weights: dict[str, Tensor]) -> None:
    try:
        save_file({name: t.detach().contiguous().cpu() for name, t in weights.items()}, path)
    except SafetensorError as error:
        # The library wraps the system's error in its own; the caller wants to know about the disk.
        raise OSError(28 if "No space" in str(error) else 5, str(error)) from error


def load_weights(path: Path, device: str = "cpu") -> dict[str, Tensor]:
    try:
        return load_file(path, device=device)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file; is this a run folder whose training has saved something?") from None
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: not a readable safetensors file ({error})") from None


def own_weights(model: nn.Module) -> dict[str, Tensor]:
    """Parameters by name, a tied one only once."""
    return dict(model.named_parameters())


def set_weights(model: nn.Module, weights: dict[str, Tensor], what: str) -> None:
    """Put weights into a model; both must hold the same names and shapes."""
    own = own_weights(model)
    strangers = sorted(own.keys() ^ weights.keys())
    if strangers:
        raise CheckpointError(f"{what}: the weights are of another model (differs at {strangers[0]!r})")
    with torch.no_grad():
        for name, tensor in own.items():
            if tensor.shape != weights[name].shape:
                got, want = tuple(weights[name].shape), tuple(tensor.shape)
                raise CheckpointError(f"{what}: the weights are of another model ({name} is {got}, expected {want})")
            tensor.copy_(weights[name])


def average(paths: list[Path]) -> dict[str, Tensor]:
    """The mean of several checkpoints' weights, summed in float64 so that the order does not matter."""
    total: dict[str, Tensor] = {}
    for path in paths:
        for name, tensor in read_weights(path).items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(paths)).float() for name, tensor in total.items()}


def moments_of(optimiser: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimiser's tensors by parameter name."""
    return {
        f"{key}.{name}": value
        for name, parameter in own_weights(model).items()
        for key, value in optimiser.state[parameter].items()
    }


def set_moments(optimiser: torch.optim.Optimizer, model: nn.Module, moments: dict[str, Tensor]) -> None:
    """The inverse of `moments_of`."""
    parameters = own_weights(model)
    for full, value in moments.items():
        key, _, name = full.partition(".")
        optimiser.state[parameters[name]][key] = value.to(parameters[name].device)

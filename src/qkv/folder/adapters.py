"""An adapter's run and its base: it fits the weights that it was trained over, and knows them by their digest."""

from pathlib import Path
from typing import Any

from qkv.base.errors import CheckpointError
from qkv.folder.run import config_value, find_weights, read_recipe
from qkv.training.checkpoints import digest_weights

BASE = "base"  # in config.json: the digest of the weights that an adapter is trained for


def started_from(run: Path, recipe: Any) -> Path:
    """Return the run that an adapter started from; raise CheckpointError if it is not there."""
    base = Path(recipe.start)
    if not base.is_dir():
        raise CheckpointError(
            f"{run} is an adapter of {base}, which is not there; say where it is now, as in qkv translate BASE --adapter {run}"
        )
    return base


def weights_digest(run: Path) -> str:
    """Return the hash of a run's weights, by which an adapter knows its base."""
    file = find_weights(run, read_recipe(run)).path
    try:
        return digest_weights(file)
    except OSError:
        raise CheckpointError(f"{file}: no such file; is this a run folder whose training has saved something?") from None


def check_base(run: Path, recipe: Any, base: Path) -> None:
    """Raise CheckpointError unless a run has the weights that an adapter was trained for."""
    if config_value(run, BASE) == weights_digest(base):
        return
    if base == Path(recipe.start):
        raise CheckpointError(
            f"{run} is an adapter of {base}, whose weights have changed since; put them back, or train the adapter again"
        )
    raise CheckpointError(f"{run} is an adapter of another model than {base}; it was trained with start={recipe.start}")


def base_digest(run: Path, recipe: Any) -> str:
    """Return the digest of the weights that an adapter is trained for; those of a resumed run must be the same as before."""
    start = Path(recipe.start)
    if config_value(run, BASE) is not None:
        check_base(run, recipe, start)
    return weights_digest(start)

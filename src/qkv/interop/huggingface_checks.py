"""What is asked of every config.json and of the weights beside it, whichever model they are of."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from qkv.base.errors import CheckpointError, ConfigError


def check_options(config: Mapping[str, Any], without: Mapping[str, Any], kind: str) -> None:
    """Refuse options that we have no counterpart of, unless they have the one value that is as if they were not there."""
    for name, usual in without.items():
        if config.get(name, usual) != usual:
            raise ConfigError(f"{name}={config[name]!r} in config.json is not what qkv's {kind} has; it takes only {usual!r}")


def check_class(config: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse a class that has more than ours; a config.json that names none is taken for one of those known."""
    known = list(dict.fromkeys(known))
    (name, *_) = config.get("architectures") or known
    if name not in known:
        raise ConfigError(f"architecture {name} in config.json is not one of {', '.join(known)}")


def activation_of(option: str, given: Any, known: Mapping[str, str]) -> str:
    """Our name for an activation of theirs."""
    if str(given) not in known:
        raise ConfigError(
            f"{option}={given!r} in config.json is an activation that qkv does not have; known are {', '.join(known)}"
        )
    return known[given]


def weight_in(given: Mapping[str, Tensor], name: str) -> Tensor:
    """A weight that must be there."""
    if name not in given:
        raise CheckpointError(f"the weights lack {name}; the checkpoint is not whole")
    return given[name].float()


def check_shape(name: str, found: Tensor, wanted: Tensor) -> None:
    """Refuse a weight of another shape than config.json says."""
    if found.shape != wanted.shape:
        sizes = f"{tuple(found.shape)}, but config.json makes it {tuple(wanted.shape)}"
        raise CheckpointError(f"the weights for {name} have the shape {sizes}; they do not belong together")

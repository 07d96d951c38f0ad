"""Options in a config.json of transformers: read, and refused where qkv has no counterpart."""

from collections.abc import Iterable, Mapping
from typing import Any

from qkv.base.config import Config
from qkv.base.errors import ConfigError

CONFIG = "config.json"
Options = dict[str, tuple[str, Any]]  # our key: their key, and their default where a config.json leaves it out


def read_options(config: Mapping[str, Any], options: Options, activations: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of our config for those in a config.json."""
    values = {ours: config.get(theirs, default) for ours, (theirs, default) in options.items()}
    given, option = values["activation"], options["activation"][0]
    if str(given) not in activations:
        known = ", ".join(activations)
        raise ConfigError(f"{option}={given!r} in {CONFIG} is an activation that qkv does not have; known are {known}")
    return {**values, "activation": activations[given]}


def write_options(c: Config, options: Options, activations: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of a config.json for those of our config."""
    values = {theirs: getattr(c, ours) for ours, (theirs, _) in options.items()}
    option = options["activation"][0]
    return {**values, option: next(theirs for theirs, ours in activations.items() if ours == values[option])}


def check_fixed(config: Mapping[str, Any], fixed: Mapping[str, Any], kind: str) -> None:
    """Refuse options without a counterpart in qkv, unless they have the value that changes nothing."""
    for name, value in fixed.items():
        if config.get(name, value) != value:
            raise ConfigError(f"{name}={config[name]!r} in {CONFIG} is not supported by qkv's {kind}; it takes only {value!r}")


def check_class(config: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse a class that has more parts than ours; a config.json that names none may be any of those known."""
    known = list(dict.fromkeys(known))
    (name, *_) = config.get("architectures") or known
    if name not in known:
        raise ConfigError(f"architecture {name} in {CONFIG} is not one of {', '.join(known)}")

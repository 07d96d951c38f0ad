"""Configuration: pydantic models that refuse unknown keys, to and from YAML, with `--set a.b=c` on top."""

import contextlib
import difflib
import typing
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from qkv.base.errors import ConfigError

SHOWN = 5  # differences between two configs that a message names
CUTOFF_ELSEWHERE = 0.75  # similarity from which a key of another section is suggested; heads and betas have 0.6


class Config(BaseModel):
    """Frozen settings; every field has its default, and a comment on its meaning, beside it."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())
    shorthand_keys: ClassVar[tuple[str, ...]] = ()  # keys that stand for several fields, and are replaced by them before parsing


C = TypeVar("C", bound=Config)


def parse(kind: type[C], values: Any, where: str) -> C:
    """Build a config from plain values; an error names the key, and for an unknown key the most similar one."""
    if not isinstance(values, dict):
        raise ConfigError(f"{where}: expected keys and values, got {type(values).__name__}")
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{where}: " + _explain(kind, error.errors())) from None


def _explain(kind: type[Config], mistakes: list[Any]) -> str:
    """Return one line on the first mistake, with the number of the others."""
    # A union reports a mistake for each of its types; an unknown key is the most informative one.
    first = min(mistakes, key=lambda m: (m["type"] != "extra_forbidden", -len(m["loc"])))
    key = _path(first)
    if first["type"] == "extra_forbidden" and key in key_paths(kind):
        line = f"key {key!r} belongs to another kind; leave it out, or choose that kind"
    elif first["type"] == "extra_forbidden":
        line = f"unknown key {key!r}{_suggestion(kind, key)}"
    elif first["type"] == "missing":
        line = f"missing key {key!r}; give it in the recipe, or with --set {key}=..."
    else:
        message = first["msg"].removeprefix("Value error, ")
        value = first.get("input")
        text = repr(value)
        # A mistake in a whole section names the keys that do not go together; the section itself would be too long.
        got = "" if isinstance(value, dict) else f", got {text if len(text) <= 60 else text[:57] + '...'}"
        line = f"{key}: {message[0].lower()}{message[1:]}{got}" if key else message
    paths = {_path(m) for m in mistakes}
    others = sum(not any(p.startswith(f"{path}.") for p in paths) for path in paths) - 1
    return line + (f" (and {others} more)" if others > 0 else "")


def _path(mistake: Any) -> str:
    """Return the path of a mistake as a.b.c, without the names of types that pydantic puts between keys."""
    *steps, last = (str(step) for step in mistake["loc"]) if mistake["loc"] else ("",)
    keys = [step for step in steps if not _is_type(step)]
    return ".".join(keys if _is_type(last) and mistake["type"] != "extra_forbidden" else [*keys, last])


def _is_type(step: str) -> bool:
    return step[:1].isupper() or step in ("str", "constrained-int") or step.startswith(("list[", "literal["))


def _suggestion(kind: type[Config], unknown: str) -> str:
    """Suggest the most similar key: by name in the same section, by path in another; else list the known keys."""
    section, _, name = ".".join(step for step in unknown.split(".") if not step.isdigit()).rpartition(".")
    known = [path.rpartition(".")[::2] for path in key_paths(kind)]
    beside = list(dict.fromkeys(key for parent, key in known if parent == section))
    near = difflib.get_close_matches(name.lower(), sorted(beside), n=1)
    near = near or difflib.get_close_matches(name.lower(), sorted({key for _, key in known}), n=1, cutoff=CUTOFF_ELSEWHERE)
    parents = sorted(
        (parent for parent, key in known if key in near),
        key=lambda parent: (parent != section, not parent.startswith(section), parent),
    )
    if parents:
        return f"; did you mean {near[0] if parents[0] == section else f'{parents[0]}.{near[0]}'.lstrip('.')!r}?"
    if not beside:
        return ""
    return f"; known {f'in {section} ' if section else ''}are {', '.join(beside)}"


def key_paths(kind: type[Config]) -> Iterable[str]:
    """Yield every key of a config as a.b.c; items of a list have no number."""
    yield from kind.shorthand_keys
    for name, field in kind.model_fields.items():
        yield name
        for section in _configs_in(field.annotation):
            yield from (f"{name}.{path}" for path in key_paths(section))


def _configs_in(annotation: Any) -> Iterable[type[Config]]:
    if isinstance(annotation, type) and issubclass(annotation, Config):
        yield annotation
    for part in typing.get_args(annotation):
        yield from _configs_in(part)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file that holds keys and values."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as a recipe: {error}") from None
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or str(error).partition("\n")[0]
        place = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{place}: not valid YAML: {problem}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: a recipe is keys and values, got {type(values).__name__}")
    return values


def dump_yaml(config: Config) -> str:
    """Return the config as YAML, from which `parse` builds an equal config."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def with_settings(values: dict[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """Return a copy of `values` with the settings applied; each is `a.b=c`, with c in YAML."""
    result = {**values}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise ConfigError(f"--set {setting}: expected key=value, such as training.steps=1000")
        *path, last = name.split(".")
        section = result
        for key in path:
            child = section.get(key)
            section[key] = {**child} if isinstance(child, dict) else {}
            section = section[key]
        section[last] = setting_value(text)
    return result


def setting_value(text: str) -> Any:
    """Parse the value of a setting as YAML, except that a # begins no comment and 1e-3 is a number."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = text
    if "#" in text and (value is None or isinstance(value, str)) and text.lstrip()[:1] not in ("'", '"'):
        return text
    if isinstance(value, str) and value[:1] in "+-.0123456789" and "e" in value.lower():  # YAML 1.1 reads 1e-3 as a string
        with contextlib.suppress(ValueError):
            return float(value)
    return value


def differences(old: Config, new: Config) -> list[str]:
    """List the leaf keys that differ between two configs, each as `key: old -> new`."""
    return list(_differences(old.model_dump(mode="json"), new.model_dump(mode="json"), ""))


def _differences(old: Any, new: Any, at: str) -> Iterable[str]:
    if old == new:
        return
    found: list[str] = []
    sections = [side for side in (old, new) if side is not None]
    if all(isinstance(side, dict) and side for side in sections):  # None has no keys
        before, after = old or {}, new or {}
        for key in [*before, *(k for k in after if k not in before)]:
            found += _differences(before.get(key), after.get(key), f"{at}.{key}" if at else key)
    elif all(isinstance(side, list) and any(isinstance(item, dict) for item in side) for side in sections):  # such as corpora
        for index, items in enumerate(zip_longest(old or [], new or [])):
            found += _differences(*items, f"{at}[{index}]")
    yield from found or [f"{at}: {old!r} -> {new!r}"]


def describe_differences(changes: Sequence[str]) -> str:
    """Return differences for a message: the first five, and how many more there are."""
    more = [f"and {len(changes) - SHOWN:,} more"] if len(changes) > SHOWN else []
    return "; ".join([*changes[:SHOWN], *more])

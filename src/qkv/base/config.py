"""Configuration: pydantic models that refuse unknown keys, to and from YAML, with `--set a.b=c` on top."""

import difflib
import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from qkv.base.errors import ConfigError

ELSEWHERE = 0.75  # how alike a key of another section must be to be suggested: heads and betas are 0.6


class Config(BaseModel):
    """A frozen set of named values; every field carries its default and its meaning beside it."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())
    shorthand_keys: ClassVar[tuple[str, ...]] = ()  # keys that are not fields: whoever reads a file puts fields in their place


C = TypeVar("C", bound=Config)


def parse(kind: type[C], values: Any, where: str) -> C:
    """Build a config from plain values; a mistake is named with its key, and an unknown key with its nearest neighbour."""
    if not isinstance(values, dict):
        raise ConfigError(f"{where}: expected keys and values, got {type(values).__name__}")
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{where}: " + _explain(kind, error.errors())) from None


def _explain(kind: type[Config], mistakes: list[Any]) -> str:
    """One line for the first mistake, and how many more there are."""
    # A field that takes one of several shapes reports a mistake for each; an unknown key says the most.
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
        line = f"{key}: {message[0].lower()}{message[1:]}{_got(first.get('input'))}" if key else message
    paths = {_path(m) for m in mistakes}
    others = sum(not any(p.startswith(f"{path}.") for p in paths) for path in paths) - 1
    return line + (f" (and {others} more)" if others > 0 else "")


def _path(mistake: Any) -> str:
    """Where the mistake is, as a.b.c; the names of types, which stand between the keys, are left out."""
    *steps, last = (str(step) for step in mistake["loc"]) if mistake["loc"] else ("",)
    keys = [step for step in steps if not _is_type(step)]
    return ".".join(keys if _is_type(last) and mistake["type"] != "extra_forbidden" else [*keys, last])


def _is_type(step: str) -> bool:
    return step[:1].isupper() or step == "str" or step.startswith("list[")


def _got(value: Any) -> str:
    """What was given, unless that is a whole section, of which a mistake names the keys that do not go together."""
    text = repr(value)
    return "" if isinstance(value, dict) else f", got {text if len(text) <= 60 else text[:57] + '...'}"


def _suggestion(kind: type[Config], unknown: str) -> str:
    """The key most like an unknown one: its name where it stands beside it, its whole path elsewhere; or what there is."""
    place, _, name = ".".join(step for step in unknown.split(".") if not step.isdigit()).rpartition(".")
    known = [path.rpartition(".")[::2] for path in key_paths(kind)]
    beside = list(dict.fromkeys(last for at, last in known if at == place))
    like = difflib.get_close_matches(name.lower(), sorted(beside), n=1)
    like = like or difflib.get_close_matches(name.lower(), sorted({last for _, last in known}), n=1, cutoff=ELSEWHERE)
    places = sorted((at for at, last in known if last in like), key=lambda at: (at != place, not at.startswith(place), at))
    if places:
        return f"; did you mean {like[0] if places[0] == place else f'{places[0]}.{like[0]}'.lstrip('.')!r}?"
    return f"; known in {place} are {', '.join(beside)}" if place and beside else ""


def key_paths(kind: type[Config]) -> Iterable[str]:
    """Every key that may appear inside a config of this kind, as a.b.c; the members of a list have no number."""
    yield from kind.shorthand_keys
    for name, field in kind.model_fields.items():
        yield name
        for inner in _configs_in(field.annotation):
            yield from (f"{name}.{path}" for path in key_paths(inner))


def _configs_in(annotation: Any) -> Iterable[type[Config]]:
    if isinstance(annotation, type) and issubclass(annotation, Config):
        yield annotation
    for part in typing.get_args(annotation):
        yield from _configs_in(part)


def read_yaml(path: Path) -> dict[str, Any]:
    """The keys and values in a YAML file."""
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
    """The config as YAML that `parse` reads back to an equal config."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def with_settings(values: dict[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """A copy of `values` in which each `a.b=c` (c in YAML) has replaced or added one value."""
    result = {**values}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise ConfigError(f"--set {setting}: expected key=value, such as training.steps=1000")
        value = _value(text)
        *path, last = name.split(".")
        inside = result
        for step in path:
            child = inside.get(step)
            inside[step] = {**child} if isinstance(child, dict) else {}
            inside = inside[step]
        inside[last] = value
    return result


def _value(text: str) -> Any:
    """What YAML makes of a text; but a # in it begins no comment, and 1e-3 is a number."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = text
    if "#" in text and (value is None or isinstance(value, str)) and text.lstrip()[:1] not in ("'", '"'):
        return text
    return _number(value) if isinstance(value, str) else value


def _number(text: str) -> str | float:
    """YAML 1.1 reads 1e-3 as a string; people mean a number."""
    try:
        return float(text) if text[:1] in "+-.0123456789" and "e" in text.lower() else text
    except ValueError:
        return text


def differences(old: Config, new: Config) -> list[str]:
    """What differs between two configs, one `key: old -> new` each."""
    return list(_differences(old.model_dump(mode="json"), new.model_dump(mode="json"), ""))


def _differences(old: Any, new: Any, at: str) -> Iterable[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(k for k in new if k not in old)]:
            yield from _differences(old.get(key), new.get(key), f"{at}.{key}" if at else key)
    elif old != new:
        yield f"{at}: {old!r} -> {new!r}"

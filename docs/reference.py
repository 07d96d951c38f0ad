"""Reference pages made from the code: every key of a recipe, every command, every recipe, the Python functions."""

import inspect
import io
import re
import tokenize
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

import qkv
from qkv.cli.app import app
from qkv.models import FAMILIES
from qkv.objectives import OBJECTIVES
from qkv.recipes import CLASSES, RECIPES, recipe_names


def write(folder: Path, **more: str) -> None:
    """Write all pages, and more, each only if it has changed, so that Sphinx reads no more than it must."""
    folder.mkdir(exist_ok=True)
    pages = {"keys": keys_page(), "commands": commands_page(), "recipes": recipes_page(), "python": python_page()}
    for name, text in {**pages, **more}.items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


# Keys of recipes


def keys_page() -> str:
    """Return the keys of all classes that a recipe is made of, with their types, defaults and comments."""
    parts = [
        "# Every key, from the code",
        "What each key means, one line each. [Recipes](../recipes.md) explains them with examples.",
    ]
    shared: dict[type[BaseModel], str] = {}
    for recipe in CLASSES.values():
        for key, field in recipe.model_fields.items():
            for config in _configs(field.annotation) if key not in ("model", "objective") else ():
                shared.setdefault(config, key)
    parts += [_table(f"`{key}`: {_words(config.__name__)}", config) for config, key in sorted(shared.items(), key=_by_key)]
    for kind, family in FAMILIES.items():
        sizes = ", ".join(f"`{name}`" for name in family.sizes)
        rows = [f"| `size` | {sizes} | none | a published shape, whose values take the place of defaults |"] if sizes else []
        parts.append("\n".join([_table(f"`model.kind: {kind}`", family.config), *rows]))
    parts += [_table(f"`objective.kind: {kind}`", objective.config_class) for kind, objective in OBJECTIVES.items()]
    return "\n\n".join(parts) + "\n"


def _by_key(item: tuple[type[BaseModel], str]) -> tuple[str, str]:
    return item[1], item[0].__name__


def _configs(annotation: Any) -> Iterator[type[BaseModel]]:
    """Return the config classes in a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _configs(inner)


def _table(title: str, config: type[BaseModel]) -> str:
    comments = {name: text for base in reversed(config.__mro__) for name, text in _comments(base).items()}
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name, field in config.model_fields.items():
        meaning = field.description or comments.get(name, "")
        rows.append(f"| `{name}` | {_type(field.annotation)} | {_default(field)} | {_cell(meaning)} |")
    about = inspect.cleandoc(config.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    return "\n\n".join([f"## {title}", about, "\n".join(rows)])


def _comments(config: type) -> dict[str, str]:
    """Return the comment at the end of each field's line, or on the lines after an opening bracket."""
    try:
        source = inspect.getsource(config)
    except (OSError, TypeError):
        return {}
    found, name = {}, ""
    for token in tokenize.generate_tokens(io.StringIO(inspect.cleandoc("\n" + source) + "\n").readline):
        if field := re.match(r"    (\w+):", token.line):
            name = field[1]
        if token.type == tokenize.COMMENT and name and not token.line.lstrip().startswith("#"):
            found.setdefault(name, token.string.lstrip("# "))
    return found


def _type(annotation: Any) -> str:
    """Return a type in words."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(_type(one) for one in inner if one is not type(None))
    if origin in (list, tuple):
        return f"list of {_type(inner[0])}" if inner else "list"
    if origin is dict:
        return "mapping"
    names = {bool: "true or false", int: "whole number", float: "number", str: "text", Path: "path"}
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    return names.get(annotation) or (_type(inner[0]) if inner else "any")


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True) if field.default is PydanticUndefined else field.default
    if isinstance(value, BaseModel):
        return "see there"
    return "none" if value is None else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _words(name: str) -> str:
    """Return the name of a class in words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.removesuffix("Config")).lower()


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


# Recipes


def recipes_page() -> str:
    """Return all recipes that come with qkv."""
    parts = ["# Recipes that come with qkv", "`qkv recipes` lists them, `qkv recipes NAME` prints one."]
    for name in recipe_names():
        text = (RECIPES / f"{name}.yaml").read_text(encoding="utf-8").rstrip()
        parts += [f"## {name}", f"```yaml\n{text}\n```"]
    return "\n\n".join(parts) + "\n"


# Commands


def commands_page() -> str:
    """Return all commands with their arguments and options."""
    parts = ["# Commands", "`qkv COMMAND --help` prints the same."]
    root = typer.main.get_command(app)
    parts += [text for name, command in sorted(_commands(root, "qkv")) for text in _command(name, command)]
    return "\n\n".join(parts) + "\n"


def _commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if not command.hidden:
            yield f"{prefix} {name}", command
            if hasattr(command, "commands"):
                yield from _commands(command, f"{prefix} {name}")


def _command(name: str, command: Any) -> list[str]:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and one.name != "help" and not one.hidden]
    usage = " ".join([name, *(_argument(one) for one in arguments), *(["[OPTIONS]"] if options else [])])
    parts = [f"## {name}", inspect.cleandoc(command.help or ""), f"```\n{usage}\n```"]
    rows = [f"| `{_argument(one)}` | {_cell(one.help or '')} | {_option_default(one)} |" for one in arguments]
    rows += [
        f"| {', '.join(f'`{each}`' for each in one.opts)} | {_cell(one.help or '')} | {_option_default(one)} |" for one in options
    ]
    return [*parts, "\n".join(["| | | default |", "|---|---|---|", *rows])] if rows else parts


def _argument(one: Any) -> str:
    name = one.metavar or one.name.upper()
    return f"{name.strip('{}[]')}{'...' if one.nargs == -1 else ''}"


def _option_default(one: Any) -> str:
    if one.required:
        return "required"
    value = one.default
    if value is None or callable(value) or value in ((), [], False):
        return ""
    return f"`{value}`"


# Python


def python_page() -> str:
    """Return a page on the public functions and on what `qkv.load` returns."""
    loaded = {
        "Translator": "qkv.inference.translator",
        "TextEncoder": "qkv.inference.text_encoder",
        "TextGenerator": "qkv.inference.text_generator",
        "Infiller": "qkv.inference.infiller",
    }
    parts = ["# Python", "```python\nimport qkv\n```"]
    for name in qkv.__all__:
        value = getattr(qkv, name)
        if callable(value):
            parts.append(f"```{{eval-rst}}\n.. autofunction:: {value.__module__}.{value.__qualname__}\n```")
    parts.append("## What `qkv.load` returns")
    parts += [f"```{{eval-rst}}\n.. autoclass:: {module}.{name}\n   :members:\n```" for name, module in loaded.items()]
    parts += ["## What `qkv.look` returns", "```{eval-rst}\n.. autoclass:: qkv.lens.view.AttentionView\n   :members:\n```"]
    return "\n\n".join(parts) + "\n"

"""What comparisons of models share: that runs already there are those asked for, and what they had alike by their own word."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from qkv.base.config import differences
from qkv.base.files import whole_file
from qkv.recipe import TranslationRecipe
from qkv.runs.folder import RESULT, read_recipe
from qkv.runs.start import complete
from qkv.training import checkpoints

AT_ONCE = "at-once"  # file in a run's folder: how many trained side by side then


def refuse_other_runs(asked: Iterable[tuple[Path, Any]]) -> None:
    """End with a line where a run that is there, or begun, was made with another recipe than the one asked for."""
    for run, recipe in asked:
        if not ((run / RESULT).exists() or checkpoints.folders(run)):
            continue
        wanted = recipe if isinstance(recipe, TranslationRecipe) else complete(recipe)
        _refuse(run, differences(read_recipe(run), wanted))


def refuse_other_settings(note: Path, asked: dict[str, Any]) -> None:
    """The same for data made before, whose settings stand in a note beside it."""
    made = json.loads(note.read_text()) if note.exists() else asked
    _refuse(note.parent, [f"{name}: {made.get(name)!r} -> {value!r}" for name, value in asked.items() if made.get(name) != value])


def _refuse(made: Path, changes: list[str]) -> None:
    if changes:
        raise SystemExit(f"{made} was made with other settings: {'; '.join(changes)}. Ask for the same, or choose another --out")


def note_settings(note: Path, asked: dict[str, Any]) -> None:
    note.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(note) as path:
        path.write_text(json.dumps(asked, indent=1))


def alike(runs: Iterable[Path], tell: Callable[[Any], str]) -> str:
    """What `tell` says of the recipe of each run, which must be one thing."""
    told = {tell(read_recipe(run)): run for run in runs}
    if len(told) > 1:
        raise SystemExit(f"not alike: {'; '.join(f'{run} had {what}' for what, run in told.items())}. Choose an --out for each")
    return next(iter(told))


def budget_of(recipe: Any) -> str:
    """How long a recipe trains."""
    training = recipe.training
    return f"{training.steps:,} updates" if training.steps else f"{training.minutes * 60:g} seconds"


def at_once(runs: Iterable[Path]) -> str:
    """How many trained side by side, as far as runs tell."""
    told = {int(path.read_text()) for run in runs if (path := run / AT_ONCE).exists()}
    return f", {' or '.join(map(str, sorted(told)))} training at once" if told else ""


def devices(scores: Iterable[dict[str, Any]]) -> str:
    """Where the models were scored."""
    return " or ".join(dict.fromkeys(score["device"] for score in scores))

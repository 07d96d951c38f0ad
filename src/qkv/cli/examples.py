"""Examples that a command is given for a fine-tuned encoder."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qkv.recipes import FinetuningRecipe


def examples_in(
    recipe: "FinetuningRecipe[Any, Any]", files: tuple[str, ...], settings: list[str] | None, labelled: bool = True
) -> list[Any]:
    """The examples in some files, read as the recipe says or as `--set text=1` or `--set data.text=1` says instead."""
    from qkv.base.config import parse, with_settings
    from qkv.text.examples import ExamplesConfig, read_examples

    columns = recipe.data.examples(files, recipe.model.reads_trees).model_dump()
    changed = with_settings(columns, [setting.removeprefix("data.") for setting in settings or []])
    return read_examples(recipe.objective.kind, parse(ExamplesConfig, changed, "--set"), labelled)

"""Reading labelled or unlabelled examples for a fine-tuned encoder."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qkv.recipes import FinetuningRecipe


def read_examples_for(
    recipe: "FinetuningRecipe[Any, Any]", files: tuple[str, ...], settings: list[str] | None, labelled: bool = True
) -> list[Any]:
    """Read examples from files in the recipe's format; settings such as text=1 or data.text=1 change the columns."""
    from qkv.base.config import parse, with_settings
    from qkv.text.examples import ExamplesConfig, read_examples

    columns = recipe.data.examples(files, recipe.model.reads_trees).model_dump()
    changed = with_settings(columns, [setting.removeprefix("data.") for setting in settings or []])
    return read_examples(recipe.task.readers, parse(ExamplesConfig, changed, "--set"), labelled)

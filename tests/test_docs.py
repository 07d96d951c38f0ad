"""The documentation keeps up with the code."""

from pathlib import Path

import pytest

from qkv.base.config import key_paths, read_yaml
from qkv.recipe import RECIPES, TranslationRecipe, recipe_names

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("key", sorted({path.split(".")[-1] for path in key_paths(TranslationRecipe)}))
def test_every_key_of_a_recipe_is_explained(key: str) -> None:
    page = (DOCS / "recipes.md").read_text(encoding="utf-8")
    assert any(f"{start}{key}{end}" in page for start in "`." for end in "`:."), f"docs/recipes.md does not mention {key}"


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_whole_but_for_its_data(name: str) -> None:
    values = read_yaml(RECIPES / f"{name}.yaml")
    values["data"] = {"train": "train.tsv", "dev": "dev.tsv", **values["data"]}
    assert TranslationRecipe.model_validate(values).training.steps

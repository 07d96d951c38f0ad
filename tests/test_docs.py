"""The documentation keeps up with the code."""

from pathlib import Path

import pytest

from qkv.base.config import key_paths
from qkv.recipe import (
    ENCODERS,
    FINETUNING,
    PRETRAINING,
    TRANSLATORS,
    FinetuningRecipe,
    PretrainingRecipe,
    TranslationRecipe,
    load_recipe,
    recipe_names,
)

DOCS = Path(__file__).parents[1] / "docs"
KINDS = [
    *(TranslationRecipe[model] for model in TRANSLATORS.values()),
    *(PretrainingRecipe[model, objective] for model in ENCODERS.values() for objective in PRETRAINING.values()),
    *(FinetuningRecipe[ENCODERS["bert"], objective] for objective in FINETUNING.values()),
]
DATA = {"data.train": "train.tsv", "data.dev": "dev.tsv", "data.text": "text.txt", "start": "runs/encoder"}


@pytest.mark.parametrize("key", sorted({path.split(".")[-1] for kind in KINDS for path in key_paths(kind)}))
def test_every_key_of_a_recipe_is_explained(key: str) -> None:
    page = (DOCS / "recipes.md").read_text(encoding="utf-8")
    assert any(f"{start}{key}{end}" in page for start in "`." for end in "`:."), f"docs/recipes.md does not mention {key}"


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_whole_but_for_its_data(name: str) -> None:
    pretraining = name.partition("-")[0].rstrip("2") in {*ENCODERS, "t5"}
    needed = ["data.text"] if pretraining else ["data.train", "data.dev"] + ["start"] * (name == "finetune")
    recipe = load_recipe(name, [f"{key}={DATA[key]}" for key in needed])
    assert recipe.training.steps or recipe.training.epochs

"""From a recipe to what it describes: the model with its initial weights, the objective."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from qkv.base.errors import ConfigError
from qkv.base.seeds import seed_at
from qkv.data.corpora import Tokenizers
from qkv.models import FAMILIES
from qkv.objectives import OBJECTIVES
from qkv.parts.heads import ModelWithHeads
from qkv.recipes.finetuning import FinetuningRecipe
from qkv.recipes.pretraining import PretrainingRecipe
from qkv.recipes.translation import TranslationRecipe


@contextlib.contextmanager
def seeded_initialisation(seed: int) -> Iterator[None]:
    """Inside, a model's initial weights depend on the seed alone; the caller's random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_at(seed, "weights"))
        yield


def build_translator(
    recipe: TranslationRecipe[Any, Any] | PretrainingRecipe[Any, Any], tokenizers: Tokenizers, vocabulary: int | None = None
) -> Any:
    """Build a translator with initial weights; its vocabularies are the tokenizers', or of the size given."""
    source, target = vocabulary or len(tokenizers.source), vocabulary or len(tokenizers.target)
    if getattr(recipe.model, "tied", None) == "all" and not tokenizers.source.same_vocabulary(tokenizers.target):
        raise ConfigError("model.tied=all needs one vocabulary, and these two tokenizers have two; say model.tied=target")
    family, tokenizer = FAMILIES[recipe.model.kind], tokenizers.target
    assert family.translator is not None
    with seeded_initialisation(recipe.seed):
        return family.translator(recipe.model, source, target, tokenizer.mask if tokenizer.has_mask else None)


def build_pretraining_model(recipe: PretrainingRecipe[Any, Any], vocabulary: int) -> nn.Module:
    """Build the model to be pretrained, with initial weights."""
    with seeded_initialisation(recipe.seed):
        return FAMILIES[recipe.model.kind].build_pretraining(recipe.model, vocabulary, recipe.objective)


def build_finetuning_model(recipe: FinetuningRecipe[Any, Any], vocabulary: int, labels: int) -> ModelWithHeads:
    """Build the model to be fine-tuned, with initial weights everywhere."""
    with seeded_initialisation(recipe.seed):
        return FAMILIES[recipe.model.kind].build_network(recipe.model, vocabulary, recipe.objective.heads, labels)


def build_objective(recipe: Any, tokenizer: Any) -> Any:
    """Build the objective; the tokenizer is the target's, for translation."""
    return OBJECTIVES[recipe.objective.kind].build(recipe.objective, tokenizer)

"""What a recipe says, built: the model with its first weights, the objective."""

import contextlib
from collections.abc import Iterator

import torch

from qkv.base.seeds import seed_at
from qkv.data.corpora import Tokenizers
from qkv.models.transformer import Transformer
from qkv.objectives.translation import Translation
from qkv.recipe import TranslationRecipe


def make_translator(recipe: TranslationRecipe, tokenizers: Tokenizers) -> Transformer:
    """The model with its first weights."""
    with first_weights(recipe.seed):
        return Transformer(recipe.model, len(tokenizers.source), len(tokenizers.target))


def make_translation(recipe: TranslationRecipe, tokenizers: Tokenizers) -> Translation:
    """The objective of translation."""
    return Translation(recipe.objective, tokenizers.target.bos)


@contextlib.contextmanager
def first_weights(seed: int) -> Iterator[None]:
    """Inside, a model's weights depend on the seed alone; the caller's own random numbers go on as if nothing had happened."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_at(seed, "weights"))
        yield

"""The run of a T5: whether it was pretrained, fine-tuned or imported, other runs start from its weights and tokenizer."""

from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from qkv.base.errors import ConfigError
from qkv.data.corpora import Tokenizers
from qkv.folder.run import newest_weights, read_run, warn_if_unfinished
from qkv.models.t5 import T5Config
from qkv.recipes import PretrainingRecipe, Recipe, TranslationRecipe
from qkv.recipes.build import make_translator
from qkv.text.tokenizer import Tokenizer
from qkv.training.checkpoints import load_weights, set_weights
from qkv.training.progress import Progress

TextToText = TranslationRecipe[Any] | PretrainingRecipe[Any, Any]


class T5Run(NamedTuple):
    """The contents of the folder of a T5's run."""

    folder: Path
    recipe: Recipe
    tokenizer: Tokenizer
    config: T5Config
    weights: dict[str, Tensor]

    @property
    def vocab_size(self) -> int:
        """The size of the model's vocabulary, which may be larger than the tokenizer's where the run was imported."""
        return len(self.weights["target_embedding.weight"])


def read_t5(run: Path) -> T5Run:
    """Read a T5's run with its newest weights."""
    recipe, tokenizers = read_run(run)
    if not isinstance(recipe.model, T5Config):
        raise ConfigError(f"{run} is a {recipe.model.kind}; a t5 starts from the run of a t5")
    return T5Run(run, recipe, tokenizers.source, recipe.model, load_weights(newest_weights(run)))


def initial_t5(recipe: TextToText, tokenizer: Tokenizer, progress: Progress) -> Any:
    """Build the T5 that training begins with: with new weights, or with those of the run that the recipe starts from."""
    if recipe.start is None:
        return make_translator(recipe, Tokenizers(tokenizer, tokenizer))
    warn_if_unfinished(recipe.start, progress)
    return t5_with_weights(recipe, read_t5(Path(recipe.start)))


def t5_with_weights(recipe: TextToText, run: T5Run) -> Any:
    """Build the recipe's T5 with the weights of a run."""
    model = make_translator(recipe, Tokenizers(run.tokenizer, run.tokenizer), run.vocab_size)
    set_weights(model, run.weights, str(run.folder))
    return model

"""A T5's run, read: whether it was pretrained here, fine-tuned, or imported, others start from its weights and tokenizer.

And such runs from and to the folders of Hugging Face transformers.
"""

from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

import qkv.interop
from qkv.base.config import dump_yaml
from qkv.base.errors import CheckpointError, ConfigError
from qkv.base.files import atomic_folder
from qkv.data.corpora import Tokenizers
from qkv.folder.run import RECIPE, WEIGHTS, newest_weights, read_run, save_config, save_tokenizers, warn_if_unfinished
from qkv.interop.huggingface_folder import read_folder, told_of, write_folder
from qkv.interop.huggingface_t5 import t5_from, t5_to
from qkv.interop.huggingface_tokenizer import tokenizer_files
from qkv.models.t5 import T5Config
from qkv.recipes import PretrainingRecipe, Recipe, TranslationData, TranslationRecipe, parse_recipe
from qkv.recipes.build import make_translator
from qkv.text.pretrained_tokenizer import load_pretrained_tokenizer
from qkv.text.tokenizer import Tokenizer
from qkv.training.checkpoints import load_weights, save_weights, set_weights
from qkv.training.progress import Progress

LENGTH = 512  # tokens of the texts that an imported T5 was trained on
TextToText = TranslationRecipe[Any] | PretrainingRecipe[Any, Any]


class T5Run(NamedTuple):
    """What is in the folder of a T5's run."""

    folder: Path
    recipe: Recipe
    tokenizer: Tokenizer
    config: T5Config
    weights: dict[str, Tensor]


def read_t5(run: Path) -> T5Run:
    """A T5's run, as of its newest weights."""
    recipe, tokenizers = read_run(run)
    if not isinstance(recipe.model, T5Config):
        raise ConfigError(f"{run} is a {recipe.model.kind}; a t5 starts from the run of a t5")
    return T5Run(run, recipe, tokenizers.source, recipe.model, load_weights(newest_weights(run)))


def first_t5(recipe: TextToText, tokenizer: Tokenizer, progress: Progress) -> Any:
    """A new T5, or one with the weights of the run that this one starts from."""
    if recipe.start is None:
        return make_translator(recipe, Tokenizers(tokenizer, tokenizer))
    warn_if_unfinished(recipe.start, progress)
    return t5_with(recipe, read_t5(Path(recipe.start)))


def t5_with(recipe: TextToText, run: T5Run) -> Any:
    """The recipe's T5 with the weights of a run."""
    model = make_translator(recipe, Tokenizers(run.tokenizer, run.tokenizer), words_in(run.weights))
    set_weights(model, run.weights, str(run.folder))
    return model


def words_in(weights: dict[str, Tensor]) -> int:
    """The size of a T5's vocabulary, which may be larger than its tokenizer's where it was imported."""
    return len(weights["target_embedding.weight"])


# Hugging Face


def import_t5(source: Path, run: Path) -> T5Run:
    """Make the new run of a checkpoint's folder: a translator, from which others can start."""
    config, given = read_folder(source)
    with told_of(source):
        c, weights = t5_from(config, given)
    tokenizer = load_pretrained_tokenizer(source, first=int(config.get("decoder_start_token_id") or 0))
    if len(tokenizer) > words_in(weights):
        raise CheckpointError(
            f"{source}: the tokenizer has {len(tokenizer):,} pieces, the model knows {words_in(weights):,}; "
            "they do not belong together"
        )
    recipe = _recipe(source, c)
    tokenizers = Tokenizers(tokenizer, tokenizer)
    with atomic_folder(run) as aside:
        save_tokenizers(aside, tokenizers)
        save_config(aside, recipe, tokenizers, [])
        (aside / RECIPE).write_text(dump_yaml(recipe), encoding="utf-8")
        save_weights(aside / WEIGHTS, weights)
    return read_t5(run)


def _recipe(folder: Path, c: T5Config) -> Recipe:
    """What the model could have been made with here: its shape is known, its text and its training are not."""
    text = f"imported from {folder.resolve().name}"
    values: dict[str, Any] = {
        "data": {"train": text, "dev": text, "max_tokens": LENGTH},
        "tokenizer": {"shared": {"file": "tokenizer.json"}},
        "model": c.model_dump(mode="json"),
        "training": {"steps": 1},
    }
    return parse_recipe(values, str(folder))


def export_t5(run: Path, folder: Path) -> Path:
    """Write a T5's run as a folder that `from_pretrained` of transformers loads, tokenizer included."""
    found = read_t5(run)
    data, tokenizer = found.recipe.data, found.tokenizer
    length = data.max_tokens if isinstance(data, TranslationData) else data.length
    about = (Path(qkv.interop.__file__).parent / "huggingface_t5.md").read_text(encoding="utf-8")
    config, weights = t5_to(found.config, found.weights)
    config |= {"pad_token_id": tokenizer.pad, "eos_token_id": tokenizer.eos, "decoder_start_token_id": tokenizer.bos}
    write_folder(folder, config, weights, {**tokenizer_files(tokenizer, length, "closed"), "README.md": about})
    return folder

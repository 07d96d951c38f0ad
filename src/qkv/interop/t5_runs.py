"""Runs of a T5 from and to the folders of Hugging Face transformers."""

from pathlib import Path
from typing import Any

import qkv.interop
from qkv.base.config import dump_yaml
from qkv.base.errors import CheckpointError
from qkv.base.files import atomic_folder
from qkv.data.corpora import Tokenizers
from qkv.folder.networks import TranslatorRun, read_translator
from qkv.folder.run import RECIPE, WEIGHTS, save_config, save_tokenizers
from qkv.interop.huggingface_folder import read_folder, told_of, write_folder
from qkv.interop.huggingface_t5 import t5_from, t5_to
from qkv.interop.huggingface_tokenizer import tokenizer_files
from qkv.models.t5 import T5Config
from qkv.recipes import Recipe, TranslationData, parse_recipe
from qkv.text.pretrained_tokenizer import load_pretrained_tokenizer
from qkv.training.checkpoints import save_weights

LENGTH = 512  # tokens of the texts that an imported T5 was trained on


def import_t5(source: Path, run: Path) -> TranslatorRun:
    """Make the new run of a checkpoint's folder: a translator, from which others can start."""
    config, given = read_folder(source)
    with told_of(source):
        c, weights = t5_from(config, given)
    tokenizer = load_pretrained_tokenizer(source, first=int(config.get("decoder_start_token_id") or 0))
    vocab_size = len(weights["target_embedding.weight"])
    if len(tokenizer) > vocab_size:
        raise CheckpointError(
            f"{source}: the tokenizer has {len(tokenizer):,} pieces, the model knows {vocab_size:,}; they do not belong together"
        )
    recipe = _recipe(source, c)
    tokenizers = Tokenizers(tokenizer, tokenizer)
    with atomic_folder(run) as aside:
        save_tokenizers(aside, tokenizers)
        save_config(aside, recipe, tokenizers, [])
        (aside / RECIPE).write_text(dump_yaml(recipe), encoding="utf-8")
        save_weights(aside / WEIGHTS, weights)
    return read_translator(run)


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
    found = read_translator(run)
    data, tokenizer = found.recipe.data, found.tokenizer
    length = data.max_tokens if isinstance(data, TranslationData) else data.length
    about = (Path(qkv.interop.__file__).parent / "huggingface_t5.md").read_text(encoding="utf-8")
    config, weights = t5_to(found.config, found.weights)
    config |= {"pad_token_id": tokenizer.pad, "eos_token_id": tokenizer.eos, "decoder_start_token_id": tokenizer.bos}
    write_folder(folder, config, weights, {**tokenizer_files(tokenizer, length, "closed"), "README.md": about})
    return folder

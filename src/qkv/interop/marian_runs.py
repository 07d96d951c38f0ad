"""Runs of a Transformer from and to the folders of Hugging Face transformers, where it is called Marian."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

import qkv.interop
from qkv.base.config import dump_yaml
from qkv.base.errors import CheckpointError
from qkv.base.files import atomic_folder
from qkv.data.corpora import Tokenizers
from qkv.folder.networks import read_translator
from qkv.folder.run import RECIPE, WEIGHTS, save_config, save_tokenizers
from qkv.interop.huggingface_folder import CONFIG, read_folder, told_of, write_folder
from qkv.interop.huggingface_marian import marian_from, marian_to, with_unknown, words_in
from qkv.interop.huggingface_tokenizer import Reads, tokenizer_files
from qkv.models.transformer import TransformerConfig
from qkv.recipes import Recipe, TranslationRecipe, parse_recipe
from qkv.text.marian import SOURCE, codes_in, is_marian, languages_in, read_marian
from qkv.text.pretrained_tokenizer import TOKENIZER_FILE, appends_eos, load_pretrained_tokenizer, read_json_object
from qkv.text.tokenizer import Tokenizer
from qkv.training.checkpoints import load_weights, save_weights

GENERATION = "generation_config.json"  # how transformers decodes
TARGET = "target"  # the folder of the target's tokenizer, where the source's is another
FEWEST_PLACES = 1024  # of a table of sinusoids: beyond any sentence


class MarianRun(NamedTuple):
    """What was made of a checkpoint."""

    folder: Path
    recipe: Recipe
    tokenizers: Tokenizers
    config: TransformerConfig
    weights: dict[str, Tensor]

    @property
    def tokenizer(self) -> Tokenizer:
        """That of the texts it reads."""
        return self.tokenizers.source


def import_marian(source: Path, run: Path) -> MarianRun:
    """Make the new run of a checkpoint's folder: a translator."""
    config, given = read_folder(source)
    with told_of(source):
        c, weights = marian_from(config, given)
    tokenizers, closed = _tokenizers(source, config, words_in(weights))
    words = (len(tokenizers.source), len(tokenizers.target))
    c, weights = with_unknown(c, weights, words, (tokenizers.source.unk, tokenizers.target.unk))
    recipe = _recipe(source, config, c, closed, tokenizers.shared)
    with atomic_folder(run) as aside:
        save_tokenizers(aside, tokenizers)
        save_config(aside, recipe, tokenizers, [], languages=recipe.data.languages)
        (aside / RECIPE).write_text(dump_yaml(recipe), encoding="utf-8")
        save_weights(aside / WEIGHTS, weights)
    return MarianRun(run, recipe, tokenizers, c, weights)


def _tokenizers(folder: Path, config: dict[str, Any], words: tuple[int, int]) -> tuple[Tokenizers, bool]:
    """The tokenizers in a checkpoint's folder, and whether sources end in eos: Marian's own do, ours say so."""
    first = config.get("decoder_start_token_id", config.get("pad_token_id"))
    if not isinstance(first, int) or not 0 <= first < words[1]:
        raise CheckpointError(f"{folder}: decoder_start_token_id={first!r} in {CONFIG} is none of the {words[1]:,} words")
    if is_marian(folder):
        return Tokenizers(*read_marian(folder, words, first)), True
    if not (folder / TOKENIZER_FILE).exists():
        raise CheckpointError(f"{folder}: no {SOURCE} there, and no {TOKENIZER_FILE}; save the tokenizer beside the model")
    target = folder / TARGET if (folder / TARGET / TOKENIZER_FILE).exists() else folder
    reading, writing = (
        load_pretrained_tokenizer(folder, first=first if target == folder else None),
        load_pretrained_tokenizer(target, first=first),
    )
    tokenizers = Tokenizers(reading, reading if target == folder else writing)
    if [len(tokenizer) for tokenizer in tokenizers] != [*words]:
        has, knows = (" and ".join(f"{count:,}" for count in counts) for counts in (map(len, tokenizers), words))
        raise CheckpointError(f"{folder}: the tokenizers have {has} pieces, the model knows {knows}; they do not belong together")
    return tokenizers, appends_eos(folder, reading.eos)


def _recipe(
    folder: Path, config: dict[str, Any], c: TransformerConfig, closed: bool, shared: bool
) -> TranslationRecipe[TransformerConfig, Any]:
    """What the model could have been made with here: its shape is known, its text and its training are not."""
    text = f"imported from {folder.resolve().name}"
    tasks = [{"pairs": text, "prefix": code} for code in codes_in(folder)] or text
    beam = {**config, **read_json_object(folder / GENERATION)}.get("num_beams")
    sides = ("source", "target")
    files = {"shared": {"file": TOKENIZER_FILE}} if shared else {side: {"file": f"tokenizer-{side}.json"} for side in sides}
    values: dict[str, Any] = {
        "data": {
            "train": tasks,
            "dev": tasks,
            "languages": languages_in(folder),
            "max_tokens": config.get("max_position_embeddings", FEWEST_PLACES),
            "source_eos": closed,
        },
        "tokenizer": files,
        "model": c.model_dump(mode="json"),
        "training": {"steps": 1},
        "decoding": {} if beam is None else {"beam": beam},
    }
    made = parse_recipe(values, str(folder))
    assert isinstance(made, TranslationRecipe)
    return made


def export_marian(run: Path, folder: Path) -> Path:
    """Write a Transformer's run as a folder that `from_pretrained` of transformers loads, tokenizers included."""
    read = read_translator(run)
    recipe, tokenizers = read.recipe, read.tokenizers
    with told_of(run):
        config, weights = marian_to(recipe.model, load_weights(run / WEIGHTS))
    target, length = tokenizers.target, recipe.data.max_tokens
    ends = {"pad_token_id": target.pad, "eos_token_id": target.eos, "decoder_start_token_id": target.bos}
    # As our own search does, which never says these.
    decoding = {**ends, "max_length": length, "num_beams": recipe.decoding.beam, "suppress_tokens": [*{target.pad, target.bos}]}
    beside = {
        GENERATION: json.dumps(decoding, indent=2) + "\n",
        "README.md": (Path(qkv.interop.__file__).parent / "huggingface_marian.md").read_text(encoding="utf-8"),
        **_tokenizer_files(tokenizers, length, "closed" if recipe.frame.closed else "bare"),
    }
    max_positions = {"max_position_embeddings": max(FEWEST_PLACES, 2 * length), "forced_eos_token_id": None}
    write_folder(folder, {**config, **ends, **max_positions}, weights, beside)
    return folder


def _tokenizer_files(tokenizers: Tokenizers, length: int, reads: Reads) -> dict[str, str]:
    """The source's tokenizer and, if it is another, the target's in a folder of its own, whose texts always end."""
    files = tokenizer_files(tokenizers.source, length, reads)
    if tokenizers.shared:
        return files
    return files | {f"{TARGET}/{name}": text for name, text in tokenizer_files(tokenizers.target, length, "closed").items()}

"""Runs and the folders of Hugging Face transformers: a checkpoint made a run's folder, and a run made a checkpoint."""

import warnings
from pathlib import Path
from typing import Any

import qkv.interop
from qkv.base.config import dump_yaml
from qkv.base.errors import CheckpointError, ConfigError, QkvWarning
from qkv.base.files import atomic_folder
from qkv.data.corpora import Tokenizers
from qkv.folder.networks import EncoderRun, SavedNetwork, TranslatorRun, named_weights, read_encoder
from qkv.folder.run import RECIPE, WEIGHTS, save_config, save_tokenizers
from qkv.interop.huggingface import read_huggingface, write_huggingface
from qkv.interop.huggingface_folder import kind_in
from qkv.interop.huggingface_marian import KIND as MARIAN_KIND
from qkv.interop.huggingface_names import pairs
from qkv.interop.huggingface_t5 import KIND as T5_KIND
from qkv.interop.huggingface_tokenizer import Reads, tokenizer_files
from qkv.interop.huggingface_xlnet import pairs as xlnet_pairs
from qkv.interop.marian_runs import MarianRun, import_marian
from qkv.interop.t5_runs import import_t5
from qkv.models.gpt import GptConfig
from qkv.models.xlnet import XlnetConfig
from qkv.parts.heads import ENCODER
from qkv.recipes import Recipe, parse_recipe
from qkv.text.pretrained_tokenizer import load_pretrained_tokenizer
from qkv.text.tokenizer import Tokenizer
from qkv.training.checkpoints import save_weights

TEXTS = Path(qkv.interop.__file__).parent  # what a folder says to people who find it
PRETRAINED_FOR = {"electra": "replaced", "xlnet": "permutation"}  # where it is not masking
GENERATOR = "generator"
LENGTH = 128  # of the passages that an imported encoder would be trained on further


def import_huggingface(folder: str | Path, out: str | Path) -> EncoderRun | TranslatorRun | MarianRun:
    """Make the new run `out` of a checkpoint's folder: config.json, safetensors and a tokenizer."""
    source, run = Path(folder), Path(out)
    if not source.is_dir():
        raise CheckpointError(f"{source}: no such folder; a folder with a checkpoint of transformers is wanted")
    if run.exists():
        raise ConfigError(f"{run} exists already; choose another --out")
    if (kind := kind_in(source)) in (T5_KIND, MARIAN_KIND):
        return import_t5(source, run) if kind == T5_KIND else import_marian(source, run)
    checkpoint = read_huggingface(source)
    tokenizer = load_pretrained_tokenizer(source, causal=isinstance(checkpoint.config, GptConfig))
    _check_vocabulary(source, checkpoint, tokenizer)
    recipe = _recipe(source, checkpoint)
    tokenizers = Tokenizers(tokenizer, tokenizer)
    with atomic_folder(run) as aside:
        save_tokenizers(aside, tokenizers)
        save_config(aside, recipe, tokenizers, [], labels=checkpoint.label_names)
        (aside / RECIPE).write_text(dump_yaml(recipe), encoding="utf-8")
        save_weights(aside / WEIGHTS, named_weights(checkpoint))
    return read_encoder(run)


def _check_vocabulary(folder: Path, checkpoint: SavedNetwork, tokenizer: Tokenizer) -> None:
    """A model may have more words than its tokenizer, as tables are rounded up; never fewer."""
    words = len(checkpoint.weights[ENCODER]["embedding.words.weight"])
    if len(tokenizer) > words:
        raise CheckpointError(
            f"{folder}: the tokenizer has {len(tokenizer):,} pieces, the model knows {words:,}; they do not belong together"
        )


def _recipe(folder: Path, checkpoint: SavedNetwork) -> Recipe:
    """What the model could have been made with here: its shape and its task are known, its text and its training are not."""
    c, text = checkpoint.config, [f"imported from {folder.resolve().name}"]
    kind = _task(checkpoint)
    if isinstance(c, GptConfig):
        kind, data = "causal", {"text": text, "length": c.max_positions}
    elif kind is None:
        kind, data = PRETRAINED_FOR.get(c.kind, "masked"), {"text": text, "length": min(LENGTH, c.max_positions)}
    else:
        data = {"train": text, "dev": text, "length": c.max_positions}
    values: dict[str, Any] = {
        "data": data,
        "tokenizer": {"file": "tokenizer.json"},
        "model": c.model_dump(mode="json"),
        "objective": {"kind": kind},
        "training": {"steps": 1},
    }
    return parse_recipe(values, str(folder))


def _task(checkpoint: SavedNetwork) -> str | None:
    """What a checkpoint was fine-tuned for, by its heads; None if it was not."""
    if "classes" in checkpoint.weights:
        return "regression" if len(checkpoint.weights["classes"]["output.weight"]) == 1 else "classification"
    return next((task for head, task in (("tags", "tagging"), ("span", "answering")) if head in checkpoint.weights), None)


def export_huggingface(run: Path, folder: Path, part: str | None = None) -> Path:
    """Write the run of an encoder or a GPT as a folder that `from_pretrained` of transformers loads, tokenizer included."""
    found = read_encoder(run)
    network = _network(found, part)
    c = network.config
    tokenizer, causal, xlnet = found.tokenizer, isinstance(c, GptConfig), isinstance(c, XlnetConfig)
    # Places beyond the texts in training are there, but nothing was learned of them; where there is no limit, training's is one.
    length = min(c.longest or found.trained_length or c.max_positions, found.trained_length or c.max_positions)
    reads: Reads = "prompt" if causal else "both, summary last" if xlnet else "both"
    about = TEXTS / ("huggingface_gpt.md" if causal else "huggingface_xlnet.md" if xlnet else "huggingface.md")
    files = {**tokenizer_files(tokenizer, length, reads), "README.md": about.read_text(encoding="utf-8")}
    ends = {"bos_token_id": tokenizer.bos, "eos_token_id": tokenizer.eos} if causal else {}
    write_huggingface(network, folder, files, pad_token_id=tokenizer.pad, **ends)
    known = {pair.part for pair in (xlnet_pairs(c) if isinstance(c, XlnetConfig) else pairs(c))}
    heads = [part for part in network.weights if part not in known]
    left_out = [f"the head {head}, which transformers does not have" for head in heads]
    if part is None and found.generator is not None:
        left_out.append(f"the {GENERATOR}, which --part {GENERATOR} writes")
    if left_out:
        warnings.warn(f"{folder}: left out: {'; '.join(left_out)}", QkvWarning, stacklevel=3)
    return folder


def _network(run: EncoderRun, part: str | None) -> SavedNetwork:
    if part not in (None, "generator", "discriminator"):
        raise ConfigError(f"no part {part!r} to export; an ELECTRA has generator and discriminator")
    if part is None or (part == "discriminator" and run.generator is not None):
        return run.network
    if part == GENERATOR and run.generator is not None:
        return run.generator
    raise ConfigError(f"{run.folder} is one network, it has no {part}; leave --part out")

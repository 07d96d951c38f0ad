"""Import a checkpoint of transformers as a run's folder, and export a run as a checkpoint: the same way for every family."""

import warnings
from pathlib import Path
from typing import Any

from qkv.base.config import dump_yaml
from qkv.base.errors import CheckpointError, ConfigError, QkvWarning
from qkv.base.files import atomic_folder
from qkv.folder.model_card import CARD, CardOptions, model_card
from qkv.folder.run import WEIGHTS, read_recipe, save_config, save_tokenizers
from qkv.interop.huggingface.albert import AlbertFamily
from qkv.interop.huggingface.bert import BertFamily
from qkv.interop.huggingface.electra import ElectraFamily
from qkv.interop.huggingface.ernie import ErnieFamily
from qkv.interop.huggingface.family import HuggingFaceFamily, ImportedRun
from qkv.interop.huggingface.folder import read_json, read_tensors, write_folder
from qkv.interop.huggingface.gpt import GptFamily
from qkv.interop.huggingface.marian import MarianFamily
from qkv.interop.huggingface.options import CONFIG
from qkv.interop.huggingface.t5 import T5Family
from qkv.interop.huggingface.xlnet import XlnetFamily
from qkv.recipes import RECIPE
from qkv.training.checkpoints import save_weights

FAMILIES: tuple[HuggingFaceFamily, ...] = (
    BertFamily(),
    AlbertFamily(),
    ElectraFamily(),
    ErnieFamily(),
    GptFamily(),
    XlnetFamily(),
    T5Family(),
    MarianFamily(),
)
BY_KIND = {family.kind: family for family in FAMILIES}
BY_MODEL_TYPE = {model_type: family for family in FAMILIES for model_type in family.model_types}


def import_huggingface(folder: str | Path, out: str | Path) -> ImportedRun:
    """Make the new run `out` from a checkpoint's folder: config.json, safetensors and a tokenizer."""
    source, run = Path(folder), Path(out)
    if not source.is_dir():
        raise CheckpointError(f"{source}: no such folder; give a folder with a checkpoint of transformers")
    if run.exists():
        raise ConfigError(f"{run} exists already; choose another --out")
    config = read_json(source / CONFIG)
    imported = family_of(source, config).import_run(source, config, read_tensors(source, config))
    with atomic_folder(run) as aside:
        save_tokenizers(aside, imported.tokenizers)
        save_config(aside, imported.recipe, imported.tokenizers, [], **imported.about)
        (aside / RECIPE).write_text(dump_yaml(imported.recipe), encoding="utf-8")
        save_weights(aside / WEIGHTS, imported.weights)
    return imported


def family_of(folder: Path, config: dict[str, Any]) -> HuggingFaceFamily:
    """Return the family of a checkpoint."""
    model_type = str(config.get("model_type"))
    if model_type not in BY_MODEL_TYPE:
        raise ConfigError(f"{folder}: model_type {model_type!r} in {CONFIG} is not one of {', '.join(BY_MODEL_TYPE)}")
    return BY_MODEL_TYPE[model_type]


def export_huggingface(run: Path, folder: Path, part: str | None = None, license_name: str | None = None) -> None:
    """Write a run as a folder that `from_pretrained` of transformers loads, tokenizers included."""
    exported = BY_KIND[read_recipe(run).model.kind].export_run(run, part)
    exported.weights_file.warn_if_unfinished()
    fills = any("MaskedLM" in name or "PreTraining" in name for name in exported.config.get("architectures", ()))
    options = CardOptions(license_name, "transformers", exported.files[CARD], fills)
    files = {**exported.files, CARD: model_card(run, options)}
    write_folder(folder, exported.config, exported.weights, files)
    if exported.left_out:
        warnings.warn(f"{folder}: left out: {'; '.join(exported.left_out)}", QkvWarning, stacklevel=3)


def problem(c: Any) -> str | None:
    """Return why a model with this config cannot be written for transformers; None where it can."""
    family = BY_KIND.get(c.kind)
    return f"hf has no mapping for models of kind {c.kind}" if family is None else family.problem(c)

"""Merging an adapter with its base into a complete run."""

import json
from pathlib import Path

from qkv.base.config import dump_yaml
from qkv.base.errors import ConfigError
from qkv.base.files import atomic_folder
from qkv.folder.adapters import BASE
from qkv.folder.language_profiles import copy_language_profiles
from qkv.folder.networks import read_adapter, read_translator_run
from qkv.folder.run import CONFIG, WEIGHTS, save_config, save_tokenizers
from qkv.recipes import RECIPE, parse_recipe
from qkv.training.checkpoints import save_weights

OF_WEIGHTS = ("layout", "model", "vocabularies", "tokenizers", BASE)  # keys of config.json that are written anew, or left out


def merge(adapter: str | Path, out: str | Path, base: str | Path | None = None) -> Path:
    """Write the new run `out` from an adapter's run and its base: `base`, or by default the run that it started from.

    The new run stands alone: it can be used, exported and adapted like any other.
    """
    source, run = Path(adapter), Path(out)
    read_adapter(source)
    if run.exists():
        raise ConfigError(f"{run} exists already; choose another --out")
    found = read_translator_run(source, None if base is None else Path(base))
    found.weights_file.warn_if_unfinished()
    sides = ("",) if found.tokenizers.shared else ("-source", "-target")
    files = {side.lstrip("-") or "shared": {"file": f"tokenizer{side}.json"} for side in sides}
    values = found.recipe.model_dump(mode="json") | {"start": None, "tokenizer": files}
    recipe = parse_recipe(values, str(source))
    written = json.loads((source / CONFIG).read_text(encoding="utf-8"))
    about = {key: value for key, value in written.items() if key not in OF_WEIGHTS}
    with atomic_folder(run) as aside:
        save_tokenizers(aside, found.tokenizers)
        copy_language_profiles(source, aside)
        save_config(aside, recipe, found.tokenizers, **about)
        (aside / RECIPE).write_text(dump_yaml(recipe), encoding="utf-8")
        save_weights(aside / WEIGHTS, found.weights)
    return run

"""Folders of transformers: config.json and weights, read from safetensors only, and written completely or not at all."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from qkv.base.errors import CheckpointError, ConfigError
from qkv.base.files import atomic_folder
from qkv.interop.huggingface.options import CONFIG

WEIGHTS, INDEX, PICKLE = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"


@contextlib.contextmanager
def prefix_errors(folder: Path) -> Iterator[None]:
    """Put the name of the folder before the message of an error."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{folder}: {error}") from None
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: {error}") from None


def read_tensors(folder: Path, config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Read the weights in a checkpoint's folder, from one file or from several that an index lists."""
    paths = [folder / WEIGHTS]
    if not paths[0].exists() and (folder / INDEX).exists():
        files = read_json(folder / INDEX).get("weight_map")
        if not isinstance(files, dict) or any(Path(str(name)).name != name for name in files.values()):
            raise CheckpointError(f"{folder / INDEX}: no list of files in this folder; download the checkpoint again")
        paths = [folder / name for name in sorted(set(files.values()))]
    elif not paths[0].exists():
        if (folder / PICKLE).exists() or (folder / f"{PICKLE}.index.json").exists():
            name = (config.get("architectures") or ["AutoModel"])[0]
            raise CheckpointError(
                f"{folder}: {PICKLE} is a pickle, which can run any code when it is read; if you trust it, convert it with "
                f"python -c \"import transformers as t; t.{name}.from_pretrained('{folder}').save_pretrained('{folder}')\""
            )
        raise CheckpointError(f"{folder}: no {WEIGHTS} there")
    weights: dict[str, Tensor] = {}
    for path in paths:
        try:
            weights |= load_file(path)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{path}: not a readable safetensors file ({error}); download it again") from None
    return weights


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file of keys and values from a checkpoint's folder."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path.parent}: no {path.name} there; give a folder with a checkpoint of transformers") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not readable ({error})") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path}: expected keys and values, got {type(values).__name__}")
    return values


def write_folder(
    folder: Path, config: Mapping[str, Any], weights: dict[str, Tensor], files: Mapping[str, str] | None = None
) -> None:
    """Write a folder that `from_pretrained` loads, replacing an older one; `files` are further text files by name."""
    with atomic_folder(folder) as aside:
        save_file(weights, aside / WEIGHTS, metadata={"format": "pt"})
        for name, text in {CONFIG: json.dumps(config, indent=2) + "\n", **(files or {})}.items():
            (aside / name).parent.mkdir(exist_ok=True)
            (aside / name).write_text(text, encoding="utf-8")

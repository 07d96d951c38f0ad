"""Folders of Hugging Face transformers: config.json and the weights beside it, read from safetensors only, and written whole."""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from qkv.base.errors import CheckpointError, ConfigError
from qkv.base.files import atomic_folder

CONFIG, WEIGHTS, INDEX, PICKLE = "config.json", "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"


def kind_in(folder: Path) -> Any:
    """What config.json says the model is."""
    return _read_json(folder / CONFIG).get("model_type")


def read_folder(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """config.json, and the weights beside it."""
    config = _read_json(folder / CONFIG)
    return config, _read_weights(folder, config)


@contextlib.contextmanager
def told_of(folder: Path) -> Iterator[None]:
    """Begin what is said of a mistake with the name of the folder that it is in."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{folder}: {error}") from None
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: {error}") from None


def _read_weights(folder: Path, config: Mapping[str, Any]) -> dict[str, Tensor]:
    if (folder / WEIGHTS).exists():
        return _read_tensors([folder / WEIGHTS])
    if (folder / INDEX).exists():
        placed = _read_json(folder / INDEX).get("weight_map")
        if not isinstance(placed, dict) or any(Path(str(name)).name != name for name in placed.values()):
            raise CheckpointError(f"{folder / INDEX}: no list of files in this folder; download the checkpoint again")
        return _read_tensors(folder / name for name in sorted(set(placed.values())))
    if (folder / PICKLE).exists() or (folder / f"{PICKLE}.index.json").exists():
        name = (config.get("architectures") or ["AutoModel"])[0]
        raise CheckpointError(
            f"{folder}: {PICKLE} is a pickle, which can run any code when it is read; if you trust it, convert it with "
            f"python -c \"import transformers as t; t.{name}.from_pretrained('{folder}').save_pretrained('{folder}')\""
        )
    raise CheckpointError(f"{folder}: no {WEIGHTS} there")


def _read_tensors(paths: Iterable[Path]) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}
    for path in paths:
        try:
            weights |= load_file(path)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{path}: not a readable safetensors file ({error}); download it again") from None
    return weights


def _read_json(path: Path) -> dict[str, Any]:
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
    folder: Path, config: Mapping[str, Any], weights: dict[str, Tensor], beside: Mapping[str, str] | None = None
) -> None:
    """Write a folder that `from_pretrained` loads, in place of an older one; `beside` are texts to add."""
    with atomic_folder(folder) as aside:
        save_file(weights, aside / WEIGHTS, metadata={"format": "pt"})
        for name, text in {CONFIG: json.dumps(config, indent=2) + "\n", **(beside or {})}.items():
            (aside / name).parent.mkdir(exist_ok=True)
            (aside / name).write_text(text, encoding="utf-8")

"""Encoders and GPTs as checkpoints of transformers and back, without a tokenizer and a run's folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from qkv.folder.networks import SavedNetwork
from qkv.interop.huggingface.encoder import EncoderFamily
from qkv.interop.huggingface.folder import prefix_errors, read_json, read_tensors, write_folder
from qkv.interop.huggingface.runs import BY_KIND, family_of
from qkv.models.albert import Albert, AlbertConfig
from qkv.models.bert import Bert, BertConfig
from qkv.models.electra import ElectraConfig, ElectraEncoder
from qkv.models.ernie import Ernie, ErnieConfig

ENCODERS: dict[str, tuple[Any, Any]] = {
    "bert": (BertConfig, Bert),
    "albert": (AlbertConfig, Albert),
    "electra": (ElectraConfig, ElectraEncoder),
    "ernie": (ErnieConfig, Ernie),
}


def from_huggingface(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> SavedNetwork:
    family = family_of(Path("hf"), dict(config))
    assert isinstance(family, EncoderFamily)
    return family.read_network(config, weights)


def to_huggingface(network: SavedNetwork) -> tuple[dict[str, Any], dict[str, Tensor]]:
    family = BY_KIND[network.config.kind]
    assert isinstance(family, EncoderFamily)
    return family.write_network(network)


def read_huggingface(folder: Path) -> SavedNetwork:
    config = read_json(folder / "config.json")
    family = family_of(folder, config)
    assert isinstance(family, EncoderFamily)
    with prefix_errors(folder):
        return family.read_network(config, read_tensors(folder, config))


def write_huggingface(network: SavedNetwork, folder: Path, files: Mapping[str, str] | None = None) -> None:
    write_folder(folder, *to_huggingface(network), files)

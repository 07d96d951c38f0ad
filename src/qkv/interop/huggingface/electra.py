"""ELECTRA from and to transformers: one of its two networks, the discriminator or the generator."""

from collections.abc import Iterator
from typing import Any, ClassVar

from torch import Tensor

from qkv.base.errors import ConfigError
from qkv.folder.networks import SavedNetwork
from qkv.interop.huggingface.bert import OPTIONS, BertFamily
from qkv.interop.huggingface.options import Options
from qkv.models.electra import ElectraConfig
from qkv.parts.encoder import EncoderConfig


class ElectraFamily(BertFamily):
    """ELECTRA (Clark et al. 2020)."""

    kind: ClassVar[str] = "electra"
    model_types: ClassVar[tuple[str, ...]] = ("electra",)
    pretrained_for: ClassVar[str] = "replaced"
    config: ClassVar[type[EncoderConfig]] = ElectraConfig
    output_bias: ClassVar[str] = "generator_lm_head"
    options: ClassVar[Options] = OPTIONS | {
        "width": ("hidden_size", 256),
        "feedforward": ("intermediate_size", 1024),
        "heads": ("num_attention_heads", 4),
        "embedding_width": ("embedding_size", 128),
    }

    def write_network(self, network: SavedNetwork) -> tuple[dict[str, Any], dict[str, Tensor]]:
        if "sentence_task" in network.weights:
            raise ConfigError("transformers' electra has no head for a sentence task; leave it out")
        return super().write_network(network)

    def embedding_modules(self, c: Any) -> Iterator[tuple[str, ...]]:
        yield from super().embedding_modules(c)
        yield "projection", "embeddings_project"

    def head_modules(self) -> Iterator[tuple[str, str, str]]:
        yield "tags", "output", "classifier"
        yield "span", "output", "qa_outputs"
        yield "masked", "dense", "generator_predictions.dense"
        yield "masked", "norm", "generator_predictions.LayerNorm"
        yield "replaced", "dense", "discriminator_predictions.dense"
        yield "replaced", "output", "discriminator_predictions.dense_prediction"
        yield "pooler", "dense", "classifier.dense"
        yield "classes", "output", "classifier.out_proj"

"""ALBERT from and to transformers, where layers are shared in groups of whole layers, or not at all."""

from collections.abc import Iterator
from typing import Any, ClassVar

from qkv.interop.huggingface.bert import OPTIONS, BertFamily
from qkv.interop.huggingface.options import Options
from qkv.models.albert import AlbertConfig
from qkv.parts.encoder import EncoderConfig


class AlbertFamily(BertFamily):
    """ALBERT (Lan et al. 2020)."""

    kind: ClassVar[str] = "albert"
    model_types: ClassVar[tuple[str, ...]] = ("albert",)
    config: ClassVar[type[EncoderConfig]] = AlbertConfig
    output_bias: ClassVar[str] = "predictions"
    options: ClassVar[Options] = OPTIONS | {
        "width": ("hidden_size", 4096),
        "feedforward": ("intermediate_size", 16384),
        "heads": ("num_attention_heads", 64),
        "dropout": ("hidden_dropout_prob", 0.0),
        "activation": ("hidden_act", "gelu_new"),
        "embedding_width": ("embedding_size", 128),
        "groups": ("num_hidden_groups", 1),
    }

    def write_more(self, c: AlbertConfig) -> dict[str, Any]:
        groups = c.groups if c.sharing == "all" else c.layers
        return {"num_hidden_groups": groups, "inner_group_num": 1, "classifier_dropout_prob": c.dropout}

    def embedding_modules(self, c: Any) -> Iterator[tuple[str, ...]]:
        yield from super().embedding_modules(c)
        yield "projection", "encoder.embedding_hidden_mapping_in"

    def layer_modules(self, c: AlbertConfig) -> Iterator[tuple[str, ...]]:
        # Where we share one half of each layer, every layer of theirs gets a copy of it.
        groups = c.groups if c.sharing == "all" else c.layers
        for number in range(groups):
            shared = number * c.groups // groups  # the sub-layer that this group shares
            attention = f"attention_blocks.{shared if c.sharing in ('all', 'attention') else number}."
            feed = f"feedforward_blocks.{shared if c.sharing in ('all', 'ffn') else number}."
            theirs = f"encoder.albert_layer_groups.{number}.albert_layers.0."
            yield attention + "attention.qkv", *(f"{theirs}attention.{name}" for name in ("query", "key", "value"))
            yield attention + "attention.out", theirs + "attention.dense"
            yield attention + "around.norm", theirs + "attention.LayerNorm"
            yield feed + "feedforward.up", theirs + "ffn"
            yield feed + "feedforward.down", theirs + "ffn_output"
            yield feed + "around.norm", theirs + "full_layer_layer_norm"

    def head_modules(self) -> Iterator[tuple[str, str, str]]:
        yield "tags", "output", "classifier"
        yield "span", "output", "qa_outputs"
        yield "classes", "output", "classifier"
        yield "masked", "dense", "predictions.dense"
        yield "masked", "norm", "predictions.LayerNorm"
        yield "pooler", "dense", "albert.pooler"
        yield "sentence_task", "output", "sop_classifier.classifier"

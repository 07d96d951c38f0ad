"""What our weights and options are called in Hugging Face transformers: tables, read in both directions.

A weight of ours stands for one of theirs, or for several stacked: they keep query, key and value apart.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from qkv.models.albert import Albert, AlbertConfig
from qkv.models.bert import Bert, BertConfig
from qkv.models.electra import ElectraConfig, ElectraEncoder
from qkv.models.ernie import Ernie, ErnieConfig
from qkv.parts.encoder import Encoder, EncoderConfig

ENCODERS: dict[str, tuple[type[EncoderConfig], type[Encoder]]] = {
    "bert": (BertConfig, Bert),
    "albert": (AlbertConfig, Albert),
    "electra": (ElectraConfig, ElectraEncoder),
    "ernie": (ErnieConfig, Ernie),
}

# Options: ours, theirs, and what theirs is where a config.json does not say.
COMMON: dict[str, tuple[str, Any]] = {
    "width": ("hidden_size", 768),
    "feedforward": ("intermediate_size", 3072),
    "heads": ("num_attention_heads", 12),
    "layers": ("num_hidden_layers", 12),
    "dropout": ("hidden_dropout_prob", 0.1),
    "activation": ("hidden_act", "gelu"),
    "max_positions": ("max_position_embeddings", 512),
    "segments": ("type_vocab_size", 2),
    "epsilon": ("layer_norm_eps", 1e-12),
}
OPTIONS: dict[str, dict[str, tuple[str, Any]]] = {
    "bert": COMMON,
    "albert": COMMON
    | {
        "width": ("hidden_size", 4096),
        "feedforward": ("intermediate_size", 16384),
        "heads": ("num_attention_heads", 64),
        "dropout": ("hidden_dropout_prob", 0.0),
        "activation": ("hidden_act", "gelu_new"),
        "embedding_width": ("embedding_size", 128),
        "groups": ("num_hidden_groups", 1),
    },
    "electra": COMMON
    | {
        "width": ("hidden_size", 256),
        "feedforward": ("intermediate_size", 1024),
        "heads": ("num_attention_heads", 4),
        "embedding_width": ("embedding_size", 128),
    },
    "ernie": COMMON | {"task_types": ("task_type_vocab_size", 3)},
}
ACTIVATION = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_python_tanh": "gelu-tanh",
    "relu": "relu",
    "tanh": "tanh",
}
# Options that we have no counterpart of, and the one value that is as if they were not there.
WITHOUT: dict[str, Any] = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "inner_group_num": 1,
    "num_memory_blocks": 0,
    "pruned_heads": {},
}

# The class of transformers for the heads a model has, by the end of its name; the first that fits is written.
KINDS: list[tuple[str, tuple[str, ...]]] = [
    ("ForSequenceClassification", ("classes",)),
    ("ForTokenClassification", ("tags",)),
    ("ForQuestionAnswering", ("span",)),
    ("ForPreTraining", ("replaced",)),
    ("ForPreTraining", ("masked", "relation")),
    ("ForNextSentencePrediction", ("relation",)),
    ("ForMaskedLM", ("masked",)),
    ("Model", ()),
]


# Weights of theirs that say nothing new: numbers of places, the output that is the word embedding, tasks that are not used.
NOTHING_NEW = (
    "position_ids",
    "token_type_ids",
    "decoder.weight",
    "decoder.bias",
    "lm_head.weight",
    "task_type_embeddings.weight",
)


class Pair(NamedTuple):
    """A module of ours, or a weight, and the one of theirs that it is; several of theirs are stacked in ours."""

    part: str  # the encoder, or one of its heads
    ours: str
    theirs: tuple[str, ...]


def pairs(c: EncoderConfig) -> Iterator[Pair]:
    """All that a model of this shape may consist of, encoder and heads; theirs begin with the kind of the model."""
    kind = c.kind
    for ours, theirs in _embedding(c, kind):
        yield Pair("encoder", ours, (f"{kind}.{theirs}",))
    layers = _albert_layers(c) if isinstance(c, AlbertConfig) else _bert_layers(c)
    for ours, *found in layers:
        yield Pair("encoder", ours, tuple(f"{kind}.encoder.{theirs}" for theirs in found))
    for part, ours, theirs in _heads(kind):
        yield Pair(part, ours, (theirs,))


def _embedding(c: EncoderConfig, kind: str) -> Iterator[tuple[str, str]]:
    yield "embedding.words", "embeddings.word_embeddings"
    yield "embedding.positions.table", "embeddings.position_embeddings"
    yield "embedding.segments", "embeddings.token_type_embeddings"
    if isinstance(c, ErnieConfig) and c.task_types:
        yield "embedding.tasks", "embeddings.task_type_embeddings"
    yield "embedding.norm", "embeddings.LayerNorm"
    yield "projection", "encoder.embedding_hidden_mapping_in" if kind == "albert" else "embeddings_project"


def _bert_layers(c: EncoderConfig) -> Iterator[tuple[str, ...]]:
    for number in range(c.layers):
        ours, theirs = f"layers.{number}.", f"layer.{number}."
        yield ours + "attention.qkv", *(f"{theirs}attention.self.{name}" for name in ("query", "key", "value"))
        yield ours + "attention.out", theirs + "attention.output.dense"
        yield ours + "around_attention.norm", theirs + "attention.output.LayerNorm"
        yield ours + "feed.up", theirs + "intermediate.dense"
        yield ours + "feed.down", theirs + "output.dense"
        yield ours + "around_feed.norm", theirs + "output.LayerNorm"


def _albert_layers(c: AlbertConfig) -> Iterator[tuple[str, ...]]:
    """They share whole layers or nothing: where we share a half of each layer, every one of theirs gets a copy of it."""
    groups = c.groups if c.sharing == "all" else c.layers
    for number in range(groups):
        one = number * c.groups // groups  # the sub-layer that is shared in this group
        attention = f"attentions.{one if c.sharing in ('all', 'attention') else number}."
        feed = f"feeds.{one if c.sharing in ('all', 'ffn') else number}."
        theirs = f"albert_layer_groups.{number}.albert_layers.0."
        yield attention + "attention.qkv", *(f"{theirs}attention.{name}" for name in ("query", "key", "value"))
        yield attention + "attention.out", theirs + "attention.dense"
        yield attention + "around.norm", theirs + "attention.LayerNorm"
        yield feed + "feed.up", theirs + "ffn"
        yield feed + "feed.down", theirs + "ffn_output"
        yield feed + "around.norm", theirs + "full_layer_layer_norm"


def _heads(kind: str) -> Iterator[tuple[str, str, str]]:
    yield "tags", "output", "classifier"
    yield "span", "output", "qa_outputs"
    if kind == "electra":
        yield "masked", "dense", "generator_predictions.dense"
        yield "masked", "norm", "generator_predictions.LayerNorm"
        yield "masked", "bias", "generator_lm_head.bias"
        yield "replaced", "dense", "discriminator_predictions.dense"
        yield "replaced", "output", "discriminator_predictions.dense_prediction"
        yield "pooler", "dense", "classifier.dense"
        yield "classes", "output", "classifier.out_proj"
        return
    yield "classes", "output", "classifier"
    if kind == "albert":
        yield "masked", "dense", "predictions.dense"
        yield "masked", "norm", "predictions.LayerNorm"
        yield "masked", "bias", "predictions.bias"
        yield "pooler", "dense", "albert.pooler"
        yield "relation", "output", "sop_classifier.classifier"
    else:
        yield "masked", "dense", "cls.predictions.transform.dense"
        yield "masked", "norm", "cls.predictions.transform.LayerNorm"
        yield "masked", "bias", "cls.predictions.bias"
        yield "pooler", "dense", f"{kind}.pooler.dense"
        yield "relation", "output", "cls.seq_relationship"

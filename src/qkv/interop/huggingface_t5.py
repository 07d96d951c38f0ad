"""T5 to and from Hugging Face transformers, both versions.

Theirs has query weights that are smaller by the square root of a head's width, and embeddings that are larger by that of the
model's (see models/t5.py). Whether their output is the embedding is told by the weights, whether it is scaled by the config: the
released checkpoints of version 1.1 say `tie_word_embeddings: false` and mean both. What is not carried over: dropout inside
attention and feed-forward networks, which theirs has wherever it has any.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from qkv.base.config import parse
from qkv.base.errors import CheckpointError
from qkv.interop.huggingface_checks import activation_of, check_class, check_shape, weight_in
from qkv.models.t5 import T5, T5Config

KIND = "t5"  # their model_type
CLASSES = ("T5ForConditionalGeneration", "T5WithLMHeadModel")  # that have nothing beside what ours has; the second is an old name
# Options: ours, theirs, and what theirs is where a config.json does not say.
OPTIONS: dict[str, tuple[str, Any]] = {
    "width": ("d_model", 512),
    "feedforward": ("d_ff", 2048),
    "heads": ("num_heads", 8),
    "head_width": ("d_kv", 64),
    "encoder_layers": ("num_layers", 6),
    "decoder_layers": ("num_decoder_layers", None),
    "dropout": ("dropout_rate", 0.1),
    "activation": ("feed_forward_proj", "relu"),
    "buckets": ("relative_attention_num_buckets", 32),
    "max_distance": ("relative_attention_max_distance", 128),
    "epsilon": ("layer_norm_epsilon", 1e-6),
}
ACTIVATION = {"relu": "relu", "gelu": "gelu", "gated-gelu": "geglu", "gated-silu": "swiglu"}
WORDS, OUTPUT = "shared.weight", "lm_head.weight"
# Copies of the word embedding, and a table that the authors' code made for cross-attention, where nothing reads it.
NOTHING_NEW = ("embed_tokens.weight", "EncDecAttention.relative_attention_bias.weight")
Names = tuple[str, tuple[str, ...]]  # a weight of ours, and those of theirs that are stacked in it


def t5_from(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> tuple[T5Config, dict[str, Tensor]]:
    """What a config.json and the weights beside it are here."""
    shape = _shape_from(config)
    words = weight_in(weights, next((name for name in (WORDS, "encoder.embed_tokens.weight") if name in weights), WORDS))
    output = weights[OUTPUT].float() if OUTPUT in weights else words
    scaled = config.get("scale_decoder_outputs", config.get("tie_word_embeddings", True))
    output = output * shape["width"] ** -0.5 if scaled else output
    tied = torch.equal(output, words * shape["width"] ** -0.5)
    c = parse(T5Config, {**shape, "tied": "all" if tied else "inputs"}, "config.json")
    found = {"target_embedding.weight": words * c.width**-0.5, "output.weight": output}
    used = {WORDS, OUTPUT}
    for ours, theirs in _names(c):
        used.update(theirs)
        pieces = [weight_in(weights, name) for name in theirs]
        found[ours] = torch.cat([piece * _factor(name, c) for name, piece in zip(theirs, pieces, strict=True)])
    unknown = sorted(name for name in weights.keys() - used if not name.endswith(NOTHING_NEW))
    if unknown:
        raise CheckpointError(f"{unknown[0]} and {len(unknown) - 1} more weights are none that a t5 has here")
    _check_shapes(c, found)
    return c, found if c.tied == "inputs" else {name: weight for name, weight in found.items() if name != "output.weight"}


def t5_to(c: T5Config, weights: Mapping[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """config.json and weights for transformers; weights are those of a T5 by name."""
    words = weights["target_embedding.weight"].detach().cpu()
    made = {WORDS: words * c.width**0.5}
    if c.tied == "inputs":
        made[OUTPUT] = weights["output.weight"].detach().cpu().clone()
    for ours, theirs in _names(c):
        pieces = weights[ours].detach().cpu().chunk(len(theirs))
        made |= {name: (piece / _factor(name, c)).contiguous() for name, piece in zip(theirs, pieces, strict=True)}
    options = {theirs: getattr(c, ours) for ours, (theirs, _) in OPTIONS.items()}
    options["feed_forward_proj"] = next(theirs for theirs, ours in ACTIVATION.items() if ours == c.activation)
    tied = {"tie_word_embeddings": c.tied == "all"}
    about = {"architectures": [CLASSES[0]], "model_type": KIND, "is_encoder_decoder": True, "vocab_size": len(words)}
    return {**about, **options, **tied}, made


def _shape_from(config: Mapping[str, Any]) -> dict[str, Any]:
    """The values of our config for one of theirs; what we do not have is refused."""
    check_class(config, CLASSES)
    values = {ours: config.get(theirs, usual) for ours, (theirs, usual) in OPTIONS.items()}
    values["activation"] = activation_of("feed_forward_proj", values["activation"], ACTIVATION)
    values["decoder_layers"] = values["encoder_layers"] if values["decoder_layers"] is None else values["decoder_layers"]
    return parse(T5Config, {"kind": KIND, **values}, "config.json").model_dump()


def _factor(theirs: str, c: T5Config) -> float:
    """By what our weight is larger than theirs."""
    return c.head_width**0.5 if theirs.endswith("Attention.q.weight") else 1.0


def _check_shapes(c: T5Config, found: Mapping[str, Tensor]) -> None:
    """Compare with a model of this shape, made of sizes alone."""
    words = len(found["target_embedding.weight"])
    with torch.device("meta"):
        wanted = dict(T5(c, words, words).named_parameters())
    for name, weight in wanted.items():
        check_shape(name, found[name], weight)


def _names(c: T5Config) -> Iterator[Names]:
    """All weights but those of words."""
    for ours, theirs, layers in (("encoder", "encoder", c.encoder_layers), ("decoder", "decoder", c.decoder_layers)):
        table = "relation.table" if ours == "decoder" else "source_relation.table"
        yield table, (f"{theirs}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",)
        yield f"{ours}_norm.weight", (f"{theirs}.final_layer_norm.weight",)
        for number in range(layers):
            yield from _layer(c, f"{ours}.{number}.", f"{theirs}.block.{number}.layer.", crosses=ours == "decoder")


def _layer(c: T5Config, ours: str, theirs: str, crosses: bool) -> Iterator[Names]:
    yield ours + "attention.qkv.weight", tuple(f"{theirs}0.SelfAttention.{name}.weight" for name in "qkv")
    yield ours + "attention.out.weight", (theirs + "0.SelfAttention.o.weight",)
    yield ours + "around_attention.norm.weight", (theirs + "0.layer_norm.weight",)
    if crosses:
        yield ours + "cross.q.weight", (theirs + "1.EncDecAttention.q.weight",)
        yield ours + "cross.kv.weight", tuple(f"{theirs}1.EncDecAttention.{name}.weight" for name in "kv")
        yield ours + "cross.out.weight", (theirs + "1.EncDecAttention.o.weight",)
        yield ours + "around_cross.norm.weight", (theirs + "1.layer_norm.weight",)
    feed = f"{theirs}{2 if crosses else 1}."
    up = ("wi_0", "wi_1") if c.activation in ("geglu", "swiglu") else ("wi",)
    yield (
        ours + "feed.up.weight",
        tuple(f"{feed}DenseReluDense.{name}.weight" for name in up),
    )
    yield ours + "feed.down.weight", (feed + "DenseReluDense.wo.weight",)
    yield ours + "around_feed.norm.weight", (feed + "layer_norm.weight",)

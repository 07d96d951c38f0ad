"""The Transformer to and from Hugging Face transformers, where it is Marian, after the toolkit of Junczys-Dowmunt et al. 2018.

Theirs has all sines of a place before all cosines, ours has them side by side, as in the paper. Nothing in the network depends
on the order of the width's dimensions: embeddings, norms and residuals treat them alike, and each matrix says itself what goes
where. So weights are put in the other order wherever they meet the width, and both compute the same. What is not carried over:
the dropout of attention probabilities, of activations and of whole layers.
D width.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from qkv.base.config import parse
from qkv.base.errors import CheckpointError, ConfigError
from qkv.interop.huggingface_checks import activation_of, check_class, check_shape, weight_in
from qkv.models.transformer import Transformer, TransformerConfig
from qkv.parts.positions import Sinusoidal

KIND = "marian"  # their model_type
CLASSES = ("MarianMTModel",)  # that have nothing beside what ours has
# Options: ours, theirs, and what theirs is where a config.json does not say.
OPTIONS: dict[str, tuple[str, Any]] = {
    "width": ("d_model", 1024),
    "feedforward": ("encoder_ffn_dim", 4096),
    "heads": ("encoder_attention_heads", 16),
    "encoder_layers": ("encoder_layers", 12),
    "decoder_layers": ("decoder_layers", 12),
    "dropout": ("dropout", 0.1),
    "activation": ("activation_function", "gelu"),
}
BOTH = ("ffn_dim", "attention_heads")  # what theirs may have otherwise in the decoder
ACTIVATION = {"relu": "relu", "gelu": "gelu", "gelu_python": "gelu", "silu": "silu", "swish": "silu"}
SHARED, OUTPUT, BIAS = "model.shared.weight", "lm_head.weight", "final_logits_bias"
SOURCE, TARGET = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
SINES = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
NEVER = -1e4  # added to the score of a word that is not to be said
WORDS = ("target_embedding.weight", "source_embedding.weight", "output.weight")


class Names(NamedTuple):
    """A module of ours, and those of theirs that are stacked in it."""

    ours: str
    theirs: tuple[str, ...]
    writes: bool  # whether the width is what it gives, not what it is given


def marian_from(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> tuple[TransformerConfig, dict[str, Tensor]]:
    """What a config.json and the weights beside it are here."""
    shape = _shape_from(config)
    found = _words_from(config, weights)
    width = found["target_embedding.weight"].size(1)
    _check_sines(weights, width)
    bias = weights.get(BIAS)
    biased = bias is not None and bool(bias.any())
    if bias is not None and biased:
        found["output.bias"] = bias.float().flatten()
    c = parse(TransformerConfig, {**shape, "tied": _tied(found), "output_bias": biased}, "config.json")
    used = {SHARED, SOURCE, TARGET, OUTPUT, BIAS, *SINES}
    for name, theirs, axis in _weights(c):
        used.update(theirs)
        found[name] = _turned(torch.cat([weight_in(weights, one) for one in theirs]), axis, _order(width))
    unknown = sorted(weights.keys() - used)
    if unknown:
        raise CheckpointError(f"{unknown[0]} and {len(unknown) - 1} more weights are none that a marian has here")
    return c, _checked(c, found)


def marian_to(c: TransformerConfig, weights: Mapping[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """config.json and weights for transformers; weights are those of a Transformer by name."""
    _check_known(c)
    back = _order(c.width).argsort()
    words = {name: _turned(weights[name].detach().cpu(), 1, back) for name in WORDS if name in weights}
    target = words["target_embedding.weight"]
    made = {SHARED: target} if c.tied == "all" else {TARGET: target, SOURCE: words["source_embedding.weight"]}
    if c.tied == "none":
        made[OUTPUT] = words["output.weight"]
    made[BIAS] = weights["output.bias"].detach().cpu()[None] if c.output_bias else torch.zeros(1, len(target))
    for name, theirs, axis in _weights(c):
        pieces = _turned(weights[name].detach().cpu(), axis, back).chunk(len(theirs))
        made |= dict(zip(theirs, pieces, strict=True))
    options = {theirs: getattr(c, ours) for ours, (theirs, _) in OPTIONS.items()}
    options |= {f"decoder_{end}": options[f"encoder_{end}"] for end in BOTH}
    about = {"architectures": [CLASSES[0]], "model_type": KIND, "is_encoder_decoder": True, "scale_embedding": True}
    sizes = {"vocab_size": len(made.get(SOURCE, target)), "decoder_vocab_size": len(target)}
    tied = {"share_encoder_decoder_embeddings": c.tied == "all", "tie_word_embeddings": c.tied != "none"}
    return {**about, **options, **sizes, **tied}, {name: weight.contiguous().clone() for name, weight in made.items()}


def with_unknown(
    c: TransformerConfig, weights: Mapping[str, Tensor], words: tuple[int, int], unk: tuple[int, int]
) -> tuple[TransformerConfig, dict[str, Tensor]]:
    """The same model with so many words of source and target: those it gains it reads as the unknown one and never says."""
    made = dict(weights)
    for name in WORDS:
        side = 0 if name.startswith("source") else 1
        if name in made:
            table = made[name]
            made[name] = torch.cat([table, table[unk[side]].expand(words[side] - len(table), -1)])
    known = len(weights["target_embedding.weight"])
    if words[1] > known:
        bias = made.get("output.bias", torch.zeros(known))
        made["output.bias"] = torch.cat([bias, torch.full((words[1] - known,), NEVER)])
    return c.model_copy(update={"output_bias": "output.bias" in made}), made


def words_in(weights: Mapping[str, Tensor]) -> tuple[int, int]:
    """The sizes of the vocabularies of source and target."""
    target = weights["target_embedding.weight"]
    return len(weights.get("source_embedding.weight", target)), len(target)


def _shape_from(config: Mapping[str, Any]) -> dict[str, Any]:
    """The values of our config for one of theirs; what we do not have is refused."""
    check_class(config, CLASSES)
    values = {ours: config.get(theirs, usual) for ours, (theirs, usual) in OPTIONS.items()}
    for (theirs, usual), end in zip((OPTIONS["feedforward"], OPTIONS["heads"]), BOTH, strict=True):
        if config.get(f"decoder_{end}", usual) != config.get(theirs, usual):
            raise ConfigError(f"decoder_{end} in config.json is not {theirs}; qkv's transformer has one number for both sides")
    values["activation"] = activation_of("activation_function", values["activation"], ACTIVATION)
    return parse(TransformerConfig, {"kind": "transformer", **values}, "config.json").model_dump(mode="json")


def _words_from(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Embeddings and output; ours are multiplied by the square root of D on the way in, theirs perhaps."""

    def first(*names: str) -> Tensor:
        return weight_in(weights, next((name for name in names if name in weights), names[0]))

    source, target = first(SOURCE, SHARED), first(TARGET, SHARED, OUTPUT)
    output = weights[OUTPUT].float() if OUTPUT in weights else target
    width = target.size(1)
    scale = 1.0 if config.get("scale_embedding", False) else width**-0.5
    tables = {"target_embedding.weight": target * scale, "source_embedding.weight": source * scale, "output.weight": output}
    return {name: _turned(table, 1, _order(width)) for name, table in tables.items()}


def _tied(found: Mapping[str, Tensor]) -> str:
    """Which of the tables of words are one, by what is in them."""
    target, source, output = (found[name] for name in WORDS)
    return "none" if not torch.equal(target, output) else "all" if torch.equal(target, source) else "target"


def _checked(c: TransformerConfig, found: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights that such a model has, compared with one of this shape, made of sizes alone."""
    with torch.device("meta"):
        wanted = dict(Transformer(c, *(len(found[name]) for name in WORDS[1::-1])).named_parameters())
    for name, weight in wanted.items():
        check_shape(name, found[name], weight)
    return {name: found[name] for name in wanted}


def _check_sines(weights: Mapping[str, Tensor], width: int) -> None:
    """Refuse places that were learned, of which a checkpoint may have a table all the same."""
    for name in SINES:
        if name in weights:
            table = _turned(weights[name].float(), 1, _order(width))
            if not torch.allclose(table, Sinusoidal(width)(torch.arange(len(table))[None])[0], atol=1e-3):
                raise CheckpointError(f"{name} holds other positions than sines and cosines; qkv's marian has no others")


def _check_known(c: TransformerConfig) -> None:
    """Refuse what transformers' Marian has not."""
    wanted = {"norm": "post", "positions": "sinusoidal", "attention": "full"}
    has = {"norm": c.norm, "positions": c.positions, "attention": c.attention.kind}
    for key, value in wanted.items():
        if has[key] != value:
            told = f"model.{key}={has[key]} cannot be written for transformers, whose {KIND} has {value} alone"
            raise ConfigError(f"{told}; use onnx, or qkv's own engine")
    if c.activation not in ACTIVATION.values():
        raise ConfigError(
            f"model.activation={c.activation} cannot be written for transformers, whose {KIND} has relu, gelu and silu; "
            "use onnx, or qkv's own engine"
        )


def _order(width: int) -> Tensor:
    """Which dimension of theirs each of ours is: theirs has the sines, then the cosines. -> (D,)."""
    position = torch.arange(width)
    return position // 2 + position % 2 * ((width + 1) // 2)


def _turned(weight: Tensor, axis: int | None, order: Tensor) -> Tensor:
    """With the width in another order; a weight of another shape is left to be refused by that."""
    return weight if axis is None or weight.shape[axis : axis + 1] != order.shape else weight.index_select(axis, order)


def _weights(c: TransformerConfig) -> Iterator[tuple[str, tuple[str, ...], int | None]]:
    """All weights of layers: ours, theirs that are stacked in it, and which axis of it is the width, if one is."""
    for ours, theirs, writes in _names(c):
        for end, axis in ((".weight", 0 if writes else 1), (".bias", 0 if writes else None)):
            yield ours + end, tuple(name + end for name in theirs), axis


def _names(c: TransformerConfig) -> Iterator[Names]:
    for side, layers in (("encoder", c.encoder_layers), ("decoder", c.decoder_layers)):
        for number in range(layers):
            ours, theirs = f"{side}.{number}.", f"model.{side}.layers.{number}."
            yield Names(ours + "attention.qkv", tuple(f"{theirs}self_attn.{name}_proj" for name in "qkv"), False)
            yield Names(ours + "attention.out", (theirs + "self_attn.out_proj",), True)
            yield Names(ours + "around_attention.norm", (theirs + "self_attn_layer_norm",), True)
            if side == "decoder":
                yield Names(ours + "cross.q", (theirs + "encoder_attn.q_proj",), False)
                yield Names(ours + "cross.kv", tuple(f"{theirs}encoder_attn.{name}_proj" for name in "kv"), False)
                yield Names(ours + "cross.out", (theirs + "encoder_attn.out_proj",), True)
                yield Names(ours + "around_cross.norm", (theirs + "encoder_attn_layer_norm",), True)
            yield Names(ours + "feed.up", (theirs + "fc1",), False)
            yield Names(ours + "feed.down", (theirs + "fc2",), True)
            yield Names(ours + "around_feed.norm", (theirs + "final_layer_norm",), True)

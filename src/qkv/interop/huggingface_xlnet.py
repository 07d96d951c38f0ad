"""XLNets to and from Hugging Face transformers, with their heads.

Their projections have a dimension for heads, (D, H, K). What is not carried over: the length of the memory, which is no part of a
model here, and the dropout of classifiers.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from qkv.base.config import parse
from qkv.base.errors import CheckpointError
from qkv.interop.huggingface_checks import activation_of, check_class, check_options
from qkv.interop.huggingface_names import ACTIVATION
from qkv.models.xlnet import XlnetConfig
from qkv.parts.heads import ENCODER

KIND = "xlnet"
# Options: ours, theirs, and what theirs is where a config.json does not say.
OPTIONS: dict[str, tuple[str, Any]] = {
    "width": ("d_model", 1024),
    "feedforward": ("d_inner", 4096),
    "heads": ("n_head", 16),
    "layers": ("n_layer", 24),
    "dropout": ("dropout", 0.1),
    "activation": ("ff_activation", "gelu"),
    "epsilon": ("layer_norm_eps", 1e-12),
}
# Options that we have no counterpart of, and the one value that is as if they were not there.
WITHOUT: dict[str, Any] = {
    "attn_type": "bi",
    "bi_data": False,
    "clamp_len": -1,
    "summary_type": "last",
    "summary_use_proj": True,
    "summary_activation": "tanh",
    "tie_word_embeddings": True,
}
# The class of transformers for the heads a model has, by the end of its name; the first that fits is written.
CLASSES: dict[str, tuple[str, ...]] = {
    "ForSequenceClassification": ("classes", "pooler"),
    "ForTokenClassification": ("tags",),
    "ForQuestionAnsweringSimple": ("span",),
    "LMHeadModel": ("words",),
    "Model": (),
}
OUTPUT = "lm_loss.weight"  # which is the word embedding


class Pair(NamedTuple):
    """A weight of ours, and what it is there: some of theirs stacked, each with its heads apart if there is a width of them."""

    part: str
    ours: str
    theirs: tuple[str, ...]
    here: Callable[[Tensor], Tensor] = lambda weight: weight
    there: Callable[[Tensor, int], Tensor] = lambda weight, heads: weight


def xlnet_from(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> tuple[XlnetConfig, dict[str, dict[str, Tensor]]]:
    """What a config.json and the weights beside it are here; heads are found by the weights that there are."""
    c = _config_from(config)
    bare = not any(name.startswith("transformer.") for name in weights)
    given = {f"transformer.{name}" if bare else name: weight.float() for name, weight in weights.items()}
    output, words = given.pop(OUTPUT, None), given.get("transformer.word_embedding.weight")
    if output is not None and words is not None and not torch.equal(output, words):
        raise CheckpointError(f"{OUTPUT} is not the word embedding; qkv's xlnet has no output weights of its own")
    found: dict[str, dict[str, Tensor]] = {ENCODER: {}}
    for part, ours, theirs, here, _ in pairs(c):
        if given.keys() >= set(theirs):
            found.setdefault(part, {})[ours] = torch.cat([here(given.pop(name)) for name in theirs])
    if given:
        raise CheckpointError(f"{min(given)} and {len(given) - 1} more weights are none that an xlnet has here")
    return c, found


def xlnet_to(c: XlnetConfig, weights: Mapping[str, Mapping[str, Tensor]]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """config.json and weights for transformers; the class is chosen by the heads there are."""
    end = next(end for end, heads in CLASSES.items() if weights.keys() >= set(heads))
    made: dict[str, Tensor] = {}
    for part, ours, theirs, _, there in pairs(c):
        weight = weights.get(part, {}).get(ours)
        if weight is not None and part in (ENCODER, *CLASSES[end]):
            pieces = weight.detach().cpu().chunk(len(theirs))
            made |= {name: there(piece, c.heads).contiguous().clone() for name, piece in zip(theirs, pieces, strict=True)}
    if end == "Model":
        made = {name.removeprefix("transformer."): weight for name, weight in made.items()}
    options = {theirs: getattr(c, ours) for ours, (theirs, _) in OPTIONS.items()}
    options["ff_activation"] = next(theirs for theirs, ours in ACTIVATION.items() if ours == c.activation)
    options |= {"d_head": c.width // c.heads, "summary_last_dropout": c.dropout, **WITHOUT}
    words = len(weights[ENCODER]["embedding.words.weight"])
    return {"architectures": [f"XLNet{end}"], "model_type": KIND, "vocab_size": words, **options}, made


def _config_from(config: Mapping[str, Any]) -> XlnetConfig:
    """Our config for one of theirs; what we do not have is refused."""
    check_options(config, WITHOUT, KIND)
    check_class(config, [f"XLNet{end}" for end in CLASSES])
    values = {ours: config.get(theirs, usual) for ours, (theirs, usual) in OPTIONS.items()}
    values["activation"] = activation_of("ff_activation", values["activation"], ACTIVATION)
    return parse(XlnetConfig, {"kind": KIND, **values}, "config.json")


def pairs(c: XlnetConfig) -> Iterator[Pair]:
    """All that a model of this shape may consist of, encoder and heads."""
    yield Pair(ENCODER, "embedding.words.weight", ("transformer.word_embedding.weight",))
    yield Pair(ENCODER, "embedding.query", ("transformer.mask_emb",), lambda w: w.flatten(), lambda w, _: w[None, None])
    for number in range(c.layers):
        yield from _layer(f"layers.{number}.", f"transformer.layer.{number}.")
    yield Pair("words", "bias", ("lm_loss.bias",))
    modules = {"pooler": "sequence_summary.summary", "classes": "logits_proj", "tags": "classifier", "span": "qa_outputs"}
    for part, theirs in modules.items():
        for end in ("weight", "bias"):
            yield Pair(part, f"{'dense' if part == 'pooler' else 'output'}.{end}", (f"{theirs}.{end}",))


def _layer(ours: str, theirs: str) -> Iterator[Pair]:
    inside = f"{theirs}rel_attn."
    for name, found in {"q": "q", "kv": "kv", "distance": "r"}.items():
        names = tuple(inside + letter for letter in found)
        yield Pair(ENCODER, f"{ours}attention.{name}.weight", names, lambda w: w.flatten(1).T, _with_heads)
    yield Pair(ENCODER, f"{ours}attention.out.weight", (f"{inside}o",), lambda w: w.flatten(1), _with_heads_of_inputs)
    vectors = {"to_content": "r_w_bias", "to_distance": "r_r_bias", "to_parts": "r_s_bias", "parts": "seg_embed"}
    for name, found in vectors.items():
        yield Pair(ENCODER, f"{ours}attention.{name}", (inside + found,))
    modules = {
        "around_attention.norm": "rel_attn.layer_norm",
        "feed.up": "ff.layer_1",
        "feed.down": "ff.layer_2",
        "around_feed.norm": "ff.layer_norm",
    }
    for name, found in modules.items():
        for end in ("weight", "bias"):
            yield Pair(ENCODER, f"{ours}{name}.{end}", (f"{theirs}{found}.{end}",))


def _with_heads(weight: Tensor, heads: int) -> Tensor:
    """(H K, D) -> (D, H, K)."""
    return weight.T.unflatten(1, (heads, -1))


def _with_heads_of_inputs(weight: Tensor, heads: int) -> Tensor:
    """(D, H K) -> (D, H, K)."""
    return weight.unflatten(1, (heads, -1))

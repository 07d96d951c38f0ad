"""GPTs to and from Hugging Face transformers: `gpt2` is ours with norms before each sub-layer, `openai-gpt` with norms after.

Their matrices lie the other way round, (inputs, outputs). What is not carried over: the dropout of attention probabilities.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from qkv.base.config import parse
from qkv.base.errors import CheckpointError, ConfigError
from qkv.interop.huggingface_checks import activation_of, check_class, check_options
from qkv.models.gpt import GptConfig

CLASSES = {"gpt2": "GPT2", "openai-gpt": "OpenAIGPT"}  # by model_type, what their names begin with
NORM = {"gpt2": "pre", "openai-gpt": "post"}
ENDS = ("LMHeadModel", "Model")  # classes that have nothing beside what ours has
# Options: ours, theirs, and what theirs is where a config.json does not say.
COMMON: dict[str, tuple[str, Any]] = {
    "width": ("n_embd", 768),
    "heads": ("n_head", 12),
    "layers": ("n_layer", 12),
    "dropout": ("resid_pdrop", 0.1),
    "epsilon": ("layer_norm_epsilon", 1e-5),
}
OPTIONS: dict[str, dict[str, tuple[str, Any]]] = {
    "gpt2": COMMON
    | {
        "feedforward": ("n_inner", None),
        "max_positions": ("n_positions", 1024),
        "activation": ("activation_function", "gelu_new"),
    },
    "openai-gpt": COMMON | {"max_positions": ("n_positions", 512), "activation": ("afn", "gelu")},
}
# What the first GPT calls gelu is the approximation by tanh.
ACTIVATION: dict[str, dict[str, str]] = {
    "gpt2": {
        "gelu_new": "gelu-tanh",
        "gelu": "gelu",
        "gelu_fast": "gelu-tanh",
        "gelu_pytorch_tanh": "gelu-tanh",
        "relu": "relu",
        "tanh": "tanh",
    },
    "openai-gpt": {"gelu": "gelu-tanh", "relu": "relu"},
}
# Options that we have no counterpart of, and the one value that is as if they were not there.
WITHOUT: dict[str, Any] = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "pruned_heads": {},
}
NOTHING_NEW = (".attn.bias", ".attn.masked_bias", "lm_head.weight")  # who may look, and the output that is the word embedding


def gpt_from(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> tuple[GptConfig, dict[str, Tensor]]:
    """What a config.json and the weights beside it are here."""
    c = _config_from(config)
    given = {name.removeprefix("transformer."): weight for name, weight in weights.items()}
    words = given.get(next(_names(c))[1] + ".weight")
    output = given.get("lm_head.weight")
    if output is not None and words is not None and not torch.equal(output, words):
        raise CheckpointError("lm_head.weight is not the word embedding; qkv's gpt has no output weights of its own")
    found: dict[str, Tensor] = {}
    used = set()
    for ours, theirs, turned in _names(c):
        for end in (".weight", ".bias"):
            if theirs + end in given:
                used.add(theirs + end)
                weight = given[theirs + end].float()
                found[ours + end] = weight.T.contiguous() if turned and end == ".weight" else weight
    unknown = sorted(name for name in given.keys() - used if not name.endswith(NOTHING_NEW))
    if unknown:
        raise CheckpointError(f"{unknown[0]} and {len(unknown) - 1} more weights are none that a gpt has here")
    return c, found


def gpt_to(c: GptConfig, weights: Mapping[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """config.json and weights for transformers."""
    kind = next(kind for kind, norm in NORM.items() if norm == c.norm)
    activation = next((theirs for theirs, ours in ACTIVATION[kind].items() if ours == c.activation), None)
    if activation is None:
        raise ConfigError(f"transformers' {kind} has no activation {c.activation}; it has {_listed(ACTIVATION[kind].values())}")
    if kind == "openai-gpt" and c.feedforward != 4 * c.width:
        raise ConfigError(f"transformers' {kind} has an inner width of 4 times the width, not {c.feedforward} for {c.width}")
    made: dict[str, Tensor] = {}
    for ours, theirs, turned in _names(c):
        for end in (".weight", ".bias"):
            weight = weights.get(ours + end)
            if weight is not None:
                weight = weight.detach().cpu()
                made[f"transformer.{theirs}{end}"] = (weight.T if turned and end == ".weight" else weight).contiguous().clone()
    options = {theirs: getattr(c, ours) for ours, (theirs, _) in OPTIONS[kind].items()}
    options |= {OPTIONS[kind]["activation"][0]: activation, "embd_pdrop": c.dropout, "attn_pdrop": 0.0}
    words = len(weights["embedding.words.weight"])
    return {"architectures": [CLASSES[kind] + ENDS[0]], "model_type": kind, "vocab_size": words, **options}, made


def _config_from(config: Mapping[str, Any]) -> GptConfig:
    """Our config for one of theirs; what we do not have is refused."""
    kind = config["model_type"]
    check_options(config, WITHOUT, "gpt")
    check_class(config, [CLASSES[kind] + end for end in ENDS])
    values = {ours: config.get(theirs, usual) for ours, (theirs, usual) in OPTIONS[kind].items()}
    values["activation"] = activation_of(OPTIONS[kind]["activation"][0], values["activation"], ACTIVATION[kind])
    if values.get("feedforward") is None and isinstance(values["width"], int):
        values["feedforward"] = 4 * values["width"]
    return parse(GptConfig, {"kind": "gpt", "norm": NORM[kind], **values}, "config.json")


def _names(c: GptConfig) -> Iterator[tuple[str, str, bool]]:
    """Modules of ours, the same of theirs, and whether its matrix lies the other way round; word embeddings first."""
    first = c.norm == "post"
    yield "embedding.words", "tokens_embed" if first else "wte", False
    yield "embedding.positions.table", "positions_embed" if first else "wpe", False
    for number in range(c.layers):
        ours, theirs = f"layers.{number}.", f"h.{number}."
        yield ours + "attention.qkv", theirs + "attn.c_attn", True
        yield ours + "attention.out", theirs + "attn.c_proj", True
        yield ours + "around_attention.norm", theirs + "ln_1", False
        yield ours + "feed.up", theirs + "mlp.c_fc", True
        yield ours + "feed.down", theirs + "mlp.c_proj", True
        yield ours + "around_feed.norm", theirs + "ln_2", False
    if not first:
        yield "norm", "ln_f", False


def _listed(names: Any) -> str:
    return ", ".join(dict.fromkeys(names))

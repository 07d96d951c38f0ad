"""GPT from and to transformers: `gpt2` is ours with norms before each sub-layer, `openai-gpt` with norms after.

Their matrices are transposed, (inputs, outputs). The dropout of attention probabilities is not carried over.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from torch import Tensor

from qkv.base.config import parse
from qkv.base.errors import ConfigError
from qkv.folder.networks import SavedNetwork
from qkv.interop.huggingface.encoder import EncoderFamily, check_tied, saved_network
from qkv.interop.huggingface.options import CONFIG, Options, check_class, check_fixed, read_options, write_options
from qkv.interop.huggingface.tokenizer import Template
from qkv.interop.huggingface.weights import WeightPair, module_pairs, read_weights, refuse_unknown, write_weights
from qkv.models.gpt import GptConfig
from qkv.parts.heads import ENCODER

CLASSES = {"gpt2": "GPT2", "openai-gpt": "OpenAIGPT"}  # by model_type, the beginning of class names
NORM = {"gpt2": "pre", "openai-gpt": "post"}
ENDS = ("LMHeadModel", "Model")  # of classes that have nothing beside what ours has
COMMON: Options = {
    "width": ("n_embd", 768),
    "heads": ("n_head", 12),
    "layers": ("n_layer", 12),
    "dropout": ("resid_pdrop", 0.1),
    "epsilon": ("layer_norm_epsilon", 1e-5),
}
OPTIONS: dict[str, Options] = {
    "gpt2": COMMON
    | {
        "feedforward": ("n_inner", None),
        "max_positions": ("n_positions", 1024),
        "activation": ("activation_function", "gelu_new"),
    },
    "openai-gpt": COMMON | {"max_positions": ("n_positions", 512), "activation": ("afn", "gelu")},
}
# The first GPT calls the approximation by tanh gelu.
ACTIVATIONS: dict[str, dict[str, str]] = {
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
# Options without a counterpart here, each with the value that changes nothing.
FIXED: dict[str, Any] = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "pruned_heads": {},
}
IGNORED = (".attn.bias", ".attn.masked_bias", "lm_head.weight")  # causal masks, and the output that is the word embedding


class GptFamily(EncoderFamily):
    """GPT (Radford et al. 2018) and GPT-2 (Radford et al. 2019)."""

    kind: ClassVar[str] = "gpt"
    model_types: ClassVar[tuple[str, ...]] = tuple(CLASSES)
    pretrained_for: ClassVar[str] = "causal"
    pretraining_length: ClassVar[int | None] = None
    template: ClassVar[Template] = "prompt"
    readme: ClassVar[str] = "gpt"

    def problem(self, c: GptConfig) -> str | None:
        model_type = _model_type(c)
        known = list(dict.fromkeys(ACTIVATIONS[model_type].values()))
        if c.activation not in known:
            return f"transformers' {model_type} has no model.activation={c.activation}, only {', '.join(known)}"
        if model_type == "openai-gpt" and c.feedforward != 4 * c.width:
            return f"transformers' {model_type} has no model.feedforward={c.feedforward}, only 4 times the width, {4 * c.width}"
        return super().problem(c)

    def read_network(self, config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> SavedNetwork:
        """Convert a config.json and the weights beside it."""
        model_type = config["model_type"]
        check_fixed(config, FIXED, self.kind)
        check_class(config, [CLASSES[model_type] + end for end in ENDS])
        values = read_options(config, OPTIONS[model_type], ACTIVATIONS[model_type])
        if values.get("feedforward") is None and isinstance(values["width"], int):
            values["feedforward"] = 4 * values["width"]
        c = parse(GptConfig, {"kind": self.kind, "norm": NORM[model_type], **values}, CONFIG)
        given = {name.removeprefix("transformer."): weight for name, weight in weights.items()}
        words = given.get("tokens_embed.weight" if c.norm == "post" else "wte.weight")
        check_tied("lm_head.weight", given.get("lm_head.weight"), words, self.kind)
        found = read_weights(given, self.pairs(c))
        refuse_unknown(given, self.kind, IGNORED)
        return saved_network(config, c, found)

    def write_network(self, network: SavedNetwork) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return config.json and weights for transformers."""
        c: Any = network.config
        self.check(c)
        if network.weights.keys() > {ENCODER}:
            raise ConfigError("transformers' GPTs have no heads such as these; export the run that this one was fine-tuned from")
        model_type, weights = _model_type(c), write_weights(network.weights, self.pairs(c))
        config = {
            "architectures": [CLASSES[model_type] + ENDS[0]],
            "model_type": model_type,
            "vocab_size": network.vocab_size,
            "embd_pdrop": c.dropout,
            "attn_pdrop": 0.0,
            **write_options(c, OPTIONS[model_type], ACTIVATIONS[model_type]),
        }
        return config, {f"transformer.{name}": weight for name, weight in weights.items()}

    def pairs(self, c: GptConfig) -> Iterator[WeightPair]:
        """Pair all weights of a model of this shape; the prefix `transformer.` is left out."""
        first = c.norm == "post"
        yield from module_pairs("embedding.token_embedding", "tokens_embed" if first else "wte", part=ENCODER)
        yield from module_pairs("embedding.positions.table", "positions_embed" if first else "wpe", part=ENCODER)
        for number in range(c.layers):
            ours, theirs = f"layers.{number}.", f"h.{number}."
            yield from _transposed(ours + "attention.qkv", theirs + "attn.c_attn")
            yield from _transposed(ours + "attention.out", theirs + "attn.c_proj")
            yield from module_pairs(ours + "around_attention.norm", theirs + "ln_1", part=ENCODER)
            yield from _transposed(ours + "feedforward.up", theirs + "mlp.c_fc")
            yield from _transposed(ours + "feedforward.down", theirs + "mlp.c_proj")
            yield from module_pairs(ours + "around_feedforward.norm", theirs + "ln_2", part=ENCODER)
        if not first:
            yield from module_pairs("norm", "ln_f", part=ENCODER)


def _model_type(c: GptConfig) -> str:
    return next(model_type for model_type, norm in NORM.items() if norm == c.norm)


def _transposed(ours: str, theirs: str) -> Iterator[WeightPair]:
    weight, bias = module_pairs(ours, theirs, part=ENCODER)
    yield weight._replace(read=lambda pieces: pieces[0].T.contiguous(), write=lambda matrix, _: [matrix.T])
    yield bias

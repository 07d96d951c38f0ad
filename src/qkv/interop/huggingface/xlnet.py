"""XLNet from and to transformers, with its heads.

Their projections have a dimension for heads, (D, H, K). The length of the memory, which is no part of a model here, and the
dropout of classifiers are not carried over.
B batch, D width, H heads, K head width.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from qkv.base.config import parse
from qkv.folder.networks import SavedNetwork
from qkv.interop.huggingface.bert import ACTIVATIONS
from qkv.interop.huggingface.encoder import EncoderFamily, check_tied, saved_network, write_label_names
from qkv.interop.huggingface.options import CONFIG, Options, check_class, check_fixed, read_options, write_options
from qkv.interop.huggingface.tokenizer import Template
from qkv.interop.huggingface.weights import WeightPair, module_pairs, read_weights, refuse_unknown, write_weights
from qkv.models.xlnet import XlnetConfig
from qkv.parts.heads import ENCODER

OPTIONS: Options = {
    "width": ("d_model", 1024),
    "feedforward": ("d_inner", 4096),
    "heads": ("n_head", 16),
    "layers": ("n_layer", 24),
    "dropout": ("dropout", 0.1),
    "activation": ("ff_activation", "gelu"),
    "epsilon": ("layer_norm_eps", 1e-12),
}
# Options without a counterpart here, each with the value that changes nothing.
FIXED: dict[str, Any] = {
    "attn_type": "bi",
    "bi_data": False,
    "clamp_len": -1,
    "summary_type": "last",
    "summary_use_proj": True,
    "summary_activation": "tanh",
    "tie_word_embeddings": True,
}
# The ends of transformers' class names, and the heads that each class has; a model is written as the first class that fits.
CLASSES: dict[str, tuple[str, ...]] = {
    "ForSequenceClassification": ("classes", "pooler"),
    "ForTokenClassification": ("tags",),
    "ForQuestionAnsweringSimple": ("span",),
    "LMHeadModel": ("language_model",),
    "Model": (),
}
OUTPUT = "lm_loss.weight"  # the word embedding again


class XlnetFamily(EncoderFamily):
    """XLNet (Yang et al. 2019)."""

    kind: ClassVar[str] = "xlnet"
    model_types: ClassVar[tuple[str, ...]] = ("xlnet",)
    pretrained_for: ClassVar[str] = "permutation"
    template: ClassVar[Template] = "xlnet"
    readme: ClassVar[str] = "xlnet"

    def problem(self, c: XlnetConfig) -> str | None:
        return None

    def read_network(self, config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> SavedNetwork:
        """Convert a config.json and the weights beside it; the weights tell which heads there are."""
        check_fixed(config, FIXED, self.kind)
        check_class(config, [f"XLNet{end}" for end in CLASSES])
        c = parse(XlnetConfig, {"kind": self.kind, **read_options(config, OPTIONS, ACTIVATIONS)}, CONFIG)
        bare = not any(name.startswith("transformer.") for name in weights)
        given = {f"transformer.{name}" if bare else name: weight for name, weight in weights.items()}
        check_tied(OUTPUT, given.pop(OUTPUT, None), given.get("transformer.word_embedding.weight"), self.kind)
        found = read_weights(given, self.pairs(c))
        refuse_unknown(given, self.kind)
        return saved_network(config, c, found)

    def write_network(self, network: SavedNetwork) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return config.json and weights for transformers; the heads choose the class."""
        c: Any = network.config
        end = next(end for end, heads in CLASSES.items() if network.weights.keys() >= set(heads))
        written = write_weights(network.weights, (pair for pair in self.pairs(c) if pair.part in (ENCODER, *CLASSES[end])))
        if end == "Model":
            written = {name.removeprefix("transformer."): weight for name, weight in written.items()}
        config = {
            "architectures": [f"XLNet{end}"],
            "model_type": self.kind,
            "vocab_size": network.vocab_size,
            **write_options(c, OPTIONS, ACTIVATIONS),
            "d_head": c.width // c.heads,
            "summary_last_dropout": c.dropout,
            **FIXED,
            **write_label_names(network),
        }
        return config, written

    def pairs(self, c: XlnetConfig) -> Iterator[WeightPair]:
        """Pair all weights that a model of this shape may have, encoder and heads."""
        yield WeightPair("embedding.token_embedding.weight", ("transformer.word_embedding.weight",), ENCODER)
        yield WeightPair(
            "embedding.query",
            ("transformer.mask_emb",),
            ENCODER,
            read=lambda pieces: pieces[0].flatten(),
            write=lambda weight, _: [weight[None, None]],
        )
        for number in range(c.layers):
            yield from _layer(f"layers.{number}.", f"transformer.layer.{number}.", c.heads)
        yield WeightPair("bias", ("lm_loss.bias",), "language_model")
        yield from module_pairs("dense", "sequence_summary.summary", part="pooler")
        for part, theirs in {"classes": "logits_proj", "tags": "classifier", "span": "qa_outputs"}.items():
            yield from module_pairs("output", theirs, part=part)


def _layer(ours: str, theirs: str, heads: int) -> Iterator[WeightPair]:
    def without_heads(pieces: list[Tensor]) -> Tensor:
        """Stack (D, H, K) each to (count H K, D)."""
        return torch.cat([piece.flatten(1).T for piece in pieces])

    def with_heads(weight: Tensor, count: int) -> list[Tensor]:
        """Split (count H K, D) into (D, H, K) each."""
        return [piece.T.unflatten(1, (heads, -1)) for piece in weight.chunk(count)]

    inside = f"{theirs}rel_attn."
    for name, letters in {"q": "q", "kv": "kv", "distance": "r"}.items():
        names = tuple(inside + letter for letter in letters)
        yield WeightPair(f"{ours}attention.{name}.weight", names, ENCODER, without_heads, with_heads)
    yield WeightPair(
        f"{ours}attention.out.weight",
        (f"{inside}o",),
        ENCODER,
        read=lambda pieces: pieces[0].flatten(1),
        write=lambda weight, _: [weight.unflatten(1, (heads, -1))],  # (D, H K) -> (D, H, K)
    )
    vectors = {"to_content": "r_w_bias", "to_distance": "r_r_bias", "to_segment": "r_s_bias", "segments": "seg_embed"}
    for name, vector in vectors.items():
        yield WeightPair(f"{ours}attention.{name}", (inside + vector,), ENCODER)
    modules = {
        "around_attention.norm": "rel_attn.layer_norm",
        "feedforward.up": "ff.layer_1",
        "feedforward.down": "ff.layer_2",
        "around_feedforward.norm": "ff.layer_norm",
    }
    for name, module in modules.items():
        yield from module_pairs(ours + name, theirs + module, part=ENCODER)

"""T5 from and to transformers, both versions.

Their query weights are smaller by the square root of the head width, their embeddings larger by that of the model's width (see
models/t5.py). The weights tell whether the output is the embedding, the config whether it is scaled: released checkpoints of
version 1.1 say `tie_word_embeddings: false` and mean both. Dropout inside attention and feed-forward networks is not carried
over.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from qkv.base.config import parse
from qkv.base.errors import ConfigError
from qkv.base.undrawn import shapes_only
from qkv.data.corpora import Tokenizers
from qkv.folder.networks import read_translator_run
from qkv.interop.huggingface.family import HuggingFaceCheckpoint, ImportedRun, check_vocabulary, imported_recipe, readme
from qkv.interop.huggingface.folder import prefix_errors
from qkv.interop.huggingface.options import CONFIG, Options, check_class, read_options, write_options
from qkv.interop.huggingface.tokenizer import tokenizer_files
from qkv.interop.huggingface.weights import (
    MODEL,
    WeightPair,
    check_weights,
    read_weights,
    refuse_unknown,
    split,
    take,
    write_weights,
)
from qkv.models.t5 import T5, T5Config
from qkv.text.pretrained_tokenizer import load_pretrained_tokenizer

CLASSES = ("T5ForConditionalGeneration", "T5WithLMHeadModel")  # that have nothing beside what ours has; the second is an old name
OPTIONS: Options = {
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
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gated-gelu": "geglu", "gated-silu": "swiglu"}
WORDS, OUTPUT = "shared.weight", "lm_head.weight"
# Copies of the word embedding, and a table that the authors' code made for cross-attention, where nothing reads it.
IGNORED = ("embed_tokens.weight", "EncDecAttention.relative_attention_bias.weight")
LENGTH = 512  # tokens of the texts that the released models were trained on


class T5Family:
    """T5 (Raffel et al. 2020)."""

    kind: ClassVar[str] = "t5"
    model_types: ClassVar[tuple[str, ...]] = ("t5",)

    def problem(self, c: T5Config) -> str | None:
        return None

    def import_run(self, folder: Path, config: dict[str, Any], weights: dict[str, Tensor]) -> ImportedRun:
        """Convert a checkpoint to a translator's run, from which others can start."""
        with prefix_errors(folder):
            c, found = read_t5_model(config, weights)
        tokenizer = load_pretrained_tokenizer(folder, first=int(config.get("decoder_start_token_id") or 0))
        check_vocabulary(folder, tokenizer, len(found["target_embedding.weight"]))
        text = f"imported from {folder.resolve().name}"
        data = {"train": text, "dev": text, "max_tokens": LENGTH}
        recipe = imported_recipe(folder, c, data, tokenizer={"shared": {"file": "tokenizer.json"}})
        return ImportedRun(recipe, Tokenizers(tokenizer, tokenizer), found)

    def export_run(self, run: Path, part: str | None) -> HuggingFaceCheckpoint:
        """Convert a run, whether it was pretrained or trained on pairs."""
        if part is not None:
            raise ConfigError(f"{run} is a t5, one network, it has no {part}; leave --part out")
        found = read_translator_run(run)
        tokenizer, data = found.tokenizer, found.recipe.data.model_dump()
        config, weights = write_t5_model(found.config, found.weights)
        config |= {"pad_token_id": tokenizer.pad, "eos_token_id": tokenizer.eos, "decoder_start_token_id": tokenizer.bos}
        length = data["max_tokens"] if "max_tokens" in data else data["length"]  # of pairs, or of passages
        files = {**tokenizer_files(tokenizer, length, "eos"), **readme("t5")}
        return HuggingFaceCheckpoint(config, weights, files, found.weights_file)


def read_t5_model(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> tuple[T5Config, dict[str, Tensor]]:
    """Convert a config.json and the weights beside it."""
    check_class(config, CLASSES)
    values = read_options(config, OPTIONS, ACTIVATIONS)
    if values["decoder_layers"] is None:
        values["decoder_layers"] = values["encoder_layers"]
    shape = parse(T5Config, {"kind": "t5", **values}, CONFIG)
    given = dict(weights)
    words = take(given, next((name for name in (WORDS, "encoder.embed_tokens.weight") if name in given), WORDS))
    output = take(given, OUTPUT) if OUTPUT in given else words
    if config.get("scale_decoder_outputs", config.get("tie_word_embeddings", True)):
        output = output * shape.width**-0.5
    embedding = words * shape.width**-0.5
    tied = torch.equal(output, embedding)
    c = parse(T5Config, {**shape.model_dump(), "tied": "all" if tied else "inputs"}, CONFIG)
    found = read_weights(given, _pairs(c), required=True)[MODEL] | {"target_embedding.weight": embedding}
    if not tied:
        found["output.weight"] = output
    refuse_unknown(given, "t5", IGNORED)
    with shapes_only():
        check_weights(found, dict(T5(c, len(words), len(words)).named_parameters()))
    return c, found


def write_t5_model(c: T5Config, weights: Mapping[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return config.json and weights for transformers."""
    words = weights["target_embedding.weight"].detach().cpu()
    written = {WORDS: words * c.width**0.5, **write_weights({MODEL: weights}, _pairs(c))}
    if c.tied == "inputs":
        written[OUTPUT] = weights["output.weight"].detach().cpu().clone()
    config = {
        "architectures": [CLASSES[0]],
        "model_type": "t5",
        "is_encoder_decoder": True,
        "vocab_size": len(words),
        "tie_word_embeddings": c.tied == "all",
        **write_options(c, OPTIONS, ACTIVATIONS),
    }
    return config, written


def _pairs(c: T5Config) -> Iterator[WeightPair]:
    """Pair all weights but the word embedding and the output."""
    for side, scheme, layers in (
        ("encoder", "source_position_scheme", c.encoder_layers),
        ("decoder", "target_position_scheme", c.decoder_layers),
    ):
        yield WeightPair(f"{scheme}.table", (f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",))
        yield WeightPair(f"{side}_norm.weight", (f"{side}.final_layer_norm.weight",))
        for number in range(layers):
            ours, theirs = f"{side}.{number}.", f"{side}.block.{number}.layer."
            yield from _attention_pairs(c, f"{ours}attention.", "qkv", f"{theirs}0.SelfAttention.")
            yield WeightPair(ours + "around_attention.norm.weight", (theirs + "0.layer_norm.weight",))
            if side == "decoder":
                yield from _attention_pairs(c, f"{ours}cross.", "q", f"{theirs}1.EncDecAttention.")
                yield WeightPair(ours + "around_cross.norm.weight", (theirs + "1.layer_norm.weight",))
            feed = f"{theirs}{2 if side == 'decoder' else 1}."
            up = ("wi_0", "wi_1") if c.activation in ("geglu", "swiglu") else ("wi",)
            yield WeightPair(ours + "feedforward.up.weight", tuple(f"{feed}DenseReluDense.{name}.weight" for name in up))
            yield WeightPair(ours + "feedforward.down.weight", (feed + "DenseReluDense.wo.weight",))
            yield WeightPair(ours + "around_feedforward.norm.weight", (feed + "layer_norm.weight",))


def _attention_pairs(c: T5Config, ours: str, with_query: str, theirs: str) -> Iterator[WeightPair]:
    """Pair the projections of an attention; `with_query` names the projections that are stacked with the query."""
    factor = c.head_width**0.5

    def read(pieces: list[Tensor]) -> Tensor:
        return torch.cat([pieces[0] * factor, *pieces[1:]])

    def write(weight: Tensor, count: int) -> list[Tensor]:
        query, *others = split(weight, count)
        return [query / factor, *others]

    yield WeightPair(f"{ours}{with_query}.weight", tuple(f"{theirs}{name}.weight" for name in with_query), read=read, write=write)
    if with_query == "q":
        yield WeightPair(f"{ours}kv.weight", tuple(f"{theirs}{name}.weight" for name in "kv"))
    yield WeightPair(f"{ours}out.weight", (f"{theirs}o.weight",))

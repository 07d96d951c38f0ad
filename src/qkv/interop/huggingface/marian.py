"""The Transformer from and to transformers, where it is Marian, after the toolkit of Junczys-Dowmunt et al. 2018.

Their sinusoids have all sines of a position before all cosines, ours alternate, as in the paper. Nothing in the network depends
on the order of the width's dimensions: embeddings, norms and residuals treat them alike, and each matrix says itself which
dimension goes where. So weights are reordered wherever they meet the width, and both models compute the same. The dropout of
attention probabilities, of activations and of whole layers is not carried over.
D width.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from qkv.base.config import parse
from qkv.base.errors import CheckpointError, ConfigError
from qkv.base.undrawn import shapes_only
from qkv.data.corpora import Tokenizers
from qkv.folder.networks import read_translator_run
from qkv.interop.huggingface.family import HuggingFaceCheckpoint, ImportedRun, imported_recipe, readme
from qkv.interop.huggingface.folder import prefix_errors
from qkv.interop.huggingface.options import CONFIG, Options, check_class, read_options, write_options
from qkv.interop.huggingface.tokenizer import tokenizer_files
from qkv.interop.huggingface.weights import MODEL, WeightPair, check_weights, read_weights, refuse_unknown, take, write_weights
from qkv.models.transformer import Transformer, TransformerConfig
from qkv.parts.positions import SinusoidalPositions
from qkv.parts.vocabulary_rows import NEVER
from qkv.recipes import Recipe
from qkv.text.marian import SOURCE as SOURCE_TOKENIZER
from qkv.text.marian import codes_in, is_marian, languages_in, read_marian
from qkv.text.pretrained_tokenizer import TOKENIZER_FILE, appends_eos, load_pretrained_tokenizer, read_json_object

CLASSES = ("MarianMTModel",)  # that have nothing beside what ours has
OPTIONS: Options = {
    "width": ("d_model", 1024),
    "feedforward": ("encoder_ffn_dim", 4096),
    "heads": ("encoder_attention_heads", 16),
    "encoder_layers": ("encoder_layers", 12),
    "decoder_layers": ("decoder_layers", 12),
    "dropout": ("dropout", 0.1),
    "activation": ("activation_function", "gelu"),
}
BOTH = {"feedforward": "ffn_dim", "heads": "attention_heads"}  # options that may differ between their encoder and decoder
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_python": "gelu", "silu": "silu", "swish": "silu"}
SHARED, OUTPUT, BIAS = "model.shared.weight", "lm_head.weight", "final_logits_bias"
SOURCE, TARGET = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
SINUSOIDS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
TABLES = ("target_embedding.weight", "source_embedding.weight", "output.weight")  # of ours, a row for each token
GENERATION = "generation_config.json"  # how transformers decodes
TARGET_FOLDER = "target"  # holds the target's tokenizer where it is not the source's
MIN_POSITIONS = 1024  # of a table of sinusoids: beyond any sentence


class MarianFamily:
    """Translators of kind transformer."""

    kind: ClassVar[str] = "transformer"
    model_types: ClassVar[tuple[str, ...]] = ("marian",)

    def problem(self, c: TransformerConfig) -> str | None:
        """Return why a model with this config cannot be written for transformers; None where it can."""
        has = {"norm": c.norm, "positions": c.positions, "attention": c.attention.kind}
        for key, only in (("attention", "full"), ("positions", "sinusoidal"), ("norm", "post")):
            if has[key] != only:
                return f"transformers' marian has no model.{key}={has[key]}, only {only}"
        if c.activation not in ACTIVATIONS.values():
            return f"transformers' marian has no model.activation={c.activation}, only relu, gelu and silu"
        return None

    def import_run(self, folder: Path, config: dict[str, Any], weights: dict[str, Tensor]) -> ImportedRun:
        """Convert a checkpoint to a translator's run."""
        with prefix_errors(folder):
            c, found = read_marian_model(config, weights)
        tokenizers, source_eos = _read_tokenizers(folder, config, vocab_sizes(found))
        sizes = (len(tokenizers.source), len(tokenizers.target))
        c, found = add_tokens(c, found, sizes, (tokenizers.source.unk, tokenizers.target.unk))
        recipe = _recipe(folder, config, c, source_eos, tokenizers.shared)
        return ImportedRun(recipe, tokenizers, found, about={"languages": recipe.data.model_dump()["languages"]})

    def export_run(self, run: Path, part: str | None) -> HuggingFaceCheckpoint:
        """Convert a run, with a tokenizer for each side where they differ."""
        if part is not None:
            raise ConfigError(f"{run} is a translator and has no {part}; leave --part out")
        found = read_translator_run(run)
        recipe, tokenizers = found.recipe, found.tokenizers
        with prefix_errors(run):
            config, weights = write_marian_model(recipe.model, found.weights)
        target, length = tokenizers.target, recipe.data.max_tokens
        ids = {"pad_token_id": target.pad, "eos_token_id": target.eos, "decoder_start_token_id": target.bos}
        # Our own search never generates these two.
        decoding = {
            **ids,
            "max_length": length,
            "num_beams": recipe.decoding.beam,
            "suppress_tokens": [*{target.pad, target.bos}],
        }
        files = {
            GENERATION: json.dumps(decoding, indent=2) + "\n",
            **readme("marian"),
            **tokenizer_files(tokenizers.source, length, "eos" if recipe.source_format.eos else "none"),
        }
        if not tokenizers.shared:
            files |= {f"{TARGET_FOLDER}/{name}": text for name, text in tokenizer_files(target, length, "eos").items()}
        more = {**ids, "max_position_embeddings": max(MIN_POSITIONS, 2 * length), "forced_eos_token_id": None}
        return HuggingFaceCheckpoint({**config, **more}, weights, files, found.weights_file)


def read_marian_model(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> tuple[TransformerConfig, dict[str, Tensor]]:
    """Convert a config.json and the weights beside it."""
    check_class(config, CLASSES)
    for ours, end in BOTH.items():
        encoder, default = OPTIONS[ours]
        if config.get(f"decoder_{end}", default) != config.get(encoder, default):
            raise ConfigError(f"decoder_{end} in {CONFIG} is not {encoder}; qkv's transformer has one number for both sides")
    shape = parse(TransformerConfig, {"kind": "transformer", **read_options(config, OPTIONS, ACTIVATIONS)}, CONFIG)
    given = dict(weights)
    tables = _read_tables(config, given)
    target, source, output = (tables[name] for name in TABLES)
    width = target.size(1)
    for name in SINUSOIDS:
        if name in given:
            table = _reorder(take(given, name), 1, _order(width))
            if not torch.allclose(table, SinusoidalPositions(width)(torch.arange(len(table))[None])[0], atol=1e-3):
                raise CheckpointError(f"{name} holds other positions than sines and cosines; qkv's marian has no others")
    bias = take(given, BIAS) if BIAS in given else torch.zeros(0)
    if bias.any():
        tables["output.bias"] = bias.flatten()
    tied = "none" if not torch.equal(target, output) else "all" if torch.equal(target, source) else "target"
    values = {**shape.model_dump(mode="json"), "tied": tied, "output_bias": "output.bias" in tables}
    c = parse(TransformerConfig, values, CONFIG)
    found = tables | read_weights(given, _pairs(c, _order(width)), required=True)[MODEL]
    refuse_unknown(given, "marian")
    with shapes_only():
        wanted = dict(Transformer(c, len(source), len(target)).named_parameters())
    check_weights(found, wanted)
    return c, {name: found[name] for name in wanted}


def _read_tables(config: Mapping[str, Any], given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Remove embeddings and output from the weights given.

    Ours are scaled by the square root of D on the way in, theirs may be.
    """

    def first(*names: str) -> Tensor:
        name = next((name for name in names if name in given), names[0])
        return take(dict(given), name)

    source, target = first(SOURCE, SHARED), first(TARGET, SHARED, OUTPUT)
    output = given[OUTPUT].float() if OUTPUT in given else target
    for name in (SOURCE, TARGET, SHARED, OUTPUT):
        given.pop(name, None)
    width = target.size(1)
    scale = 1.0 if config.get("scale_embedding", False) else width**-0.5
    tables = zip(TABLES, (target * scale, source * scale, output), strict=True)
    return {name: _reorder(table, 1, _order(width)) for name, table in tables}


def write_marian_model(c: TransformerConfig, weights: Mapping[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return config.json and weights for transformers; weights are those of a Transformer by name."""
    if problem := MarianFamily().problem(c):
        raise ConfigError(f"{problem}; use onnx, or qkv's own engine")
    back = _order(c.width).argsort()
    tables = {name: _reorder(weights[name].detach().cpu(), 1, back) for name in TABLES if name in weights}
    target = tables["target_embedding.weight"]
    written = {SHARED: target} if c.tied == "all" else {TARGET: target, SOURCE: tables["source_embedding.weight"]}
    if c.tied == "none":
        written[OUTPUT] = tables["output.weight"]
    written[BIAS] = weights["output.bias"].detach().cpu()[None] if c.output_bias else torch.zeros(1, len(target))
    written = {name: weight.contiguous().clone() for name, weight in written.items()}
    options = write_options(c, OPTIONS, ACTIVATIONS)
    config = {
        "architectures": [CLASSES[0]],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "scale_embedding": True,
        "vocab_size": len(written.get(SOURCE, target)),
        "decoder_vocab_size": len(target),
        "share_encoder_decoder_embeddings": c.tied == "all",
        "tie_word_embeddings": c.tied != "none",
        **options,
        **{f"decoder_{end}": options[f"encoder_{end}"] for end in BOTH.values()},
    }
    return config, written | write_weights({MODEL: weights}, _pairs(c, _order(c.width)))


def add_tokens(
    c: TransformerConfig, weights: Mapping[str, Tensor], sizes: tuple[int, int], unk: tuple[int, int]
) -> tuple[TransformerConfig, dict[str, Tensor]]:
    """Enlarge the vocabularies of source and target: the model reads new tokens as the unknown one and never generates them."""
    made = dict(weights)
    for name in TABLES:
        side = 0 if name.startswith("source") else 1
        if name in made:
            table = made[name]
            made[name] = torch.cat([table, table[unk[side]].expand(sizes[side] - len(table), -1)])
    known = len(weights["target_embedding.weight"])
    if sizes[1] > known:
        bias = made.get("output.bias", torch.zeros(known))
        made["output.bias"] = torch.cat([bias, torch.full((sizes[1] - known,), NEVER)])
    return c.model_copy(update={"output_bias": "output.bias" in made}), made


def vocab_sizes(weights: Mapping[str, Tensor]) -> tuple[int, int]:
    """Return the sizes of the vocabularies of source and target."""
    target = weights["target_embedding.weight"]
    return len(weights.get("source_embedding.weight", target)), len(target)


def _order(width: int) -> Tensor:
    """Return which of their dimensions each of ours is: theirs has the sines, then the cosines. -> (D,)."""
    position = torch.arange(width)
    return position // 2 + position % 2 * ((width + 1) // 2)


def _reorder(weight: Tensor, axis: int | None, order: Tensor) -> Tensor:
    """Put the dimensions of an axis in another order; a weight of a wrong shape is left for the check of shapes."""
    return weight if axis is None or weight.shape[axis : axis + 1] != order.shape else weight.index_select(axis, order)


def _pairs(c: TransformerConfig, order: Tensor) -> Iterator[WeightPair]:
    """Pair all weights of layers."""
    back = order.argsort()
    for ours, theirs, outputs in _modules(c):
        for end, axis in ((".weight", 0 if outputs else 1), (".bias", 0 if outputs else None)):
            yield WeightPair(
                ours + end,
                tuple(name + end for name in theirs),
                read=lambda pieces, axis=axis: _reorder(torch.cat(pieces), axis, order),  # type: ignore[misc]
                write=lambda weight, count, axis=axis: list(_reorder(weight, axis, back).chunk(count)),  # type: ignore[misc]
            )


def _modules(c: TransformerConfig) -> Iterator[tuple[str, tuple[str, ...], bool]]:
    """Yield a module of ours, those of theirs that are stacked in it, and whether its outputs (not its inputs) are the width."""
    for side, layers in (("encoder", c.encoder_layers), ("decoder", c.decoder_layers)):
        for number in range(layers):
            ours, theirs = f"{side}.{number}.", f"model.{side}.layers.{number}."
            yield ours + "attention.qkv", tuple(f"{theirs}self_attn.{name}_proj" for name in "qkv"), False
            yield ours + "attention.out", (theirs + "self_attn.out_proj",), True
            yield ours + "around_attention.norm", (theirs + "self_attn_layer_norm",), True
            if side == "decoder":
                yield ours + "cross.q", (theirs + "encoder_attn.q_proj",), False
                yield ours + "cross.kv", tuple(f"{theirs}encoder_attn.{name}_proj" for name in "kv"), False
                yield ours + "cross.out", (theirs + "encoder_attn.out_proj",), True
                yield ours + "around_cross.norm", (theirs + "encoder_attn_layer_norm",), True
            yield ours + "feedforward.up", (theirs + "fc1",), False
            yield ours + "feedforward.down", (theirs + "fc2",), True
            yield ours + "around_feedforward.norm", (theirs + "final_layer_norm",), True


def _read_tokenizers(folder: Path, config: dict[str, Any], sizes: tuple[int, int]) -> tuple[Tokenizers, bool]:
    """Read the tokenizers in a checkpoint's folder. -> and whether sources end in eos, as those of Marian's own tokenizers do."""
    first = config.get("decoder_start_token_id", config.get("pad_token_id"))
    if not isinstance(first, int) or not 0 <= first < sizes[1]:
        raise CheckpointError(f"{folder}: decoder_start_token_id={first!r} in {CONFIG} is not one of the {sizes[1]:,} tokens")
    if is_marian(folder):
        return Tokenizers(*read_marian(folder, sizes, first)), True
    if not (folder / TOKENIZER_FILE).exists():
        raise CheckpointError(
            f"{folder}: no {SOURCE_TOKENIZER} there, and no {TOKENIZER_FILE}; save the tokenizer beside the model"
        )
    if (folder / TARGET_FOLDER / TOKENIZER_FILE).exists():
        source = load_pretrained_tokenizer(folder)
        tokenizers = Tokenizers(source, load_pretrained_tokenizer(folder / TARGET_FOLDER, first=first))
    else:
        source = load_pretrained_tokenizer(folder, first=first)
        tokenizers = Tokenizers(source, source)
    if [len(tokenizer) for tokenizer in tokenizers] != [*sizes]:
        has, knows = (" and ".join(f"{count:,}" for count in counts) for counts in (map(len, tokenizers), sizes))
        raise CheckpointError(f"{folder}: the tokenizers have {has} pieces, the model knows {knows}; they do not belong together")
    return tokenizers, appends_eos(folder, source.eos)


def _recipe(folder: Path, config: dict[str, Any], c: TransformerConfig, source_eos: bool, shared: bool) -> Recipe:
    """Return a recipe that could have made an imported translator."""
    text = f"imported from {folder.resolve().name}"
    tasks = [{"pairs": text, "prefix": code} for code in codes_in(folder)] or text
    beam = {**config, **read_json_object(folder / GENERATION)}.get("num_beams")
    data = {
        "train": tasks,
        "dev": tasks,
        "languages": languages_in(folder),
        "max_tokens": config.get("max_position_embeddings", MIN_POSITIONS),
        "source_eos": source_eos,
    }
    sides = ("source", "target")
    tokenizer = {"shared": {"file": TOKENIZER_FILE}} if shared else {side: {"file": f"tokenizer-{side}.json"} for side in sides}
    return imported_recipe(folder, c, data, tokenizer=tokenizer, decoding={} if beam is None else {"beam": beam})

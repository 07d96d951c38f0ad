"""Write a Transformer as a CTranslate2 model, with CTranslate2's own specification, not through another toolkit's format.

The decoder starts from our bos, so the row of bos in a tied embedding may have any value. Positions that are added to embeddings,
such as sinusoids, become a table; so an exported model has a longest text, `max_positions`.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer as Library
from torch import Tensor, nn

from qkv.base.errors import ConfigError
from qkv.interop.packages import import_optional
from qkv.models.transformer import Transformer, TransformerConfig
from qkv.parts.feedforward import FeedForward
from qkv.parts.residual import Residual
from qkv.text.tokenizer import SPECIAL_TOKENS

POSITIONS = ("none", "counting", "sinusoidal", "learned", "relative", "rotary")
LAYER_NORM_EPSILON = 1e-5  # torch's default, which all our norms have
PRECISIONS = {"float32": "float32", "int8": "int8", "bf16": "bfloat16"}  # ours, and CTranslate2's name of it
MIN_POSITIONS = 1024  # of a table of sinusoids: beyond any sentence


def problem(c: Any) -> str | None:
    """Return why a model with this config cannot be written for CTranslate2; None where it can."""
    if c.kind != "transformer":
        return f"ctranslate2 has no mapping for models of kind {c.kind}"
    if c.attention.kind != "full":
        return f"ctranslate2 has no model.attention={c.attention.kind}, only full attention"
    if c.positions not in POSITIONS:
        return f"ctranslate2 has no model.positions={c.positions}, only {', '.join(POSITIONS)}"
    return None


def export_ctranslate2(model: Transformer, folder: Path, max_tokens: int, precision: str) -> tuple[int, dict[str, Any]]:
    """Write a model into a folder that has its tokenizers. -> its longest text, and nothing more for the manifest."""
    max_positions = model.longest or max(MIN_POSITIONS, 2 * max_tokens)
    shared, source, target = (folder / f"tokenizer{side}.json" for side in ("", "-source", "-target"))
    libraries = [Library.from_file(str(path)) for path in ((shared, shared) if shared.exists() else (source, target))]
    # The tokens as tokenizer.json names them, so that others can use that file too.
    first, second = ([str(library.id_to_token(i)) for i in range(library.get_vocab_size())] for library in libraries)
    write_ctranslate2(model, (first, second), max_positions, precision, folder)
    return max_positions, {}


def write_ctranslate2(
    model: Transformer, pieces: tuple[list[str], list[str]], max_positions: int, precision: str, folder: Path
) -> None:
    """Write model.bin, config.json and vocabularies into a folder; `pieces` are the tokens of each side in order of their ids."""
    spec = _spec(model, max_positions)
    spec.register_source_vocabulary(pieces[0])
    spec.register_target_vocabulary(pieces[1])
    _, spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = SPECIAL_TOKENS
    spec.config.decoder_start_token = spec.config.bos_token
    spec.config.layer_norm_epsilon = LAYER_NORM_EPSILON
    spec.validate()
    spec.optimize(quantization=PRECISIONS[precision])
    spec.save(str(folder))


def _spec(model: Transformer, max_positions: int) -> Any:
    layer: Any
    specs, c = import_optional("ctranslate2.specs"), model.config
    spec = _empty_spec(specs, c)
    _set_positions_and_norm(spec.encoder, model.source_positions, model.encoder_norm, max_positions, c.width)
    _set_positions_and_norm(spec.decoder, model.target_positions, model.decoder_norm, max_positions, c.width)
    # The specification multiplies embeddings by sqrt(width) by default, as our model does.
    spec.encoder.embeddings[0].weight = _numbers(model.source_embedding.weight)
    spec.decoder.embeddings.weight = _numbers(model.target_embedding.weight)
    spec.decoder.projection.weight = _numbers(model.output.weight)
    if model.output.bias is not None:
        spec.decoder.projection.bias = _numbers(model.output.bias)
    for made, layer in zip(spec.encoder.layer, model.encoder, strict=True):
        _set_layer(made, layer)
    for made, layer in zip(spec.decoder.layer, model.decoder, strict=True):
        _set_layer(made, layer)
        _set_attention(made.attention, layer.around_cross, layer.cross.q, layer.cross.kv, layer.cross.out)
    return spec


def _empty_spec(specs: Any, c: TransformerConfig) -> Any:
    if reason := problem(c):
        raise ConfigError(f"{reason}; use onnx, or qkv's own engine")
    activations = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH", "swiglu": "SWISH"}
    options = {
        "pre_norm": c.norm == "pre",
        "activation": specs.Activation[activations[c.activation]],
        "ffn_glu": c.activation == "swiglu",
        "relative_position": c.positions == "relative",
        **({"rotary_dim": 0} if c.positions == "rotary" else {}),  # 0 is all dimensions; neighbouring ones make a pair
    }
    try:
        encoder = specs.TransformerEncoderSpec(c.encoder_layers, c.heads, **options)
    except TypeError:  # older versions have no rotary_dim in the encoder
        raise ConfigError("this version of ctranslate2 has no rotary positions in its encoder; install a newer one") from None
    return specs.TransformerSpec(encoder, specs.TransformerDecoderSpec(c.decoder_layers, c.heads, **options))


def _set_positions_and_norm(spec: Any, positions: nn.Module, norm: nn.Module, max_positions: int, width: int) -> None:
    """Set the table of positions, and the last norm if there is one."""
    if hasattr(spec, "position_encodings"):  # schemes that act in attention may have no table
        spec.position_encodings.encodings = _numbers(positions(torch.arange(max_positions)[None])[0].expand(-1, width))
    if isinstance(norm, nn.LayerNorm):
        _set_norm(spec.layer_norm, norm)


def _set_layer(spec: Any, layer: Any) -> None:
    """Set the parts that an encoder's and a decoder's layer share."""
    _set_attention(spec.self_attention, layer.around_attention, layer.attention.qkv, layer.attention.out)
    if layer.attention.relative is not None:
        spec.self_attention.relative_position_keys = _numbers(layer.attention.relative[0].keys)
        spec.self_attention.relative_position_values = _numbers(layer.attention.relative[0].values)
    _set_feed(spec.ffn, layer.around_feedforward, layer.feedforward)


def _set_attention(spec: Any, around: Residual, *linears: nn.Linear) -> None:
    """Set the norm and the projections; CTranslate2 stacks queries, keys and values as we do."""
    _set_norm(spec.layer_norm, around.norm)
    for made, linear in zip(spec.linear, linears, strict=True):
        _set_linear(made, linear.weight, linear.bias)


def _set_feed(spec: Any, around: Residual, feed: FeedForward) -> None:
    _set_norm(spec.layer_norm, around.norm)
    up, down = feed.up, feed.down
    _set_linear(spec.linear_1, down.weight, down.bias)
    if feed.activation == "swiglu":
        (gate, inside), (gate_bias, inside_bias) = up.weight.chunk(2), up.bias.chunk(2)
        _set_linear(spec.linear_0, gate, gate_bias)
        _set_linear(spec.linear_0_noact, inside, inside_bias)
    else:
        _set_linear(spec.linear_0, up.weight, up.bias)


def _set_linear(spec: Any, weight: Tensor, bias: Tensor) -> None:
    spec.weight, spec.bias = _numbers(weight), _numbers(bias)


def _set_norm(spec: Any, norm: Any) -> None:
    spec.gamma, spec.beta = _numbers(norm.weight), _numbers(norm.bias)


def _numbers(values: Tensor) -> np.ndarray:
    """Return a copy, since CTranslate2 quantises arrays in place."""
    return values.detach().float().cpu().numpy().copy()

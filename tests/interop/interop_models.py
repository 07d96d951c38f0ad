"""Tiny models of every kind that a config can describe, with a vocabulary for each side."""

import itertools
from typing import Any

import torch

from qkv.models.convolution import Convolution, ConvolutionConfig
from qkv.models.rnn import Rnn, RnnConfig
from qkv.models.transformer import Transformer, TransformerConfig
from qkv.text.tokenizer import Tokenizer

SOURCE_WORDS, TARGET_WORDS = 19, 23
KINDS = [
    {"norm": norm, "activation": activation, "positions": positions, "tied": tied}
    for (norm, activation, positions), tied in zip(
        itertools.product(["post", "pre"], ["relu", "gelu", "swiglu"], ["sinusoidal", "learned"]),
        itertools.cycle(["all", "target", "none"]),
        strict=False,
    )
]
KINDS += [
    {"norm": "post", "activation": "relu", "positions": "relative", "tied": "all"},
    {"norm": "pre", "activation": "relu", "positions": "none", "tied": "all"},
    {"norm": "post", "activation": "relu", "positions": "counting", "tied": "target"},
    {"norm": "post", "activation": "gelu", "positions": "rotary", "tied": "target"},
    {"norm": "post", "activation": "silu", "positions": "sinusoidal", "tied": "all", "output_bias": True},
]


@torch.no_grad()
def make(**options: Any) -> Transformer:
    """A model with norms and biases that would show a mistake about them."""
    shape = {
        "width": 16,
        "feedforward": 24,
        "heads": 4,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "max_positions": 40,
        "max_distance": 3,
        **options,
    }
    torch.manual_seed(1)
    words = (TARGET_WORDS if shape["tied"] == "all" else SOURCE_WORDS, TARGET_WORDS)
    model = Transformer(TransformerConfig(**shape), *words).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1 or "table" in name:
            torch.nn.init.normal_(parameter, 1.0 if "norm.weight" in name else 0.0, 0.3)
    return model


@torch.no_grad()
def make_decided(**options: Any) -> Transformer:
    """A model as if trained: sure of its words, and neither pad nor bos is ever one."""
    model: Any = make(**options)
    last = model.decoder_norm if options["norm"] == "pre" else model.decoder[-1].around_feedforward.norm
    common = last.bias.fill_(1.0) / len(last.bias)  # what all outputs have in common
    model.output.weight *= 3
    model.output.weight[[Tokenizer.pad, Tokenizer.bos]] = -40 * common
    model.output.weight[Tokenizer.eos] += 2 * common
    return model


@torch.no_grad()
def make_rnn(**options: Any) -> Rnn:
    """A recurrent model that is sure of its words."""
    torch.manual_seed(1)
    model = Rnn(
        RnnConfig(**{"width": 16, "embedding_width": 12, "layers": 2, "tied": "target", **options}), SOURCE_WORDS, TARGET_WORDS
    )
    model.output.weight *= 3
    return model.eval()


@torch.no_grad()
def make_convolution(**options: Any) -> Convolution:
    """A convolutional model whose lengths and biases of weights would show a mistake about them."""
    shape = {
        "width": 16,
        "embedding_width": 12,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "max_positions": 40,
        "tied": "target",
        **options,
    }
    torch.manual_seed(1)
    model = Convolution(ConvolutionConfig(**shape), SOURCE_WORDS, TARGET_WORDS)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter += torch.randn_like(parameter) * 0.1
        else:
            parameter *= 3
    return model.eval()

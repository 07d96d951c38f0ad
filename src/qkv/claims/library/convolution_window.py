"""A convolution sees its window only; stacking widens it linearly, dilation exponentially (Kalchbrenner et al. 2016, ByteNet;
Gehring et al. 2017, section 3).

Exact, and without training: a state depends on a word if and only if its gradient with respect to that word is not zero. We
count such words for the middle of a long text, in stacks of qkv's gated convolutions (with residuals, as in its model) with
windows of three words. Dilation lays the window out over every 2nd, 4th, 8th word. Attention is the control: it must see all.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.pictures import curves
from qkv.claims.verdict import Always
from qkv.models import seeded_initialisation
from qkv.models.convolution import ConvolutionConfig, EncoderBlock
from qkv.parts.attention import SelfAttention
from qkv.parts.context import AttentionContext
from qkv.parts.convolution import RowWindows
from qkv.parts.encoder import EncoderLayer
from qkv.parts.masks import DenseMask

WIDTH, LENGTH, LAYERS = 16, 201, 6
CONFIG = ConvolutionConfig(width=WIDTH, kernel_width=3, dropout=0.0)


def dilated(x: Tensor, dilation: int) -> Tensor:
    """Lay out windows of three words, `dilation` words apart, zeros beyond the ends. (B, T, D) -> (B, T, 3 D)."""
    padded = F.pad(x, (0, 0, dilation, dilation))
    return torch.cat([padded[:, shift : shift + x.size(1)] for shift in (0, dilation, 2 * dilation)], -1)


def run_layers(kind: str, layers: int, x: Tensor) -> Tensor:
    """Run some new layers over words. (B, T, D) -> (B, T, D)."""
    text = torch.ones(x.shape[:2], dtype=torch.long)
    for layer in range(layers):
        if kind == "attention":
            attention = EncoderLayer(SelfAttention(WIDTH, 2), WIDTH, WIDTH, "relu", "pre", 0.0).double()
            x = attention(x, AttentionContext(DenseMask(None)))
        else:
            stacked = RowWindows(text, CONFIG.kernel_width, CONFIG.kernel_width // 2, x.dtype)  # those of qkv's model
            windows = stacked if kind == "stacked" else partial(dilated, dilation=2**layer)
            x = EncoderBlock(CONFIG).double()(x, windows)
    return x


def measure(cell: Cell) -> Measured:
    """Count the words that the state in the middle depends on, after one layer, two layers, and so on."""
    seen = []
    for layers in range(1, LAYERS + 1):
        x = torch.randn(1, LENGTH, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(cell.seed))
        x.requires_grad_()
        with seeded_initialisation(cell.seed):
            run_layers(cell["kind"], layers, x)[0, LENGTH // 2].sum().backward()
        assert x.grad is not None
        seen.append(float((x.grad[0].abs().amax(-1) > 0).sum()))
    linear = max(abs(many - (1 + 2 * layers)) for layers, many in enumerate(seen, 1))
    exponential = max(abs(many - (2 ** (layers + 1) - 1)) for layers, many in enumerate(seen, 1))
    return {"seen": seen, "one": seen[0], "all": seen[-1], "linear": linear, "exponential": exponential}


CLAIM = Claim(
    topic="order and length",
    statement="A convolution sees its window only; stacking widens it linearly, dilation exponentially.",
    source="Kalchbrenner et al. 2016, Neural Machine Translation in Linear Time; Vaswani et al. 2017, table 1",
    measured="The number of words, of 201, that the state of the middle word depends on (gradient not zero) after 1 to 6 "
    "layers with windows of three words.",
    prediction="Exactly 1 + 2 L words after L layers; with a dilation of 1, 2, 4 and so on exactly 2^(L+1) − 1; attention sees "
    "all 201 after one layer.",
    explanation="A convolution is like a class in which you hear only the pupils beside you. A rumour moves one seat with each "
    "round. If in every round you may call somebody twice as far away as before, it crosses the room in a few rounds. With "
    "attention everybody hears everybody at once.",
    formula="stacked: 1 + L(k − 1);   dilated by 1, 2, 4…: 1 + (k − 1)(2ᴸ − 1)",
    changes="Nothing changes what can be seen. What is used in fact is less: words at the edge of a window reach the state "
    "over few ways, so that their influence is small.",
    variants={kind: {"kind": kind} for kind in ("stacked", "dilated", "attention")},
    sizes={"cpu": {}, "quick": {}},
    measure=measure,
    units={
        "seen": "words that a state depends on",
        "one": "words seen after one layer",
        "all": "words seen after six layers",
        "linear": "largest deviation from 1 + 2 L",
        "exponential": "largest deviation from 2^(L+1) − 1",
    },
    parts=(
        Always("one convolution sees its window only", "one", "stacked", at_most=3),
        Always("stacking widens it linearly", "linear", "stacked", at_most=0),
        Always("dilation widens it exponentially", "exponential", "dilated", at_most=0),
    ),
    controls=(Always("the measure sees all words where all matter", "one", "attention", at_least=LENGTH),),
    picture=[curves("seen", range(1, LAYERS + 1), "layers")],
)

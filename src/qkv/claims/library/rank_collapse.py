"""Without feed-forward layers a stack of attentions only averages (Dong et al. 2021, Attention Is Not All You Need).

Random words pass through 12 layers of qkv's own attention with initial weights, and we look how different from each other they
still are. Nothing is trained: this is about what the parts do by themselves. The rival explanation is that residuals keep
words apart, and not feed-forward layers; so each is added alone. Norms are there in all variants but one, because without them
vectors shrink, which makes attention even flatter. In float64, to see differences far below the rounding of float32.
"""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.pictures import curves
from qkv.claims.verdict import Always
from qkv.models import seeded_initialisation
from qkv.parts.attention import SelfAttention, init_attention
from qkv.parts.context import AttentionContext
from qkv.parts.feedforward import FeedForward
from qkv.parts.masks import DenseMask

WIDTH, LENGTH = 64, 32


def difference(x: Tensor) -> float:
    """Return how far words are from the mean word of their text, relative to all. (B, T, D)."""
    return float((x - x.mean(1, keepdim=True)).norm() / x.norm())


def measure(cell: Cell) -> Measured:
    """Send random words through the layers; return the differences between words, as powers of ten, after each layer."""
    context, layers = AttentionContext(DenseMask(None)), cell["layers"]
    with seeded_initialisation(cell.seed):
        attentions = [SelfAttention(WIDTH, 4) for _ in range(layers)]
        feedforwards = [FeedForward(WIDTH, 4 * WIDTH, "relu") for _ in range(layers)]
        for attention in attentions:
            init_attention(attention)
    x = torch.randn(8, LENGTH, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(cell.seed))
    found = [difference(x)]

    def pass_through(x: Tensor, layer: nn.Module, *given: AttentionContext) -> Tensor:
        y = layer.double()(x, *given)
        y = x + y if cell["residuals"] else y
        return F.layer_norm(y, (WIDTH,)) if cell["norms"] else y

    with torch.no_grad():
        for attention, feedforward in zip(attentions, feedforwards, strict=True):
            x = pass_through(x, attention, context)
            x = pass_through(x, feedforward) if cell["feed-forward"] else x
            found.append(difference(x))
    powers = [math.log10(max(one, 1e-16)) for one in found]
    return {"powers": powers, "first": found[0], "left": found[-1], "slowest": max(b - a for a, b in pairwise(powers[:4]))}


CLAIM = Claim(
    topic="attention itself",
    statement="Without feed-forward layers a stack of attentions only averages: all words become alike.",
    source="Dong et al. 2021, Attention Is Not All You Need: Pure Attention Loses Rank Doubly Exponentially with Depth",
    measured="How far 32 random words of width 64 are from their mean, relative to their size, after 12 layers with initial "
    "weights: attention alone, and with norms, feed-forward layers, residuals.",
    prediction="With attention alone, and with norms, less than a millionth of the difference is left, and each of the first "
    "three layers takes away at least a tenth. If feed-forward layers are what keeps words apart, at least a hundredth is left "
    "with them; residuals alone, which the paper holds responsible, leave at least a hundredth.",
    explanation="Attention replaces each word by a mixture of all words. Mix paints, then mix the mixtures: soon all pots have "
    "the same brown. Something must keep a bit of the old colour. The paper says that it is the residual: each word is "
    "added to its mixture.",
    formula="‖res(Attention(X))‖ ≤ c · ‖res(X)‖³,  res(X) = X − 1x̄ᵀ",
    changes="Weights at their start. Training can make attention sharp, which mixes less; large weights let feed-forward "
    "layers hold the collapse off, and far more layers lose much even with residuals.",
    variants={
        "attention alone": {"norms": False, "feed-forward": False, "residuals": False},
        "with norms": {"norms": True, "feed-forward": False, "residuals": False},
        "with norms, feed-forward": {"norms": True, "feed-forward": True, "residuals": False},
        "with norms, residuals": {"norms": True, "feed-forward": False, "residuals": True},
        "with all": {"norms": True, "feed-forward": True, "residuals": True},
    },
    sizes={"cpu": {"layers": 12}, "quick": {}},
    measure=measure,
    units={
        "powers": "difference between words, as a power of ten",
        "first": "difference before the first layer",
        "left": "difference after the last layer",
        "slowest": "least change of a layer (of the first three), as a power of ten",
    },
    parts=(
        Always("attention alone only averages", "left", "attention alone", at_most=1e-6),
        Always("norms do not change that", "left", "with norms", at_most=1e-6),
        Always("every layer averages", "slowest", "attention alone", at_most=math.log10(0.9)),
        Always("feed-forward layers keep words apart", "left", "with norms, feed-forward", at_least=0.01),
    ),
    further=(Always("residuals alone keep words apart", "left", "with norms, residuals", at_least=0.01),),
    controls=(
        Always("words differ at first", "first", "attention alone", at_least=0.9),
        Always("the measure sees words that stay apart", "left", "with all", at_least=0.01),
    ),
    picture=[curves("powers", range(12 + 1), "layers")],
)

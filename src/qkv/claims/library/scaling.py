"""Dividing by sqrt(d) keeps the softmax from saturating, and matters more the wider the heads (Vaswani et al. 2017, section
3.2.1).

First the statistics that the paper argues with: queries and keys of independent numbers with variance 1, through qkv's own
attention. Then training: a Transformer with one wide head or with many narrow ones, of equal width and so with equal weights,
where the scores are divided by sqrt(d) or not.
"""

import math

import torch
from torch import Tensor, nn

from qkv.claims import tasks
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.pictures import curves, strip
from qkv.claims.training import TRANSFORMER, train_pairs
from qkv.claims.verdict import Always, Higher, Lower, Same
from qkv.jobs.job import Job
from qkv.parts.attention import CrossAttention, SelfAttention
from qkv.parts.dot_product import attention_weights

WIDTHS, KEYS = (4, 16, 64, 256, 1024), 64


def largest_weight(width: int, scaled: bool, seed: int) -> float:
    """Return the mean of the largest attention weight of a random query over 64 random keys."""
    q, k = torch.randn(2, 64, 1, KEYS, width, generator=torch.Generator().manual_seed(seed))
    weights = attention_weights(q if scaled else q * math.sqrt(width), k, None)
    return float(weights.max(-1).values.mean())


def without_scaling(job: Job) -> None:
    """Multiply all queries by sqrt(d), which undoes the division."""
    for module in job.model.modules():
        if isinstance(module, SelfAttention | CrossAttention):
            projection = module.qkv if isinstance(module, SelfAttention) else module.q
            projection.register_forward_hook(_grow_queries(module))


def _grow_queries(attention: SelfAttention | CrossAttention):  # type: ignore[no-untyped-def]
    inside = attention.out.in_features

    def grow(_: nn.Module, __: object, output: Tensor) -> Tensor:
        queries, rest = output[..., :inside], output[..., inside:]
        return torch.cat([queries * math.sqrt(inside / attention.heads), rest], -1)

    return grow


def measure(cell: Cell) -> Measured:
    """Measure random attention at several widths, and train."""
    scaled = cell["scaled"]
    pairs = tasks.examples(tasks.reverse, cell.seed, cell["pairs"], (4, 12), tasks.letters(16), 300)
    run = train_pairs(
        cell, "transformer-small", {**TRANSFORMER, "model.width": 128}, pairs.train, pairs.dev, steps=cell["steps"],
        change=None if scaled else without_scaling,
    )  # fmt: skip
    weights = [largest_weight(width, scaled, cell.seed) for width in WIDTHS]
    return {"weights": weights, "widest": weights[-1], "growth": weights[-1] - weights[0], "loss": run.loss()}


CLAIM = Claim(
    topic="attention itself",
    statement="Dividing scores by √d keeps the softmax from saturating, and matters more the wider the heads.",
    source="Vaswani et al. 2017, Attention Is All You Need, section 3.2.1",
    measured="The largest of 64 attention weights for random queries and keys of variance 1, at head widths of 4 to 1,024; "
    "and the loss on held-out texts after learning to reverse 4 to 12 letters, with 8 heads of width 16 or one head of width "
    "128.",
    prediction="Divided by √d, the largest weight does not depend on the width (within 0.05); undivided, it exceeds 0.9 at "
    "width 1,024. In training, one wide head loses at least 0.2 nats without the division, and at least 0.2 more than narrow "
    "heads lose.",
    explanation="A score is a sum of d products. The more terms, the larger the sum tends to be: √d times larger. Softmax "
    "turns large differences into all or nothing, and then there is nothing left to learn from. Dividing by √d keeps sums "
    "moderate.",
    formula="Var(q · k) = d for independent q, k of variance 1, so Var(q · k / √d) = 1",
    changes="Weights can learn to be small, so training may get over it; a longer training or another optimiser may close "
    "the gap.",
    variants={
        "scaled, 8 narrow heads": {"scaled": True, "model.heads": 8},
        "not scaled, 8 narrow heads": {"scaled": False, "model.heads": 8},
        "scaled, one wide head": {"scaled": True, "model.heads": 1},
        "not scaled, one wide head": {"scaled": False, "model.heads": 1},
    },
    sizes={"cpu": {"pairs": 20000, "steps": 300, "training.batch_tokens": 512}, "quick": {"steps": 60}},
    measure=measure,
    units={
        "weights": "largest of 64 attention weights",
        "widest": "largest weight at width 1,024",
        "growth": "growth of the largest weight with the width",
        "loss": "loss on held-out texts, nats a token",
    },
    parts=(
        Same("divided, width does not matter to the softmax", "growth", "scaled, one wide head", than=0.0, within=0.05),
        Always("undivided, wide heads saturate", "widest", "not scaled, one wide head", at_least=0.9),
        Higher("undivided, one wide head learns worse", "loss", "not scaled, one wide head", "scaled, one wide head", by=0.2),
        Higher(
            "the division matters more for wide heads", "loss", ("not scaled, one wide head", "scaled, one wide head"),
            ("not scaled, 8 narrow heads", "scaled, 8 narrow heads"), by=0.2,
        ),
    ),
    controls=(Lower("one wide head can learn it (guessing: 2.77 nats)", "loss", "scaled, one wide head", than=2.77, by=1.0),),
    picture=[
        curves("weights", WIDTHS, "width of the head", ["scaled, one wide head", "not scaled, one wide head"], log=True),
        strip("loss"),
    ],
)  # fmt: skip

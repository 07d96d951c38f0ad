"""Counting and normalised positions fail where sinusoidal ones work (the first ideas of every course on positional encoding).

A Transformer with post-norm, as in the paper, repeats random letters, for which it must find the letter at the same position.
Counting adds 0, 1, 2 and so on to all numbers of a word's vector, normalised positions end at 1. There are two easy reasons to
fail that say little about counts: a layer norm removes what is equal in all dimensions, and large numbers drown the words. So
two more variants give the count a random direction of its own, which no norm removes: as it is, and small (from 0 to 1).
After a first run in which all counts worked, a network without positions was added, as a control that the task needs them.
"""

from typing import Any

import torch
from torch import Tensor

from qkv.claims import tasks
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.pictures import strip
from qkv.claims.training import TRANSFORMER, train_pairs
from qkv.claims.verdict import Higher, Lower
from qkv.jobs.job import Job
from qkv.parts.positions import PositionalEncoding

SETTINGS = {**TRANSFORMER, "model.norm": "post"}


class CountsInOneDirection(PositionalEncoding):
    """The position times a random vector and a constant."""

    direction: Tensor

    def __init__(self, width: int, unit: float, seed: int):
        super().__init__()
        self.unit = unit
        self.register_buffer("direction", torch.randn(width, generator=torch.Generator().manual_seed(seed)), persistent=False)

    def forward(self, position: Tensor, text: Tensor | None = None) -> Tensor:
        """position (B, T) -> (B, T, D)."""
        return position[..., None].float() * self.unit * self.direction


def measure(cell: Cell) -> Measured:
    """Train; return the loss and the share of right words on held-out texts."""

    def own_direction(job: Job) -> None:
        model: Any = job.model
        unit = {"count": 1.0, "small count": 1 / longest}[cell["own direction"]]
        counts = CountsInOneDirection(model.config.width, unit, cell.seed).to(cell.device)
        model.source_positions = model.target_positions = counts

    longest, settings = cell["longest"], {**SETTINGS, "model.max_positions": cell["longest"] + 2}
    pairs = tasks.examples(tasks.copy, cell.seed, cell["pairs"], (6, longest), tasks.letters(12), 200)
    change = own_direction if cell["own direction"] else None
    run = train_pairs(cell, "transformer-small", settings, pairs.train, pairs.dev, steps=cell["steps"], change=change)
    return {"right": run.word_accuracy(pairs.test), "loss": run.loss()}


CLAIM = Claim(
    topic="order and length",
    statement="Counting and normalised positions fail where sinusoidal ones work.",
    source="folklore: the usual way to motivate Vaswani et al. 2017, section 3.5",
    measured="The share of words at their right place when a Transformer (2 + 2 layers of width 64, post-norm) repeats 6 to "
    "16 random letters of 12, with an end (at GPU size 4 + 4 layers of width 256, and 6 to 64 letters).",
    prediction="Each of the four counts ends at least 30 points below sinusoidal positions, which are right in at least 90 %.",
    explanation="If seat 20 is marked by 20 and seat 21 by 21, the two marks are nearly the same, and both are so loud that "
    "one hears nothing else. If the marks go from 0 to 1, neighbours differ by a hair. Waves of many lengths are like the "
    "hands of a clock: the fast one tells neighbours apart, the slow one the rough place.",
    formula="counting: x + t·1;   normalised: x + t/T·1;   sinusoidal: x + (sin ωᵢt, cos ωᵢt), ωᵢ = 10000^(−2i/d)",
    changes="Deeper networks can compute sharp functions of a count; longer texts make it harder. Scaled well, a count in its "
    "own direction may learn late what sinusoids give at once.",
    revised="After counting positions had worked, a network without positions was added, to rule out that the task needs none.",
    variants={
        "sinusoidal": {"model.positions": "sinusoidal", "own direction": ""},
        "counting": {"model.positions": "counting", "own direction": ""},
        "normalised": {"model.positions": "normalised", "own direction": ""},
        "counting, own direction": {"model.positions": "none", "own direction": "count"},
        "0 to 1, own direction": {"model.positions": "none", "own direction": "small count"},
        "none": {"model.positions": "none", "own direction": ""},
    },
    sizes={
        "cpu": {"longest": 16, "pairs": 20000, "steps": 800, "training.batch_tokens": 512},
        "quick": {"steps": 250},
        "gpu": {
            "longest": 64,
            "pairs": 100000,
            "steps": 2000,
            "model.width": 256,
            "model.feedforward": 1024,
            "model.encoder_layers": 4,
            "model.decoder_layers": 4,
            "training.batch_tokens": 8192,
            "training.row_width": 128,
            "training.learning_rate": 0.0007,
        },
    },
    measure=measure,
    units={"right": "words at their right place", "loss": "loss on held-out texts, nats a token"},
    parts=tuple(
        Lower(f"{kind} fails", "right", kind, "sinusoidal", by=0.3)
        for kind in ("counting", "normalised", "counting, own direction", "0 to 1, own direction")
    ),
    controls=(
        Higher("sinusoidal positions work", "right", "sinusoidal", than=0.0, by=0.9),
        Lower("the task needs positions", "right", "none", "sinusoidal", by=0.3),
    ),
    picture=[strip("right", marks={"chance": 1 / 12}, span=(0, 1))],
)

"""Additive attention equals dot-product attention at small width, and is better than unscaled dot products at large width
(Vaswani et al. 2017, section 3.2.1, after Britz et al. 2017).

An LSTM encoder-decoder repeats random words, with the score of Bahdanau et al. (additive) or of Luong et al. (dot), narrow and
wide. The additive score has two more matrices; the rival explanation of its success is these weights, so that a fifth variant
scales the dot product by 1/sqrt(d), which adds no weights. If scores are what matters, it must catch up.
"""

import math
from typing import Any

from torch import Tensor

from qkv.claims import tasks
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.pictures import strip
from qkv.claims.training import RNN, train_pairs
from qkv.claims.verdict import Higher, Lower, Same
from qkv.jobs.job import Job

NARROW, WIDE = 48, 192
SETTINGS = {**RNN, "model.input_feeding": False}


def scale_scores(job: Job) -> None:
    """Divide the scores of a decoder's attention by sqrt(d)."""
    model: Any = job.model
    scores, width = model.cross.scores, model.config.width

    def scaled(q: Tensor, keys: Tensor) -> Tensor:
        return scores(q, keys) / math.sqrt(width)

    model.cross.scores = scaled


def measure(cell: Cell) -> Measured:
    """Train; return the loss on held-out texts, and the mean of those in training."""
    pairs = tasks.examples(tasks.copy, cell.seed, cell["pairs"], (4, 14), tasks.letters(16), 300)
    change = scale_scores if cell["scaled"] else None
    run = train_pairs(cell, "rnn-small", SETTINGS, pairs.train, pairs.dev, steps=cell["steps"], change=change)
    return {"mean_loss": run.mean_loss(), "loss": run.loss(), "weights": run.parameters}


CLAIM = Claim(
    topic="attention itself",
    statement="Additive and dot-product attention are alike at small width; at large width unscaled dot products are worse.",
    source="Vaswani et al. 2017, section 3.2.1; Britz et al. 2017, Massive Exploration of NMT Architectures, section 4.5",
    measured=f"The mean loss over the training, and the loss on held-out texts at its end, of an LSTM encoder-decoder of width "
    f"{NARROW} or {WIDE} that repeats 4 to 14 random letters of 16.",
    prediction="Over the whole training: narrow, the two are within 0.15 nats of each other. Wide, the unscaled dot product is "
    "at least 0.15 nats worse than the additive score, and at least 0.15 nats worse than the dot product divided by √d.",
    explanation="To compare two lists of numbers, one can multiply them number by number and add up, or let a little network "
    "judge. The first is faster. But the longer the lists, the larger the sum, and then the softmax sees only the winner; "
    "dividing by √d repairs that.",
    formula="additive: vᵀ tanh(W q + U k);   dot: qᵀk;   scaled: qᵀk / √d",
    changes="States of an LSTM lie between −1 and 1 and begin small, so that their products grow less than those of "
    "independent numbers of variance 1. The learning rate is the same for all widths.",
    revised="At the end of training all variants were within 0.05 nats of 0, so that 0.15 could not be seen there. The mean loss "
    "over the training is compared instead; it is another quantity, and says which learns sooner.",
    variants={
        "additive, narrow": {"model.attention": "additive", "model.width": NARROW, "scaled": False},
        "dot, narrow": {"model.attention": "dot", "model.width": NARROW, "scaled": False},
        "additive, wide": {"model.attention": "additive", "model.width": WIDE, "scaled": False},
        "dot, wide": {"model.attention": "dot", "model.width": WIDE, "scaled": False},
        "scaled dot, wide": {"model.attention": "dot", "model.width": WIDE, "scaled": True},
    },
    sizes={"cpu": {"pairs": 20000, "steps": 600, "training.batch_tokens": 512}, "quick": {"steps": 120}},
    measure=measure,
    units={
        "mean_loss": "mean loss over the training, nats a token",
        "loss": "loss on held-out texts at the end, nats a token",
        "weights": "weights",
    },
    parts=(
        Same("narrow, the scores are alike", "mean_loss", "dot, narrow", "additive, narrow", within=0.15),
        Higher("wide, the dot product is worse", "mean_loss", "dot, wide", "additive, wide", by=0.15),
        Higher("wide, scaling repairs it", "mean_loss", "dot, wide", "scaled dot, wide", by=0.15),
    ),
    controls=(
        Lower("narrow, the task is learned", "loss", "additive, narrow", than=math.log(16), by=1.0),
        Lower("wide, the task is learned", "loss", "additive, wide", than=math.log(16), by=1.0),
    ),
    picture=[strip("mean_loss"), strip("loss")],
)

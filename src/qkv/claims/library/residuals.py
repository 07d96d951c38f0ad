"""Residual connections make depth trainable (He et al. 2016; Vaswani et al. 2017, section 3.1).

A pre-norm Transformer learns to reverse letters, with 1 + 1 or 6 + 6 layers, with and without the residual around each
sub-layer. A missing residual takes no weights away. Two rival explanations: "attention needs them at any depth", which the
shallow networks answer, and "the learning rate was wrong for it", for which the deep network has a third of the rate too.
"""

import math

from qkv.claims import tasks
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.pictures import strip
from qkv.claims.training import TRANSFORMER, train_pairs
from qkv.claims.verdict import Higher, Lower
from qkv.jobs.job import Job
from qkv.parts.residual import Residual

SMALL = {**TRANSFORMER, "model.width": 48, "model.feedforward": 96, "training.batch_tokens": 512}
UNLEARNED = math.log(12)  # the loss of guessing one of 12 letters
RATE = 0.002
DEEP, SHALLOW = ({"model.encoder_layers": n, "model.decoder_layers": n} for n in (6, 1))


class NoResidual(Residual):
    """The same norm before the sub-layer, and nothing around it."""

    def forward(self, x, sublayer):  # type: ignore[no-untyped-def]
        return sublayer(self.norm(x))


def without_residuals(job: Job) -> None:
    """Cut the way around each sub-layer; weights and their initial values stay."""
    for module in job.model.modules():
        if isinstance(module, Residual):
            module.__class__ = NoResidual


def measure(cell: Cell) -> Measured:
    """Train; return the loss on held-out texts."""
    pairs = tasks.examples(tasks.reverse, cell.seed, cell["pairs"], (3, cell["longest"]), tasks.letters(12), 300)
    change = None if cell["residuals"] else without_residuals
    run = train_pairs(cell, "transformer-small", SMALL, pairs.train, pairs.dev, steps=cell["steps"], change=change)
    return {"loss": run.loss()}


CLAIM = Claim(
    topic="training deep nets",
    statement="Residual connections make depth trainable.",
    source="He et al. 2016, Deep Residual Learning; Vaswani et al. 2017, section 3.1",
    measured="The loss on held-out texts of a pre-norm Transformer that learns to reverse 3 to 8 letters out of 12, with 1 + 1 "
    "or 6 + 6 layers, with residuals or without (at GPU size 3 to 20 letters, and width 128 instead of 48).",
    prediction="Without residuals, 6 + 6 layers end at least 0.5 nats worse than with them, also at a third of the learning "
    "rate; and they lose at least 0.5 nats more by it than 1 + 1 layers do.",
    explanation="In the game of whispers every player passes on what he understood, and after twelve players little is left. "
    "With a residual every player passes on the paper itself and only adds a note. So the twelfth still has the text, and a "
    "correction at the end finds its way back to the first.",
    formula="x ← x + F(x):   ∂xₙ/∂x₁ = ∏ (1 + F′ᵢ), against ∏ F′ᵢ without",
    changes="Careful initial values and other activations train deep networks without residuals too, slowly; more updates may "
    "close part of the gap.",
    variants={
        "6 + 6 layers, residuals": {"residuals": True, **DEEP},
        "6 + 6 layers, none": {"residuals": False, **DEEP},
        "6 + 6 layers, none, lower rate": {"residuals": False, **DEEP, "training.learning_rate": RATE / 3},
        "1 + 1 layers, residuals": {"residuals": True, **SHALLOW},
        "1 + 1 layers, none": {"residuals": False, **SHALLOW},
    },
    sizes={
        "cpu": {"longest": 8, "pairs": 20000, "steps": 400, "training.learning_rate": RATE},
        "quick": {"pairs": 5000, "steps": 80},
        "gpu": {
            "longest": 20, "pairs": 100000, "steps": 1500, "model.width": 128, "model.feedforward": 512, "model.heads": 8,
            "training.batch_tokens": 4096,
        },
    },
    measure=measure,
    units={"loss": "loss on held-out texts, nats a token"},
    parts=(
        Higher("without residuals the deep one learns worse", "loss", "6 + 6 layers, none", "6 + 6 layers, residuals", by=0.5),
        Higher("at a lower rate too", "loss", "6 + 6 layers, none, lower rate", "6 + 6 layers, residuals", by=0.5),
        Higher(
            "depth is what needs them", "loss", ("6 + 6 layers, none", "6 + 6 layers, residuals"),
            ("1 + 1 layers, none", "1 + 1 layers, residuals"), by=0.5,
        ),
    ),
    controls=(
        Lower("with residuals the deep network learns", "loss", "6 + 6 layers, residuals", than=UNLEARNED, by=0.8),
        Lower("with residuals the shallow network learns", "loss", "1 + 1 layers, residuals", than=UNLEARNED, by=0.8),
    ),
    picture=[strip("loss", marks={"guessing": UNLEARNED})],
)  # fmt: skip

"""Pre-norm trains without warm-up, post-norm needs it (Xiong et al. 2020, On Layer Normalization in the Transformer
Architecture).

A Transformer of 6 + 6 layers learns to reverse letters, with the norm before or after each residual, with and without a
warm-up of the learning rate. Everything else is the same; the peak rate is that of our recipe for small models.
"""

import math

from qkv.claims import tasks
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.pictures import strip
from qkv.claims.training import TRANSFORMER, train_pairs
from qkv.claims.verdict import Higher, Lower, Same

DEEP = {**TRANSFORMER, "model.width": 48, "model.feedforward": 96, "model.encoder_layers": 6, "model.decoder_layers": 6,
        "training.batch_tokens": 512, "training.clip": 0.0}  # fmt: skip

UNLEARNED = math.log(12)  # the loss of guessing one of 12 letters


def measure(cell: Cell) -> Measured:
    """Train; return the loss on held-out texts."""
    pairs = tasks.examples(tasks.reverse, cell.seed, cell["pairs"], (3, cell["longest"]), tasks.letters(12), 300)
    run = train_pairs(cell, "transformer-small", DEEP, pairs.train, pairs.dev, steps=cell["steps"])
    return {"loss": run.loss()}


CLAIM = Claim(
    topic="training deep nets",
    statement="Pre-norm trains without warm-up; post-norm needs it.",
    source="Xiong et al. 2020, On Layer Normalization in the Transformer Architecture",
    measured="The loss on held-out texts of a Transformer with 6 + 6 layers that learns to reverse 3 to 8 letters, at a peak"
    " learning rate of 0.002, with a warm-up over a tenth of the updates or none (at GPU size 3 to 12 letters, and width 256"
    " instead of 48).",
    prediction="Without warm-up, post-norm ends at least 0.3 nats worse than with it; pre-norm within 0.1 nats of it.",
    explanation="Every layer adds something to its input and then evens out the size of the result. If it evens out the sum "
    "(post), the first big steps of learning shake all layers above; one must begin with small steps. If it evens out only what"
    " a layer reads (pre), there is a straight way through the net that nothing disturbs.",
    formula="post: x ← Norm(x + F(x));   pre: x ← x + F(Norm(x))",
    changes="A smaller learning rate lets post-norm train without warm-up; more layers make it harder. Clipping of "
    "gradients, which is off here, hides part of the effect.",
    revised="Its controls were added when most of its first cells were known. At GPU size the rate was 0.0005, where post-norm "
    "needed no warm-up; 0.002 was chosen by pilots with seeds 100 and 101.",
    variants={
        f"{norm}-norm, {word}": {"model.norm": norm, "training.warmup": warmup}
        for norm in ("pre", "post")
        for word, warmup in (("warm-up", 0.1), ("no warm-up", 0))
    },
    sizes={
        "cpu": {"longest": 8, "pairs": 20000, "steps": 400, "training.learning_rate": 0.002},
        "quick": {"steps": 100},
        "gpu": {
            "longest": 12,
            "pairs": 100000,
            "steps": 1000,
            "model.width": 256,
            "model.feedforward": 1024,
            "model.heads": 8,
            "training.batch_tokens": 4096,
            "training.learning_rate": 0.002,
        },
    },
    measure=measure,
    units={"loss": "loss on held-out texts, nats a token"},
    parts=(
        Higher("post-norm needs warm-up", "loss", "post-norm, no warm-up", "post-norm, warm-up", by=0.3),
        Same("pre-norm does not", "loss", "pre-norm, no warm-up", "pre-norm, warm-up", within=0.1),
    ),
    controls=tuple(
        Lower(f"with warm-up {norm}-norm learns", "loss", f"{norm}-norm, warm-up", than=UNLEARNED, by=1.0)
        for norm in ("pre", "post")
    ),
    picture=[strip("loss")],
)

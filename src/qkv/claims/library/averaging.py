"""Averaging the last checkpoints makes a better model (Vaswani et al. 2017, section 6.1).

One training gives both: the weights of its last update, and the mean of five checkpoints up to it. The rival explanation: weights
jump around a good place because the learning rate is still high, and the mean lies in the middle; then a rate that falls to 0
gives the same for nothing. So the same network is trained with the paper's schedule, whose rate stays high, and with a cosine.
"""

from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.language import SMALL, translation_examples
from qkv.claims.pictures import strip
from qkv.claims.training import TRANSFORMER, train_pairs
from qkv.claims.verdict import Always, Higher, Same
from qkv.training import checkpoints

KEPT = 5


def measure(cell: Cell) -> Measured:
    """Train; return the loss of the last weights and of the mean of the last checkpoints."""
    pairs = translation_examples(cell.seed, cell["pairs"], **SMALL)
    saved = {"training.save_every": cell["steps"] // 60, "training.keep": KEPT}  # the paper's: over the last 7 % of the time
    run = train_pairs(cell, "transformer-small", {**TRANSFORMER, **saved}, pairs.train, pairs.dev, steps=cell["steps"])
    last = run.loss()
    files = [folder / checkpoints.MODEL for folder in checkpoints.folders(run.folder)][-KEPT:]
    checkpoints.set_weights(run.model, checkpoints.average(files), "mean")
    mean = run.loss()
    return {"last": last, "mean": mean, "gain": last - mean, "files": len(files)}


CLAIM = Claim(
    topic="training deep nets",
    statement="Averaging the last checkpoints makes a better model, as long as the learning rate is high.",
    source="Vaswani et al. 2017, section 6.1; why: Izmailov et al. 2018, Averaging Weights Leads to Wider Optima",
    measured="The loss on held-out sentences of a small translator of an artificial language, with the weights of the last "
    "update, and with the mean of five checkpoints from the last twelfth of the training.",
    prediction="With the paper's schedule (inverse square root) the mean is at least 0.02 nats better. With a rate that falls to "
    "0 it is within 0.02 nats of the last weights.",
    explanation="Throw a ball into a bowl and shake the bowl: the ball jumps around the deepest point. One photograph shows it "
    "somewhere beside; the mean of five photographs is closer to the middle. If you stop shaking, slowly, the ball comes to rest "
    "there by itself, and the mean tells nothing new.",
    formula="w = (w₁ + … + w₅) / 5",
    changes="A higher rate or a smaller batch makes weights jump more, and averaging gain more; checkpoints that lie too far "
    "apart do not average well.",
    revised="With batches of 512 tokens and a rate of 0.003, the last weights came within 0.01 nats of what can be known. In "
    "pilots with seed 101, weights jump enough with batches of 256 tokens and twice the rate. Sizes of effects stayed, "
    "and a control asks for room.",
    variants={
        "rate stays high": {"training.schedule": "inverse-sqrt", "training.warmup": 0.1},
        "rate falls to 0": {"training.schedule": "cosine", "training.warmup": 0.1},
    },
    sizes={
        "cpu": {
            "pairs": 8000, "steps": 1200, "training.batch_tokens": 256, "training.learning_rate": 0.006, "model.dropout": 0.1,
        },
        "quick": {"pairs": 3000, "steps": 300},
    },
    measure=measure,
    units={
        "gain": "loss of the last weights − loss of the mean, nats",
        "last": "loss of the last weights, nats a token",
        "mean": "loss of the mean of 5 checkpoints, nats a token",
        "files": "checkpoints in the mean",
    },
    parts=(
        Higher("averaging helps while the rate is high", "gain", "rate stays high", than=0.0, by=0.02),
    ),
    further=(
        Same("averaging changes nothing where the rate has fallen", "gain", "rate falls to 0", than=0.0, within=0.02),
    ),
    controls=(
        Always("the mean is over five", "files", "rate stays high", at_least=KEPT),
        Always("the task is learned", "last", "rate stays high", at_most=2.5),
        Higher("there is room to gain", "last", "rate falls to 0", than=0.06, by=0.02),
    ),
    picture=[strip("gain", marks={"no gain": 0.0}), strip("last"), strip("mean")],
)  # fmt: skip

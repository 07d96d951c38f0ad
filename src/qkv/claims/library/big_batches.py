"""Many updates with small batches beat few with big ones, for the same text; at equal updates big batches are better (Popel and
Bojar 2018; McCandlish et al. 2018).

A small Transformer translates sentences of an artificial language. The rival explanation of what few updates with big batches
lose is the learning rate, which big batches allow to be higher: each kind is tried at three rates, and judged by the best.
"""

from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.language import SMALL, translation_examples
from qkv.claims.pictures import strip
from qkv.claims.training import TRANSFORMER, train_pairs
from qkv.claims.verdict import Always, Higher, Lower

TIMES = 4  # tokens of a big batch, in small ones
RATES, FEW_TOKENS = (0.004, 0.008, 0.016), 256
SMALL_BATCHES = "small batches, many updates"


def measure(cell: Cell) -> Measured:
    """Train at each rate; return the losses on held-out sentences, the lowest, and the number of updates."""
    pairs = translation_examples(cell.seed, cell["pairs"], **SMALL)
    steps, losses = cell["updates"] // cell["fewer"], dict[str, float]()
    for rate in RATES:
        settings = {**TRANSFORMER, "training.learning_rate": rate}
        losses[f"at {rate}"] = train_pairs(cell, "transformer-small", settings, pairs.train, pairs.dev, steps=steps).loss()
    *lower, highest = losses.values()
    return {"loss": min(losses.values()), **losses, "edge": highest - min(lower), "updates": steps}


CLAIM = Claim(
    topic="training deep nets",
    statement="For the same text read, many updates with small batches beat few with big ones; for the same updates, big batches "
    "are better.",
    source="Popel and Bojar 2018, Training Tips for the Transformer Model; McCandlish et al. 2018, Large-Batch Training",
    measured="The loss on held-out sentences of a small translator of an artificial language, with batches of 256 or 1,024 "
    "target tokens, for as many tokens in all or as many updates, at the best of three learning rates.",
    prediction="For the same tokens, big batches end at least 0.1 nats worse. For the same updates, which is four times the "
    "text, they end at least 0.05 nats better.",
    explanation="You look for a way by asking people. Asking four of them at each corner makes each choice surer; asking one at "
    "each of four corners lets you walk four times as far. As long as one answer is mostly right, walking is better. If you may "
    "ask four at each corner for nothing, do.",
    formula="noise of a step ∝ 1 / √batch;   steps = text / batch",
    changes="Near the end of learning, and with noisier gradients, big batches lose less. On a parallel machine a big batch "
    "takes hardly longer than a small one: then updates, not tokens, are the cost.",
    revised="Big batches had three rates and small ones one, and ended level at the highest, 0.008. All have three now, of "
    "which 0.016 is the highest, and a control asks that it is too high. Sizes of effects stayed.",
    variants={
        SMALL_BATCHES: {"training.batch_tokens": FEW_TOKENS, "fewer": 1},
        "big batches, few updates": {"training.batch_tokens": TIMES * FEW_TOKENS, "fewer": TIMES},
        "big batches, many updates": {"training.batch_tokens": TIMES * FEW_TOKENS, "fewer": 1},
    },
    sizes={"cpu": {"pairs": 10000, "updates": 800}, "quick": {"pairs": 3000, "updates": 200}},
    measure=measure,
    units={
        "loss": "loss at the best rate, nats a token",
        **{f"at {rate}": f"loss at a rate of {rate}" for rate in RATES},
        "edge": "loss at the highest rate above the best of the others",
        "updates": "updates",
    },
    parts=(
        Higher("big batches are worse for the same text", "loss", "big batches, few updates", SMALL_BATCHES, by=0.1),
        Lower("and better for the same updates", "loss", "big batches, many updates", SMALL_BATCHES, by=0.05),
    ),
    controls=(
        Always("the task is learned", "loss", SMALL_BATCHES, at_most=2.5),
        Higher("a higher rate is no better for few updates", "edge", "big batches, few updates", than=0.0, by=0.001),
    ),
    picture=[strip("loss"), strip(*(f"at {rate}" for rate in RATES), span=(0,))],
)  # fmt: skip

"""Many updates with small batches beat few with big ones, for the same text; at equal updates big batches are better (Popel and
Bojar 2018; McCandlish et al. 2018).

A small Transformer translates sentences of an artificial language. The rival explanation of what few updates with big batches
lose is the learning rate, which big batches allow to be higher: they are also tried with two and with four times the rate.
"""

from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.experiment import Result
from qkv.claims.language import translation_examples
from qkv.claims.pictures import Picture, strip
from qkv.claims.training import TRANSFORMER, train_pairs
from qkv.claims.verdict import Always, Higher, Lower

TIMES = 4  # tokens of a big batch, in small ones
RATE, SMALL = 0.002, 256


def measure(cell: Cell) -> Measured:
    """Train; return the loss on held-out sentences, and the number of updates."""
    pairs = translation_examples(cell.seed, cell["pairs"], topics=4, nouns=20, verbs=8, adjectives=6)
    steps = cell["updates"] // cell["fewer"]
    run = train_pairs(cell, "transformer-small", TRANSFORMER, pairs.train, pairs.dev, steps=steps)
    return {"loss": run.loss(), "updates": steps}


def picture(result: Result) -> Picture:
    """Draw the losses."""
    return strip(result, "loss")


FEW = {"training.batch_tokens": TIMES * SMALL, "fewer": TIMES}
CLAIM = Claim(
    topic="training deep nets",
    statement="For the same text read, many updates with small batches beat few with big ones; for the same updates, big batches "
    "are better.",
    source="Popel and Bojar 2018, Training Tips for the Transformer Model; McCandlish et al. 2018, Large-Batch Training",
    measured="The loss on held-out sentences of a small translator of an artificial language, with batches of 256 or 1,024 "
    "target tokens, for as many tokens in all or as many updates.",
    prediction="For the same tokens, big batches end at least 0.1 nats worse, also with two and with four times the learning "
    "rate. For the same updates, which is four times the text, they end at least 0.05 nats better.",
    explanation="You look for a way by asking people. Asking four of them at each corner makes each choice surer; asking one at "
    "each of four corners lets you walk four times as far. As long as one answer is mostly right, walking is better. If you may "
    "ask four at each corner for nothing, do.",
    formula="noise of a step ∝ 1 / √batch;   steps = text / batch",
    changes="Near the end of learning, and with noisier gradients, big batches lose less. On a parallel machine a big batch "
    "takes hardly longer than a small one: then updates, not tokens, are the cost.",
    variants={
        "small batches, many updates": {"training.batch_tokens": SMALL, "fewer": 1, "training.learning_rate": RATE},
        "big batches, few updates": {**FEW, "training.learning_rate": RATE},
        "big batches, few updates, rate x 2": {**FEW, "training.learning_rate": 2 * RATE},
        "big batches, few updates, rate x 4": {**FEW, "training.learning_rate": 4 * RATE},
        "big batches, many updates": {"training.batch_tokens": TIMES * SMALL, "fewer": 1, "training.learning_rate": RATE},
    },
    sizes={"cpu": {"pairs": 10000, "updates": 800}, "quick": {"pairs": 3000, "updates": 200}},
    measure=measure,
    units={"loss": "loss on held-out texts, nats a token", "updates": "updates"},
    parts=(
        *(Higher(f"{name} are worse", "loss", name, "small batches, many updates", by=0.1)
          for name in ("big batches, few updates", "big batches, few updates, rate x 2", "big batches, few updates, rate x 4")),
        Lower("for the same updates big batches are better", "loss", "big batches, many updates", "small batches, many updates",
              by=0.05),
    ),
    controls=(Always("the task is learned", "loss", "small batches, many updates", at_most=2.5),),
    picture=picture,
)  # fmt: skip

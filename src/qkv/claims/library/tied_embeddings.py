"""Tied embeddings save weights at no cost (Press and Wolf 2017; Vaswani et al. 2017, section 3.4).

A small Transformer translates sentences of an artificial language, most of its weights being embeddings. Source embedding, target
embedding and output layer are one matrix, two, or three. "No cost" is tested as "less than 0.05 nats". A narrower network without
ties shows that a loss of capacity would be seen.
"""

from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.language import translation_examples
from qkv.claims.pictures import strip
from qkv.claims.training import TRANSFORMER, train_pairs
from qkv.claims.verdict import Always, AtMost, Higher, Lower


def measure(cell: Cell) -> Measured:
    """Train; return the loss on held-out sentences, and the number of weights."""
    pairs = translation_examples(cell.seed, cell["pairs"])
    run = train_pairs(cell, "transformer-small", TRANSFORMER, pairs.train, pairs.dev, steps=cell["steps"])
    return {"loss": run.loss(), "weights": run.parameters}


CLAIM = Claim(
    topic="training deep nets",
    statement="Tied embeddings save weights at no cost.",
    source="Press and Wolf 2017, Using the Output Embedding to Improve Language Models; Vaswani et al. 2017, section 3.4",
    measured="The number of weights, and the loss on held-out sentences, of a small translator of an artificial language with a "
    "vocabulary of some 3,000 words.",
    prediction="With all three matrices tied there are at most two thirds of the weights, with two tied at most five sixths; the "
    "loss is at most 0.05 nats higher in both cases (it may be lower).",
    explanation="A translator has a list of all words to read them, and another to choose the word that it writes. Both lists "
    "say what a word means. So one list can do for both, and each word is learned from two sides.",
    formula="output: logits = E h, with E the matrix of embeddings",
    changes="Two languages that share few words gain little from one list for both; a very large text may be learned better with "
    "more weights.",
    variants={
        "all tied": {"model.tied": "all"},
        "target and output tied": {"model.tied": "target"},
        "nothing tied": {"model.tied": "none"},
        "nothing tied, narrow": {"model.tied": "none", "model.width": 16, "model.feedforward": 32},
    },
    sizes={"cpu": {"pairs": 10000, "steps": 900, "training.batch_tokens": 512}, "quick": {"pairs": 3000, "steps": 200}},
    measure=measure,
    units={"loss": "loss on held-out texts, nats a token", "weights": "weights"},
    parts=(
        Lower("tying all saves weights", "weights", "all tied", "nothing tied", times=1.5),
        Lower("tying two saves weights", "weights", "target and output tied", "nothing tied", times=1.2),
        *(AtMost(f"{name}: it costs less than 0.05 nats", "loss", (name, "nothing tied"), at_most=0.05)
          for name in ("all tied", "target and output tied")),
    ),
    controls=(
        Higher("the measure sees a loss of capacity", "loss", "nothing tied, narrow", "nothing tied", by=0.05),
        Always("the task is learned", "loss", "nothing tied", at_most=4.0),
    ),
    picture=[strip("loss"), strip("weights", span=(0,))],
)  # fmt: skip

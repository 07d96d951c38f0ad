"""One vector between encoder and decoder loses long sentences, attention does not (Cho et al. 2014; Bahdanau et al. 2015).

An LSTM encoder-decoder repeats texts of random words. Without attention its encoder must press the text into one vector. Both
variants read left to right and have no input feeding: attention is the one change. The rival explanation is size, so that a
third variant has one vector again, in a network with more weights than the one with attention.
"""

from qkv.claims import tasks
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.pictures import curves
from qkv.claims.training import RNN, train_pairs
from qkv.claims.verdict import Higher, Same

LENGTHS = (4, 8, 12, 16, 20, 24)
SETTINGS = {**RNN, "model.bidirectional": False, "model.input_feeding": False}


def measure(cell: Cell) -> Measured:
    """Train on texts of 2 to 24 words; return the share of right words at several lengths."""
    words = tasks.letters(20)
    pairs = tasks.examples(tasks.copy, cell.seed, cell["pairs"], (2, 24), words, 200)
    run = train_pairs(cell, "rnn-small", SETTINGS, pairs.train, pairs.dev, steps=cell["steps"])
    tests = [tasks.examples(tasks.copy, 1000 + cell.seed, 0, (length, length), words, 100).test for length in LENGTHS]
    right = [run.word_accuracy(test) for test in tests]
    return {"right": right, "short": right[0], "long": right[-1], "drop": right[0] - right[-1], "weights": run.parameters}


CLAIM = Claim(
    topic="order and length",
    statement="One vector between encoder and decoder loses long sentences, attention does not.",
    source="Cho et al. 2014, On the Properties of Neural Machine Translation; Bahdanau et al. 2015, figure 2",
    measured="The share of words at their right place when an LSTM encoder-decoder repeats random texts of 4 to 24 words.",
    prediction="From 4 to 24 words, the network with one vector loses at least 30 points, also with more weights; the one "
    "with attention stays within 10 points.",
    explanation="Without attention the network reads a whole sentence and keeps one list of numbers, however long the "
    "sentence is: like retelling a story after hearing it once. With attention it may look back at every word while it writes.",
    formula="one vector: yₜ = f(yₜ₋₁, h_S);   attention: yₜ = f(yₜ₋₁, Σₛ αₜₛ hₛ)",
    changes="A wider vector or more training moves the length at which one vector fails; texts with structure are easier to "
    "keep than random ones.",
    revised="In pilots 600 updates became 1,500 after a control had failed, and seed 1 was tried at two learning rates.",
    variants={
        "attention": {"model.attention": "general"},
        "one vector": {"model.attention": "none"},
        "one vector, more weights": {"model.attention": "none", "model.width": 144},
    },
    sizes={"cpu": {"pairs": 20000, "steps": 1500}, "quick": {"steps": 500}},
    measure=measure,
    units={
        "right": "words at their right place",
        "short": "right words of 4",
        "long": "right words of 24",
        "drop": "lost from 4 to 24 words",
        "weights": "weights",
    },
    parts=(
        Higher("one vector loses long texts", "drop", "one vector", than=0.0, by=0.3),
        Higher("more weights do not help it", "drop", "one vector, more weights", than=0.0, by=0.3),
        Same("attention does not", "drop", "attention", than=0.0, within=0.1),
    ),
    controls=(
        Higher("attention learns short texts", "short", "attention", than=0.0, by=0.8),
        Higher("one vector learns short texts", "short", "one vector", than=0.0, by=0.8),
    ),
    picture=[curves("right", LENGTHS, "words in the text", span=(0, 1))],
)

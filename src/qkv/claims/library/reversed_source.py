"""Reading the source reversed helps an RNN without attention (Sutskever et al. 2014, section 3.3).

An LSTM encoder-decoder repeats random words, read from left to right or from right to left. Reversed, the first words of the
source are read last, just before they are needed. Rivals: reversed reading might simply suit LSTMs; then it would help with
attention as well, and the task in which the target is reversed, too. Both are there as variants.
"""

from qkv.claims import tasks
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.pictures import strip
from qkv.claims.training import RNN, train_pairs
from qkv.claims.verdict import Higher, Lower, Same

SETTINGS = {**RNN, "model.bidirectional": False, "model.input_feeding": False}


def measure(cell: Cell) -> Measured:
    """Train; return the loss and the share of right words on held-out texts."""
    task = tasks.reverse if cell["task"] == "reverse" else tasks.copy
    pairs = tasks.examples(task, cell.seed, cell["pairs"], (4, 12), tasks.letters(16), 200)
    run = train_pairs(cell, "rnn-small", SETTINGS, pairs.train, pairs.dev, steps=cell["steps"])
    return {"loss": run.loss(), "right": run.word_accuracy(pairs.test)}


CLAIM = Claim(
    topic="order and length",
    statement="Reading the source reversed helps an RNN without attention.",
    source="Sutskever et al. 2014, Sequence to Sequence Learning with Neural Networks, section 3.3",
    measured="The loss on held-out texts of an LSTM encoder-decoder that repeats 4 to 12 random letters of 16, and the share "
    "of words that it writes at their right place.",
    prediction="Without attention, reading reversed lowers the loss by at least 0.2 nats a token (Sutskever et al.: "
    "perplexity 5.8 to 4.7). If the target is reversed too, it raises the loss by as much. With attention it changes less "
    "than 0.1 nats.",
    explanation="Who has heard a long list remembers its end best. If the list is read backwards, its end is what must be "
    "written first; and once the beginning is right, the rest is easier to learn.",
    formula="distance of xᵢ from its copy: forwards T for every i;   reversed 2i − 1, so 1 for the first",
    changes="Languages with another order of words have no such first words that belong together. Much training lets both ways "
    "repeat texts of this length.",
    variants={
        "forwards": {"task": "copy", "model.attention": "none", "model.reverse": False},
        "reversed": {"task": "copy", "model.attention": "none", "model.reverse": True},
        "forwards, target reversed": {"task": "reverse", "model.attention": "none", "model.reverse": False},
        "reversed, target reversed": {"task": "reverse", "model.attention": "none", "model.reverse": True},
        "forwards, attention": {"task": "copy", "model.attention": "general", "model.reverse": False},
        "reversed, attention": {"task": "copy", "model.attention": "general", "model.reverse": True},
    },
    sizes={"cpu": {"pairs": 20000, "steps": 600, "training.batch_tokens": 512}, "quick": {"steps": 150}},
    measure=measure,
    units={"loss": "loss on held-out texts, nats a token", "right": "words at their right place"},
    parts=(
        Lower("reversed reading helps", "loss", "reversed", "forwards", by=0.2),
        Higher("it hurts where the target is reversed", "loss", "reversed, target reversed", "forwards, target reversed", by=0.2),
        Same("with attention it does not matter", "loss", "reversed, attention", "forwards, attention", within=0.1),
    ),
    controls=(Lower("the better reading learns something", "loss", "reversed", than=2.6, by=0.5),),
    picture=[strip("loss")],
)

"""Without positions, attention is blind to order (Vaswani et al. 2017, section 3.5).

The same small Transformer with and without sinusoidal positions. The property is exact: permute the words, and the encoder's
states are permuted and otherwise the same. Its consequence is measured on a task that only order answers: which of two words
comes first. Positions here have no weights, so that both variants are equally large.
"""

import torch

from qkv.base.rows import padded_rows
from qkv.claims import tasks
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.pictures import strip
from qkv.claims.training import TRANSFORMER, train_pairs
from qkv.claims.verdict import Always, Higher, Same


def measure(cell: Cell) -> Measured:
    """Train the task, then permute an input of the trained encoder."""
    words = tasks.letters(12)
    pairs = tasks.examples(tasks.first_of_two, cell.seed, cell["pairs"], (4, 10), words, cell["tests"], tasks.a_and_b)
    run = train_pairs(cell, "transformer-small", TRANSFORMER, pairs.train, pairs.dev, steps=cell["steps"])
    generator = torch.Generator().manual_seed(cell.seed)
    ids = torch.randint(4, 4 + len(words), (32, 10), generator=generator).to(run.job.validator.device)
    order = torch.randperm(10, generator=generator)
    with torch.no_grad():
        states, permuted = (run.model.encode(padded_rows(rows, torch.ones_like(rows) > 0)) for rows in (ids, ids[:, order]))
    change = (permuted - states[:, order]).abs().max() / states.abs().max()
    return {"accuracy": run.exact(pairs.test), "change": float(change)}


CLAIM = Claim(
    topic="order and length",
    statement="Without positions, attention is blind to the order of words.",
    source="Vaswani et al. 2017, Attention Is All You Need, section 3.5",
    measured="How much the encoder's states change beyond being permuted when its input is permuted, and the accuracy on "
    "held-out texts of 4 to 10 letters in telling which of a and b comes first (chance 50 %).",
    prediction="Without positions the states are permuted to rounding (a relative change of at most 0.0001), and accuracy "
    "stays within 5 points of chance. With sinusoidal positions the same network is right in at least 90 %.",
    explanation="Attention compares every word with every other word and adds up what it finds. A sum does not depend on the"
    " order of its terms, so “dog bites man” and “man bites dog” look the same. Writing each word's position into its vector "
    "ends that.",
    formula="Attention(PX) = P · Attention(X) for every permutation matrix P",
    changes="A decoder that sees only the past knows some order even without positions: its first word sees one word, its "
    "second two. This experiment permutes the encoder's input.",
    variants={"no positions": {"model.positions": "none"}, "sinusoidal": {"model.positions": "sinusoidal"}},
    sizes={"cpu": {"pairs": 10000, "tests": 2000, "steps": 300, "training.batch_tokens": 256}, "quick": {"steps": 100}},
    measure=measure,
    units={"accuracy": "texts answered right", "change": "largest change of a state, relative"},
    parts=(
        Always("permuting the words only permutes the states", "change", "no positions", at_most=1e-4),
        Same("which word comes first is guessed", "accuracy", "no positions", than=0.5, within=0.05),
    ),
    controls=(
        Higher("with positions the task is learned", "accuracy", "sinusoidal", than=0.5, by=0.4),
        Always("the measure sees order where there is some", "change", "sinusoidal", at_least=0.01),
    ),
    picture=[strip("accuracy", marks={"chance": 0.5}, span=(0, 1))],
)

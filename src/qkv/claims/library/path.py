"""An RNN's path between two words grows with distance, attention's does not (Hochreiter 1991; Vaswani et al. 2017, section 4).

The text is 50 small letters but for one capital letter, and the answer is that letter: there is nothing to count or to
compare, only to carry. It stands 4 or 44 words before the end, in texts of the same length, so that the distance is the only
difference. An LSTM without attention carries it through its states; a Transformer attends. Beside the accuracy stands the
reason: how much the last state of the untrained encoder changes with a word some steps back.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from qkv.base.rows import padded_rows
from qkv.claims import tasks
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.pictures import curves, strip
from qkv.claims.training import RNN, TRANSFORMER, train_pairs
from qkv.claims.verdict import Higher, Same
from qkv.jobs.job import Job

LENGTH, NEAR, FAR = 50, 4, 44
BACK = (1, 4, 8, 16, 24, 34, 44)
CAPITALS = "ABCDEFGH"


def with_capital(back: int) -> Callable[[np.random.Generator, tasks.Words, int], tasks.Words]:
    """Return the function that draws a text with a capital letter about `back` words before its end."""

    def draw(rng: np.random.Generator, words: tasks.Words, length: int) -> tasks.Words:
        text = [*tasks.random_words(rng, words, length)]
        text[length - 1 - back - int(rng.integers(-2, 3))] = CAPITALS[rng.integers(len(CAPITALS))]
        return text

    return draw


def the_capital(words: tasks.Words) -> tasks.Words:
    """The only capital letter."""
    return [word for word in words if word in CAPITALS]


def gradients(job: Job, seed: int) -> list[float]:
    """Return the size of the last state's gradient with respect to the words at each distance of `BACK`, as powers of ten."""
    model: Any = job.model
    kept = list[Any]()

    def keep(_: object, __: object, output: torch.Tensor) -> None:
        output.retain_grad()
        kept.append(output)

    hook = model.source_embedding.register_forward_hook(keep)
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, 15, (32, LENGTH), generator=generator)
    states = model.encode(padded_rows(ids, ids > 0))
    last = (states[0] if isinstance(states, tuple) else states)[:, -1]
    (last * torch.randn(last.shape, generator=generator)).sum().backward()
    hook.remove()
    model.zero_grad()
    sizes = kept[0].grad.norm(dim=-1).mean(0)
    return [math.log10(max(float(sizes[-1 - back]), 1e-30)) for back in BACK]


def measure(cell: Cell) -> Measured:
    """Measure gradients before training, then train on texts with the letter at one distance."""
    recipe, settings = ("rnn-small", RNN) if cell["rnn"] else ("transformer-small", TRANSFORMER)
    draw, found = with_capital(cell["back"]), list[float]()
    pairs = tasks.examples(the_capital, cell.seed, cell["pairs"], (LENGTH, LENGTH), tasks.letters(10), 300, draw)
    run = train_pairs(
        cell, recipe, settings, pairs.train, pairs.dev, steps=cell["steps"],
        change=lambda job: found.extend(gradients(job, cell.seed)),
    )  # fmt: skip
    faded = found[BACK.index(NEAR)] - found[BACK.index(FAR)]
    return {"gradient": found, "faded": faded, "accuracy": run.exact(pairs.test), "weights": run.parameters}


CLAIM = Claim(
    topic="order and length",
    statement="An RNN's path between two words grows with their distance, attention's does not.",
    source="Hochreiter 1991; Bengio et al. 1994; Vaswani et al. 2017, section 4 and table 1",
    measured="The accuracy in repeating the one capital letter (of 8) in a text of 50 letters, about 4 or 44 words before its "
    "end; and the gradient of an untrained encoder's last state with respect to a word 4 and 44 back.",
    prediction="From 4 to 44 words back the LSTM loses at least 30 points and its gradient shrinks to a thousandth or less; "
    "the Transformer stays within 10 points, and its gradient within a factor of three (0.5 powers of ten).",
    explanation="In an RNN a word is passed on from state to state, like a whispered message: the longer the row, the less "
    "arrives, and the less one can learn from a mistake. With attention the last word asks every word directly.",
    formula="RNN: ∂h_T/∂x_{T−k} = Πᵢ ∂hᵢ/∂hᵢ₋₁ · ∂h/∂x, k factors;   attention: one factor for every k",
    changes="More training: an LSTM can learn to keep its gates open, once it has found that it must. Gates that start wide "
    "open, or examples with all distances, from which it learns the near ones first, make it easier.",
    variants={
        f"{word}, {name}": {"rnn": rnn, "back": back, **extra}
        for word, rnn, extra in (("RNN", True, {"model.attention": "none"}), ("attention", False, {}))
        for name, back in (("near", NEAR), ("far", FAR))
    },
    sizes={"cpu": {"pairs": 10000, "steps": 400, "training.batch_tokens": 1024}, "quick": {"steps": 120}},
    measure=measure,
    units={
        "accuracy": "letters named right",
        "gradient": "gradient of the last state, as a power of ten",
        "faded": "fading of the gradient from 4 to 44 back, in powers of ten",
        "weights": "weights",
    },
    parts=(
        Higher("an RNN recalls far words worse", "accuracy", "RNN, near", "RNN, far", by=0.3),
        Same("attention recalls them as well", "accuracy", "attention, near", "attention, far", within=0.1),
        Higher("an RNN's gradient fades", "faded", "RNN, far", than=0.0, by=3.0),
        Same("attention's gradient does not", "faded", "attention, far", than=0.0, within=0.5),
    ),
    controls=(
        Higher("the RNN learns near words", "accuracy", "RNN, near", than=0.0, by=0.8),
        Higher("attention learns near words", "accuracy", "attention, near", than=0.0, by=0.8),
    ),
    picture=[
        strip("accuracy", marks={"chance": 1 / len(CAPITALS)}, span=(0, 1)),
        curves("gradient", BACK, "words back", ["RNN, far", "attention, far"]),
    ],
)

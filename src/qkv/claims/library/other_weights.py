"""Attention is not explanation: other weights give the same output (Jain and Wallace 2019; Wiegreffe and Pinter 2019).

A bidirectional LSTM answers a question about letters through one attention over its states and nothing else, like the classifiers
of Jain and Wallace. In one task a single letter decides (the one after a mark), in the other many do (are there more a or b?).
After training the weights are exchanged: shuffled, and, text by text, for those farthest away that leave the output as it was.
Wiegreffe and Pinter ask first whether attention was needed: so networks also learn with equal weights.
"""

import contextlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qkv.base.rows import Rows
from qkv.base.seeds import rng_at
from qkv.claims import tasks
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.pictures import strip
from qkv.claims.training import RNN, train_pairs, whole_rows
from qkv.claims.verdict import Higher
from qkv.jobs.job import Job
from qkv.parts.dot_product import changing_weights, recording

LENGTH, MARK, SHUFFLES = 12, "x", 60
SAME = 0.01  # outputs that differ by at most so much (total variation) are the same, as in Jain and Wallace
SETTINGS = {**RNN, "model.attention": "additive", "model.input_feeding": False}
TASKS: dict[str, tasks.Task] = {
    "one letter": lambda words: [words[words.index(MARK) + 1]],
    "many letters": lambda words: ["ab"[words.count("b") > words.count("a")]],
}


def draw(rng: np.random.Generator, words: tasks.Words, length: int) -> tasks.Words:
    """Draw letters with one mark, not at the end, and unequally many a and b."""
    drawn = ["a", "b"]
    while drawn.count("a") == drawn.count("b"):
        drawn = [*tasks.random_words(rng, words, length)]
        drawn[rng.integers(0, length - 1)] = MARK
    return drawn


def attend_only(job: Job) -> None:
    """Let the source reach the decoder through its attention alone: the decoder starts from zeros."""
    model: Any = job.model
    encode = model.encode

    def states_alone(source: Rows) -> Any:
        states, ends = encode(source)
        return states, [tuple(map(torch.zeros_like, end)) for end in ends]

    model.encode = states_alone


def distance(one: Tensor, other: Tensor) -> Tensor:
    """Return the total variation distance of distributions: 0 where they are equal, 1 where they share nothing."""
    return (one - other).abs().sum(-1) / 2


@torch.no_grad()
def exchange(model: Any, source: Rows, read: Rows, seed: int) -> Measured:
    """Exchange the weights of each text; return what that does to the weights and to the output."""

    def output() -> Tensor:
        return model.logits(model(source, read))[:, 0].softmax(-1)  # (N, V)

    with recording() as seen:
        before = output()
    learned, rng = seen[0][:, 0, 0], rng_at(seed, "weights")  # (N, S)
    count = len(learned)
    orders = (rng.permuted([range(LENGTH)] * count, axis=1) for _ in range(SHUFFLES))
    shuffled = [learned.gather(1, torch.from_numpy(order)) for order in orders]
    moved, stays, farthest = list[Tensor](), list[Tensor](), torch.zeros(count)
    for number, weights in enumerate([*shuffled, *torch.eye(LENGTH)[:, None].expand(-1, count, -1)]):
        with changing_weights(lambda *_, weights=weights: weights[:, None, None]):
            after = output()
        far = distance(weights, learned)
        farthest = torch.maximum(farthest, far * (distance(after, before) <= SAME))
        if number < SHUFFLES:
            moved.append(far)
            stays.append((after.argmax(-1) == before.argmax(-1)).float())
    shares = {"moved": torch.stack(moved), "stays": torch.stack(stays), "farthest": farthest}
    return {name: float(share.mean()) for name, share in shares.items()}


def measure(cell: Cell) -> Measured:
    """Train, then exchange weights."""
    pairs = tasks.examples(TASKS[cell["task"]], cell.seed, cell["pairs"], (LENGTH, LENGTH), tasks.letters(6), 300, draw)
    equal = changing_weights(lambda scores, _: (scores * 0).softmax(-1))
    with equal if cell["equal"] else contextlib.nullcontext():
        run = train_pairs(cell, "rnn-small", SETTINGS, pairs.train, pairs.dev, steps=cell["steps"], change=attend_only)
        (source, read, labels), model = run.token_ids(pairs.test), run.model.to("cpu")
        texts = whole_rows(source), whole_rows(read)
        right = (model.logits(model(*texts))[:, 0].argmax(-1) == labels[:, 0]).float().mean()
        return {"right": float(right), **exchange(model, *texts, cell.seed)}


CLAIM = Claim(
    topic="looking",
    statement="Attention is not explanation: with other weights the output stays the same.",
    source="Jain and Wallace 2019, Attention is not Explanation, section 4.2; against it Wiegreffe and Pinter 2019, Attention is "
    "not not Explanation, section 3",
    measured="For an LSTM that answers with one letter, through attention alone: the share of answers that stay when the weights "
    "of the 12 letters are shuffled, and how far from the learned weights (total variation) others can be that change the "
    f"output by at most {SAME}: {SHUFFLES} shuffles are tried, and each letter alone. The same for equal weights in training.",
    prediction="If attention does not explain, at least 90 % of the answers stay with shuffled weights, and weights at a "
    "distance of at least 0.5 give the same output, whether one letter decides or many do. Wiegreffe and Pinter expect that "
    "only where equal weights learn the task too: there attention was not needed.",
    explanation="A pupil points to a line of a book and gives an answer. Cover the line and let her point to another one: if the "
    "answer stays the same, it did not come from the line. Where every line says a part of it, pointing tells little; where one "
    "line holds it, pointing elsewhere should spoil it.",
    formula="y(α) ≈ y(α′) with α′ far from α?   TV(α, α′) = ½ Σₛ |αₛ − α′ₛ|",
    changes="Each state of the LSTM knows its neighbours, so that several hold the same. In natural texts the states around "
    "all words lean to one answer, and more weights give it. A model whose own weights were trained to mislead is not tried.",
    variants={f"{task}{how}": {"task": task, "equal": bool(how)} for task in TASKS for how in ("", ", equal weights")},
    sizes={"cpu": {"pairs": 10000, "steps": 800, "training.batch_tokens": 1024}, "quick": {"steps": 300}},
    measure=measure,
    units={
        "stays": "answers that stay with shuffled weights",
        "farthest": "distance of the farthest weights with the same output",
        "right": "right answers",
        "moved": "distance of shuffled weights",
    },
    parts=(
        *(Higher(f"{task}: shuffled weights leave the answer", "stays", task, than=0.0, by=0.9) for task in TASKS),
        *(Higher(f"{task}: weights far away give the same output", "farthest", task, than=0.0, by=0.5) for task in TASKS),
    ),
    further=(
        Higher("many letters need no learned weights", "right", "many letters, equal weights", than=0.0, by=0.95),
        Higher("one letter needs them", "right", "one letter", "one letter, equal weights", by=0.05),
    ),
    controls=(
        *(Higher(f"{task}: the task is learned", "right", task, than=0.0, by=0.95) for task in TASKS),
        *(Higher(f"{task}: shuffling moves the weights", "moved", task, than=0.0, by=0.3) for task in TASKS),
    ),
    picture=[strip("stays", "farthest", "right", span=(0, 1))],
)

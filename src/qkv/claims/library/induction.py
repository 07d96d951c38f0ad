"""Heads that copy appear at a point of training (Olsson et al. 2022, In-context Learning and Induction Heads).

A GPT reads a random sequence of words, and then the same sequence again. In the second half every word can be known, by looking
for the same word earlier and copying what came after it: an induction head. Lengths are random, so that a fixed distance does
not help. The paper says that one layer cannot do it; the rival explanation is size, so that the one layer has equal weights.
"""

from typing import Any

import numpy as np
import torch
from torch import nn

from qkv.base.rows import Rows
from qkv.base.seeds import rng_at
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.experiment import Result
from qkv.claims.pictures import Picture, curves, stack
from qkv.claims.probes import rows_of
from qkv.claims.training import GPT, train_text
from qkv.claims.verdict import Higher, Lower
from qkv.folder.run import load_tokenizers
from qkv.jobs.job import Job
from qkv.lens.capture import capture

WORDS, LENGTH, POINTS = [a + b for a in "bdfgkl" for b in "aeiou"], 12, 40
SETTINGS = {**GPT, "model.positions": "rotary", "data.length": 48, "training.learning_rate": 0.005}


def repeated(rng: np.random.Generator, length: int) -> str:
    """Return different random words, twice."""
    return " ".join([WORDS[i] for i in rng.permutation(len(WORDS))[:length]] * 2)


@torch.no_grad()
def look(gpt: Any, rows: Rows) -> tuple[list[float], float]:
    """Return the share of attention on the word after the earlier occurrence, of each head, and the share of copied words."""
    with capture(gpt) as captured:
        hidden = gpt(rows)
    at = torch.arange(LENGTH + 1, 2 * LENGTH)  # positions of the second half whose next word can be known; 0 is bos
    heads = [weights[:, head, at, at - LENGTH + 1].mean() for weights in captured.values() for head in range(weights.size(1))]
    right = gpt.logits(hidden[:, at]).argmax(-1) == rows.ids[:, at + 1]
    return [float(head) for head in heads], float(right.float().mean())


def measure(cell: Cell) -> Measured:
    """Train, and look forty times during training."""
    rng = rng_at(cell.seed, "sequences")
    texts = [[repeated(rng, int(rng.integers(6, 21)))] for _ in range(cell["texts"])]
    test = [repeated(rng, LENGTH) for _ in range(100)]
    seen: list[tuple[float, float]] = []
    updates, looking = 0, False

    def watch(job: Job) -> None:
        def before(gpt: nn.Module, _: Any) -> None:
            nonlocal updates, looking
            if looking:  # our own call
                return
            updates += 1
            if updates % (cell["steps"] // POINTS) == 0 and len(seen) < POINTS:
                looking = True
                heads, copied = look(gpt, Rows(*(x.to(cell.device) for x in rows[:3])))
                seen.append((max(heads), copied))
                looking = False

        found = load_tokenizers(cell.folder / "run")
        assert found is not None
        rows = rows_of(found.source, test)
        job.model.encoder.register_forward_pre_hook(before)  # type: ignore[union-attr]

    run = train_text(cell, "gpt-mini", SETTINGS, texts[50:], texts[:50], steps=cell["steps"], change=watch)
    induction, copied = (np.array(curve) for curve in zip(*seen, strict=True))
    tenth = POINTS // 10
    rise = copied[-1] - copied[0]
    halves = [int(np.argmax(curve >= (curve[0] + curve.max()) / 2)) for curve in (induction, copied)]
    return {
        "copied": copied.tolist(), "induction": induction.tolist(),
        "start": float(copied[0]), "end": float(copied[-1]), "head": float(induction[-1]),
        "jump": float((copied[tenth:] - copied[:-tenth]).max() / max(rise, 0.1)),
        "apart": abs(halves[0] - halves[1]) / POINTS, "weights": run.parameters,
    }  # fmt: skip


def picture(result: Result) -> Picture:
    """Draw copying and the strongest head over the training."""
    share = [round((i + 1) / POINTS, 3) for i in range(POINTS)]
    return stack(*(curves(result, figure, share, "share of the training", span=(0, 1)) for figure in ("copied", "induction")))


CLAIM = Claim(
    topic="looking",
    statement="Heads that copy appear at a point of training, and with them copying from the text.",
    source="Olsson et al. 2022, In-context Learning and Induction Heads, arguments 1 and 3; Elhage et al. 2021",
    measured="Forty times during training, on random words that are repeated: the share of words in the second half that "
    "are predicted, and the share of attention that the strongest head puts on the word after the same word's earlier place.",
    prediction="With two layers at least 80 % are copied at the end, and a head puts at least 40 % of its attention there. "
    "At least half of the rise falls into one tenth of the training, and the head's rise is within a tenth of the copying's. "
    "One layer with equal weights copies at least 40 points less.",
    explanation="Read: Ms Zwolle, Mr Umber … Ms Z? You look for the last Z and copy what followed. A machine needs two steps "
    "for that: first every word notes who stood before it, then the new word looks for its twin. Until both steps are learned "
    "neither helps, so that nothing happens for long, and then everything at once.",
    formula="layer 1: state at t knows xₜ₋₁;   layer 2: query xₜ finds keys with xₛ₋₁ = xₜ and copies xₛ",
    changes="In natural text other skills grow at the same time and hide the jump. Here positions are rotary; learned ones "
    "need longer. A larger learning rate moves the point.",
    variants={
        "two layers": {"model.layers": 2, "model.feedforward": 128},
        "one layer, equal weights": {"model.layers": 1, "model.feedforward": 384},
    },
    sizes={"cpu": {"texts": 6000, "steps": 2000, "training.batch_tokens": 1024}, "quick": {"steps": 1000}},
    measure=measure,
    units={
        "copied": "words copied in the second half",
        "induction": "attention of the strongest head on the word to copy",
        "start": "words copied at the first look",
        "end": "words copied at the end",
        "head": "attention of the strongest head at the end",
        "jump": "share of the rise within a tenth of the training",
        "apart": "time between the two rises, share of the training",
        "weights": "weights",
    },
    parts=(
        Higher("by a head that looks after the earlier place", "head", "two layers", than=0.0, by=0.4),
        Higher("at a point of training", "jump", "two layers", than=0.0, by=0.5),
        Lower("head and copying rise together", "apart", "two layers", than=0.2, by=0.1),
        Higher("one layer cannot", "end", "two layers", "one layer, equal weights", by=0.4),
    ),
    controls=(
        Higher("two layers learn to copy", "end", "two layers", than=0.0, by=0.8),
        Lower("at first nothing is copied", "start", "two layers", than=0.3, by=0.1),
    ),
    picture=picture,
)

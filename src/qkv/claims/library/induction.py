"""Heads that copy appear at a point of training (Olsson et al. 2022, In-context Learning and Induction Heads).

Every text has its own order of the words, a circle, and is made of pieces of it that begin anywhere. Where a word has been seen,
the next one can be known, by looking for the same word earlier and copying what came after it: an induction head. The paper says
that one layer cannot do it; the rival explanation is size, so that the one layer has equal weights.
"""

from typing import Any

import numpy as np
import torch

from qkv.base.rows import Rows
from qkv.base.seeds import rng_at
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.pictures import curves
from qkv.claims.probes import rows_of
from qkv.claims.training import GPT, Watch, larger_weights, train_text
from qkv.claims.verdict import Higher, Lower
from qkv.folder.run import load_tokenizers
from qkv.jobs.job import Job
from qkv.lens.capture import capture

POINTS = 40


def pieces(rng: np.random.Generator, words: list[str], length: int) -> str:
    """Return a text of pieces, of 2 to 7 words each, of a random circle of all words."""
    circle, found = [words[i] for i in rng.permutation(len(words))], list[str]()
    while len(found) < length:
        start, many = rng.integers(0, len(words)), rng.integers(2, 8)
        found += [circle[(start + i) % len(words)] for i in range(many)]
    return " ".join(found[:length])


@torch.no_grad()
def look(gpt: Any, rows: Rows) -> tuple[float, float]:
    """Return the share of the strongest head's attention on words to copy, and the share of words that are copied."""
    ids, before, after = rows.ids, rows.ids.roll(1, 1), rows.ids.roll(-1, 1)
    before[:, 0] = after[:, -1] = -1
    # From t to s: the same word stands before s, and the text goes on after t as at s.
    copy = ((ids[:, :, None] == before[:, None]) & (after[:, :, None] == ids[:, None])).tril()  # (B, T, S)
    asked = copy.any(-1)
    with capture(gpt) as captured:
        hidden = gpt(rows)
    heads = torch.cat([(weights * copy[:, None]).sum(-1) for weights in captured.values()], 1)  # (B, H of all layers, T)
    right = gpt.logits(hidden).argmax(-1) == after
    return float(heads.mT[asked].mean(0).max()), float(right[asked].float().mean())


def measure(cell: Cell) -> Measured:
    """Train, and look forty times during training."""
    rng, words = rng_at(cell.seed, "sequences"), [a + b for a in "bdfgklmn" for b in "aeiou"][: cell["words"]]
    texts = [[pieces(rng, words, cell["length"])] for _ in range(cell["texts"])]
    test = [pieces(rng, words, cell["length"]) for _ in range(100)]
    seen: list[tuple[float, float]] = []
    feedforward = cell["narrow"] if cell["model.layers"] == 2 else 2 * (cell["narrow"] + cell["model.width"])  # equal weights
    settings = {**GPT, "model.positions": "rotary", "model.feedforward": feedforward, "data.length": cell["length"] + 2,
                "training.validate_every": cell["steps"] // POINTS}  # fmt: skip

    def change(job: Job) -> Watch:
        larger_weights(job)
        found, gpt = load_tokenizers(cell.folder / "run"), job.model.encoder
        assert found is not None
        rows = Rows(*(x.to(cell.device) for x in rows_of(found.source, test)[:3]))
        return lambda step: seen.append(look(gpt, rows))

    run = train_text(cell, "gpt-mini", settings, texts[50:], texts[:50], steps=cell["steps"], change=change)
    induction, copied = (np.array(curve[:POINTS]) for curve in zip(*seen, strict=True))
    tenth, rise = POINTS // 10, copied[-1] - copied[0]
    halves = [int(np.argmax(curve >= (curve[0] + curve.max()) / 2)) for curve in (induction, copied)]
    return {
        "copied": copied.tolist(), "induction": induction.tolist(),
        "start": float(copied[0]), "end": float(copied[-1]), "head": float(induction[-1]),
        "peak": float(induction.max()),
        "jump": float((copied[tenth:] - copied[:-tenth]).max() / max(rise, 0.1)),
        "apart": abs(halves[0] - halves[1]) / POINTS, "weights": run.parameters,
    }  # fmt: skip


CLAIM = Claim(
    topic="looking",
    statement="Heads that copy appear at a point of training, and with them copying from the text.",
    source="Olsson et al. 2022, In-context Learning and Induction Heads, arguments 1 and 3; Elhage et al. 2021",
    measured="Forty times during training, on texts with their own order of 12 words (at GPU size 16): the share of words that "
    "can be known and are predicted, and the share of attention that the strongest head puts on the word after the same word's "
    "earlier place.",
    prediction="With two layers at least 80 % are copied at the end, and a head puts at least 40 % of its attention there. "
    "At least half of the rise falls into one tenth of the training, and the head's rise is within a tenth of the copying's. "
    "One layer with equal weights copies at least 40 points less.",
    explanation="Read: Ms Zwolle, Mr Umber … Ms Z? You look for the last Z and copy what followed. A machine needs two steps "
    "for that: first every word notes who stood before it, then the new word looks for its twin. Until both steps are learned "
    "neither helps, so that nothing happens for long, and then everything at once.",
    formula="layer 1: state at t knows xₜ₋₁;   layer 2: query xₜ finds keys with xₛ₋₁ = xₜ and copies xₛ",
    changes="In natural text other skills grow at the same time and hide the jump. Here positions are rotary; learned ones "
    "need longer. A larger learning rate moves the point.",
    revised="After pilots with one seed: in texts that repeat a sequence, heads learned to look back by a fixed distance, or by "
    "the place in a phrase; and with wide feed-forward layers on 10 words, 97 % were copied without any such head, by "
    "remembering pairs. So pieces begin anywhere, feed-forward layers are narrow, initial weights larger, and training "
    "takes 4,400 updates instead of 2,000: seeds begin to copy after 600 to 1,500. With seed 2 (3,600 updates) the "
    "strongest head had 78 % when copying came and 37 % at the end; the rule asks for the end, as before.",
    variants={"two layers": {"model.layers": 2}, "one layer, equal weights": {"model.layers": 1}},
    sizes={
        "cpu": {"texts": 6000, "steps": 4400, "words": 12, "length": 46, "narrow": 16, "model.width": 64,
                "training.batch_tokens": 1024, "training.learning_rate": 0.008},
        "quick": {"steps": 1800},
        "gpu": {"texts": 40000, "steps": 5000, "words": 16, "length": 62, "training.batch_tokens": 8192},
    },
    measure=measure,
    units={
        "copied": "words copied", "induction": "attention of the strongest head on words to copy",
        "start": "words copied at the first look", "end": "words copied at the end", "weights": "weights",
        "head": "attention of the strongest head at the end", "peak": "the same at its best",
        "jump": "share of the rise within a tenth of the training",
        "apart": "time between the two rises, share of the training",
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
    picture=[
        curves(figure, [(i + 1) / POINTS for i in range(POINTS)], "share of the training", span=(0, 1))
        for figure in ("copied", "induction")
    ],
)  # fmt: skip

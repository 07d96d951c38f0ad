"""Sharing layers saves memory and not time, and factorised embeddings cost little (Lan et al. 2020, ALBERT, section 3.1).

A small ALBERT has layers of its own or shared ones, and embeddings as wide as its layers or a quarter of it. Each is timed side
by side with the one that shares nothing, forward and backward, and trained to fill in masked words. Half of the layers show that
the clock sees less work, embeddings of a 32nd of the width that the loss sees too few weights.
"""

from functools import partial
from typing import Any

import torch

from qkv.base.rows import Rows, unpadded_rows
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.language import Language, sentence_text
from qkv.claims.pictures import strip
from qkv.claims.timing import seconds
from qkv.claims.training import SENTENCE_ENCODER, train_text
from qkv.claims.verdict import Always, AtMost, Higher, Lower, Same
from qkv.models.albert import Albert, AlbertConfig

LENGTH, VOCABULARY, REPEATS = 64, 1000, 15


def train_on(model: Albert, rows: Rows) -> None:
    """Read rows forward and backward."""
    model(rows).square().mean().backward()


def relative_time(shapes: list[dict[str, Any]], cell: Cell) -> float:
    """Return the time of a pass forward and backward of the first network, relative to that of the second."""
    models = [Albert(AlbertConfig(**one), VOCABULARY).to(cell.device) for one in shapes]
    ids = torch.randint(VOCABULARY, (cell["rows"], LENGTH), generator=torch.Generator().manual_seed(cell.seed)).to(cell.device)
    rows = unpadded_rows(ids)
    found: list[list[float]] = [[], []]
    for _ in range(REPEATS):  # in turn, so that what slows the machine down, such as other cells, slows both
        for model, times in zip(models, found, strict=True):
            times.append(seconds(partial(train_on, model, rows), cell.device))
    return min(found[0]) / min(found[1])


def measure(cell: Cell) -> Measured:
    """Time the network, and train it."""
    width, layers = cell["width"], cell["layers"]
    both: dict[str, Any] = {"width": width, "feedforward": 2 * width, "heads": 4, "max_positions": LENGTH}
    own = {**both, "layers": layers, "embedding_width": width, "sharing": "none"}
    shape = {
        **both, "layers": layers // cell["fewer"], "embedding_width": width // cell["narrower"], "sharing": cell["sharing"],
    }  # fmt: skip
    text = sentence_text(Language(cell.seed, topics=6, nouns=cell["nouns"]), cell["sentences"], cell.seed)
    settings = {**SENTENCE_ENCODER, **{f"model.{name}": value for name, value in shape.items()}, "objective": {"kind": "masked"}}
    run = train_text(cell, "albert-base", settings, *text, steps=cell["steps"])
    weights = sum(p.numel() for p in run.model.encoder.parameters())
    return {"weights": weights, "time": relative_time([shape, own], cell), "loss": run.scores()["dev_masked_loss"]}


CLAIM = Claim(
    topic="cost",
    statement="Sharing layers saves memory and not time; factorised embeddings cost little.",
    source="Lan et al. 2020, ALBERT, section 3.1 and tables 3 and 4",
    measured="Weights, time of a pass forward and backward relative to a network that shares nothing, and loss in filling in "
    "masked words of held-out sentences, of ALBERTs with 4 layers of width 64 (on a GPU 8 of width 256).",
    prediction="Shared layers have at most half of the weights, and take as long (within 15 %). Embeddings of a quarter of the "
    "width have fewer weights, by a factor of at least 1.1, and lose less than 0.1 nats. (What sharing itself loses is shown; "
    "the paper says little.)",
    explanation="Four cooks with four recipes, or four cooks with one recipe: one sheet of paper instead of four, but four cooks "
    "must still cook one after the other. For the list of ingredients, short notes do that are written out when needed.",
    formula="weights of layers: L · 12 d² → 12 d²;   of embeddings: V · d → V · e + e · d;   time: L layers, either way",
    changes="Where weights do not fit into a cache, or must be sent over a network, fewer of them save time too. With larger "
    "vocabularies factorising saves more.",
    revised="Narrow embeddings were 0.46 nats behind after 600 updates and 0.11 after 2,000 (a pilot with seed 1), so that it "
    "trains for 1,500; passes are timed 15 times instead of 5. Sizes of effects stayed.",
    variants={
        "nothing shared": {},
        "shared layers": {"sharing": "all"},
        "embeddings of a quarter": {"narrower": 4},
        "embeddings of a 32nd": {"narrower": 32},
        "half of the layers": {"fewer": 2},
    },
    sizes={
        "cpu": {
            "width": 64, "layers": 4, "sharing": "none", "narrower": 1, "fewer": 1, "rows": 8, "nouns": 30, "sentences": 20000,
            "steps": 1500, "training.learning_rate": 0.002,
        },
        "quick": {"sentences": 6000, "steps": 100},
        "gpu": {
            "width": 256, "layers": 8, "rows": 128, "nouns": 300, "sentences": 100000, "steps": 2000,
            "training.batch_tokens": 8192, "training.learning_rate": 0.0005,
        },
    },
    measure=measure,
    units={
        "weights": "weights of the encoder",
        "time": "time of a pass, relative to nothing shared",
        "loss": "loss on masked words, nats",
    },
    parts=(
        Lower("sharing saves weights", "weights", "shared layers", "nothing shared", times=2.0),
        Same("sharing saves no time", "time", "shared layers", than=1.0, within=0.15),
        Lower("factorised embeddings save weights", "weights", "embeddings of a quarter", "nothing shared", times=1.1),
        AtMost("and cost less than 0.1 nats", "loss", ("embeddings of a quarter", "nothing shared"), at_most=0.1),
    ),
    controls=(
        Always("the clock sees less work", "time", "half of the layers", at_most=0.75),
        Higher("the loss sees too few weights", "loss", "embeddings of a 32nd", "nothing shared", by=0.1),
    ),
    picture=[strip("weights", span=(0,)), strip("time", marks={"no gain": 1.0}), strip("loss")],
)  # fmt: skip

"""Windows and Linformer make attention's cost linear, at a small loss (Beltagy et al. 2020, Longformer; Wang et al. 2020).

A small BERT is timed on long texts, and trained to fill in masked words, with full attention, with a window of 8 words to each
side, and with Linformer's 16 mixtures of all positions. A window of one word shows that far words matter for the task.
"""

from typing import Any

import torch

from qkv.base.rows import unpadded_rows
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.language import SIMPLE, Language, training_text
from qkv.claims.pictures import curves, strip
from qkv.claims.timing import seconds
from qkv.claims.training import SENTENCE_ENCODER, train_text
from qkv.claims.verdict import AtMost, Higher
from qkv.models.bert import Bert, BertConfig

LENGTHS, VOCABULARY = (256, 512, 1024, 2048), 100
LENGTH = 48  # of passages in training
SHAPE: dict[str, Any] = {"width": 64, "feedforward": 128, "heads": 4, "layers": 2, "dropout": 0.0}


def milliseconds(cell: Cell, length: int) -> float:
    """Return the time of a pass over one text."""
    torch.manual_seed(cell.seed)
    model = Bert(BertConfig(**SHAPE, max_positions=length, attention=cell["model.attention"]), VOCABULARY).to(cell.device).eval()
    ids = torch.randint(VOCABULARY, (1, length), device=cell.device)
    with torch.no_grad():
        return 1000 * seconds(lambda: model(unpadded_rows(ids)), cell.device)


def measure(cell: Cell) -> Measured:
    """Time passes over long texts, and train on short ones."""
    times = [milliseconds(cell, length) for length in LENGTHS]
    if cell.text is None:
        found = Language(cell.seed, **SIMPLE).documents(cell["documents"] + 200, cell.seed, (2, 2))
        pairs = [[" ".join(sentence.text for sentence in document)] for document in found]
        train, dev = pairs[200:], pairs[:200]
    else:
        train, dev = training_text(cell, cell["documents"])
    settings = {**SENTENCE_ENCODER, "data.length": LENGTH, "model.max_positions": LENGTH}
    run = train_text(cell, "bert-mini", settings, train, dev, steps=cell["steps"])
    return {"milliseconds": times, "growth": times[-1] / times[1], "loss": run.scores()["dev_masked_loss"]}


CLAIM = Claim(
    topic="cost",
    statement="Windows and Linformer make attention's cost linear in the length, at a small loss.",
    source="Beltagy et al. 2020, Longformer; Wang et al. 2020, Linformer; Zaheer et al. 2020, Big Bird",
    measured="The time of a BERT of two layers, width 64, over one text of 256 to 2,048 words; and its loss in filling in masked "
    "words of held-out texts of two sentences.",
    prediction="From 512 to 2,048 words full attention takes at least 6 times as long, window and Linformer less than 5 times. "
    "Their loss is less than 0.1 nats higher than that of full attention.",
    explanation="If everybody in a hall talks with everybody, a hall with four times as many people has sixteen times as many "
    "talks. With a window everybody talks with his neighbours only. With Linformer everybody listens to a few speakers who sum "
    "up the whole hall. Both need four times the talks in the larger hall.",
    formula="full: n² d;   window of radius r: n (2 r + 1) d;   Linformer with k mixtures: n k d",
    changes="The task: whoever must look up one word far away needs it within the window or in a mixture. On short texts none "
    "saves time. Cost is measured on long texts and the loss on short ones, which a window of 8 mostly covers.",
    revised="Before the first run: in passages of 64 words, in a pilot with one seed, full attention had not found its way after "
    "600 updates (3.7 nats, a window of one word 2.7). Texts are two sentences of few words now. Sizes of effects stayed.",
    variants={
        "full": {"model.attention": {"kind": "full"}},
        "window of 8": {"model.attention": {"kind": "window", "radius": 8}},
        "Linformer, 16 mixtures": {"model.attention": {"kind": "linformer", "projected_length": 16}},
        "window of 1": {"model.attention": {"kind": "window", "radius": 1}},
    },
    sizes={
        "cpu": {"documents": 10000, "steps": 1500},
        "quick": {"documents": 5000, "steps": 250},
    },
    measure=measure,
    units={
        "milliseconds": "milliseconds of one text",
        "growth": "growth of the time from 512 to 2,048 words, times",
        "loss": "loss on masked words, nats",
    },
    parts=(
        Higher("full attention's cost grows faster than the length", "growth", "full", than=1.0, times=6.0),
        AtMost("a window's does not", "growth", "window of 8", at_most=5.0),
        AtMost("Linformer's does not", "growth", "Linformer, 16 mixtures", at_most=5.0),
        AtMost("a window costs less than 0.1 nats", "loss", ("window of 8", "full"), at_most=0.1),
        AtMost("Linformer costs less than 0.1 nats", "loss", ("Linformer, 16 mixtures", "full"), at_most=0.1),
    ),
    controls=(Higher("far words matter for the task", "loss", "window of 1", "full", by=0.1),),
    picture=[curves("milliseconds", LENGTHS, "words in the text", log=True), strip("loss")],
    timed=True,
    uses_text=True,
)  # fmt: skip

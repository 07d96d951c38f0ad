"""Masking the future in the first decoder layer alone is enough (a claim heard in courses; it leaks).

The idea behind the claim: after the first layer, states know only the past, so later layers could look anywhere. But a later
layer that looks ahead sees the state at the next position, which knows the next word. We test by training on random letters,
whose next letter nobody can know: whoever does better than guessing has looked.
"""

import math
from typing import Any

import numpy as np
import torch

from qkv.base.rows import Rows
from qkv.base.seeds import rng_at
from qkv.claims import tasks
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.experiment import Result
from qkv.claims.pictures import Picture, strip
from qkv.claims.training import GPT, train_text
from qkv.claims.verdict import Always, Same
from qkv.jobs.job import Job
from qkv.parts.context import AttentionContext
from qkv.parts.masks import DenseMask, same_text

LETTERS, LENGTH = 16, 24


def unmask_later_layers(job: Job) -> None:
    """Let all layers but the first see the whole text."""
    gpt: Any = job.model.encoder
    run_layer, texts = gpt.layer, list[torch.Tensor]()
    gpt.embedding.register_forward_pre_hook(lambda _, inputs: texts.__setitem__(slice(None), [inputs[0].text]))

    def layer(number: int, x: torch.Tensor, context: AttentionContext) -> torch.Tensor:
        (text,) = texts
        everything = AttentionContext(DenseMask(same_text(text, text).dense(len(text), text.size(1), text.size(1), text.device)))
        return run_layer(number, x, context if number == 0 else everything)

    gpt.layer = layer


def measure(cell: Cell) -> Measured:
    """Train on random letters, then change a later letter and look at what was predicted before it."""
    rng, letters = rng_at(cell.seed, "letters"), np.array(tasks.letters(LETTERS))
    lines = [[" ".join(letters[rng.integers(0, LETTERS, LENGTH)])] for _ in range(cell["texts"] + 200)]
    run = train_text(
        cell, "gpt-mini", GPT, lines[200:], lines[:200], steps=cell["steps"],
        change=unmask_later_layers if cell["first only"] else None,
    )  # fmt: skip
    gpt, device = run.model.encoder, run.job.validator.device
    ids = torch.randint(4, 4 + LETTERS, (16, LENGTH), generator=torch.Generator().manual_seed(cell.seed)).to(device)
    changed = torch.cat([ids[:, : LENGTH // 2], ids[:, LENGTH // 2 :].roll(1, 1)], 1)
    with torch.no_grad():
        one, other = (gpt(Rows(x, torch.ones_like(x), torch.arange(LENGTH, device=device).expand_as(x))) for x in (ids, changed))
    leak = (one - other)[:, : LENGTH // 2].abs().max() / one.abs().max()
    return {"loss": run.loss(), "leak": float(leak)}


def picture(result: Result) -> Picture:
    """Draw the losses beside that of guessing."""
    return strip(result, "loss", marks={"nobody can do better": math.log(LETTERS)})


CLAIM = Claim(
    topic="attention itself",
    statement="Masking the future in the first decoder layer alone is enough.",
    source="folklore: a frequent answer in courses and forums",
    measured="How much the states of the first half of a text change when its second half does; and the loss in predicting "
    f"random letters, of which there are {LETTERS}: no honest model is below ln {LETTERS} = {math.log(LETTERS):.3f} nats.",
    prediction="If the claim is right, the first half does not change (at most 0.00001), and the loss stays within 0.1 of "
    "guessing. If later layers leak, the loss falls below what is possible.",
    explanation="Imagine a test in which every pupil may look only at earlier answers, but afterwards all may talk with each"
    " other. The pupil who sits one seat further knows your answer already. A mask in the first layer alone is such a test.",
    formula="layer 2 at position t reads the state of position t + 1, which is computed from xₜ₊₁",
    changes="Nothing within this architecture: the leak is a property of the wiring. Whether training exploits it depends on"
    " there being a way to find the next position, which all usual positions give.",
    variants={"mask in every layer": {"first only": False}, "mask in the first layer only": {"first only": True}},
    sizes={"cpu": {"texts": 4000, "steps": 300, "data.length": 32, "training.batch_tokens": 1024}, "quick": {"steps": 120}},
    measure=measure,
    units={"loss": "loss on held-out letters, nats", "leak": "change of earlier states, relative"},
    parts=(
        Always("later letters do not change earlier states", "leak", "mask in the first layer only", at_most=1e-5),
        Same("random letters stay unpredictable", "loss", "mask in the first layer only", math.log(LETTERS), within=0.1),
    ),
    controls=(
        Always("with all masks nothing leaks", "leak", "mask in every layer", at_most=1e-5),
        Same("with all masks letters are guessed", "loss", "mask in every layer", math.log(LETTERS), within=0.1),
    ),
    picture=picture,
)

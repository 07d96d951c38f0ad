"""Masking the future in the first decoder layer alone is enough (a claim heard in courses; the suspicion is that it leaks).

The idea behind the claim: after the first layer, states know only the past, so later layers could look anywhere. But a later
layer that looks ahead sees the state at the next position, which knows the next word. We test by training a decoder to write
random letters, which nobody can foresee: whoever does better than guessing has looked.
"""

import math
from dataclasses import replace
from typing import Any

import torch

from qkv.base.rows import padded_rows
from qkv.claims import tasks
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.pictures import strip
from qkv.claims.training import TRANSFORMER, train_pairs
from qkv.claims.verdict import Always, Same
from qkv.jobs.job import Job
from qkv.parts.masks import DenseMask

LETTERS, LENGTH = 16, 16
GUESSING = math.log(LETTERS) * LENGTH / (LENGTH + 1)  # the end of a text, always after its last letter, can be known


def see_everything(_: torch.nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Let a decoder layer see later positions too: whoever may look one way may look the other way."""
    x, memory, context, source_mask = inputs
    seen = context.mask.dense()
    return x, memory, replace(context, mask=DenseMask(seen | seen.mT)), source_mask


def mask_first_layer_only(job: Job) -> None:
    """Take the future mask from all decoder layers but the first."""
    decoder: Any = job.model.decoder
    for layer in decoder[1:]:
        layer.register_forward_pre_hook(see_everything)


def measure(cell: Cell) -> Measured:
    """Train on random letters, then change later letters and look at the states of earlier ones."""
    letters = tasks.examples(tasks.copy, cell.seed, cell["texts"], (LENGTH, LENGTH), tasks.letters(LETTERS), 300)
    train, dev = ([("x", text) for text, _ in part] for part in (letters.train, letters.dev))
    change = mask_first_layer_only if cell["first only"] else None
    run = train_pairs(cell, "transformer-small", TRANSFORMER, train, dev, steps=cell["steps"], change=change)
    ids = torch.randint(5, 5 + LETTERS, (16, LENGTH), generator=torch.Generator().manual_seed(cell.seed))
    changed = torch.cat([ids[:, : LENGTH // 2], ids[:, LENGTH // 2 :].roll(1, 1)], 1)
    source, *targets = (padded_rows(x, x > 0) for x in (ids[:, :1] * 0 + 4, ids, changed))
    with torch.no_grad():
        one, other = (run.model.to("cpu")(source, target)[:, : LENGTH // 2] for target in targets)
    return {"loss": run.loss(), "leak": float((one - other).abs().max() / one.abs().max())}


CLAIM = Claim(
    topic="attention itself",
    statement="Masking the future in the first decoder layer alone is enough.",
    source="folklore: a frequent answer in courses and forums",
    measured="How much the states of the first half of a text change when its second half does; and the loss in writing "
    "texts of 16 random letters out of 16, with their end: no honest model is below 16/17 · ln 16 = 2.609 nats a token.",
    prediction="If the claim is right, the first half does not change (at most 0.00001), and the loss stays within 0.1 of "
    "guessing. If later layers leak, the loss falls below what is possible.",
    explanation="Imagine a test in which every pupil may look only at earlier answers, but afterwards all may talk with each"
    " other. The pupil who sits one seat further knows your answer already. A mask in the first layer alone is such a test.",
    formula="layer 2 at position t reads the state of position t + 1, which is computed from xₜ₊₁",
    changes="The leak is a property of the wiring, so nothing changes it. Whether training finds it depends on a way to "
    "attend to the next position, which all usual positions give.",
    revised="The loss was first compared with ln 16 nats, which forgets that the end of a text of fixed length can be known. "
    "After pilots with seeds 1 and 2, in which the leak was not used yet, a GPT became a Transformer, and 200 updates "
    "1,000.",
    variants={"mask in every layer": {"first only": False}, "mask in the first layer only": {"first only": True}},
    sizes={"cpu": {"texts": 4000, "steps": 1000, "training.batch_tokens": 512}, "quick": {"steps": 600}},
    measure=measure,
    units={"loss": "loss on held-out letters, nats a token", "leak": "change of earlier states, relative"},
    parts=(
        Always("later letters do not change earlier states", "leak", "mask in the first layer only", at_most=1e-5),
        Same("random letters stay unpredictable", "loss", "mask in the first layer only", GUESSING, within=0.1),
    ),
    controls=(
        Always("with all masks nothing leaks", "leak", "mask in every layer", at_most=1e-5),
        Same("with all masks letters are guessed", "loss", "mask in every layer", GUESSING, within=0.1),
    ),
    picture=[strip("loss", marks={"guessing: nobody can do better": GUESSING})],
)

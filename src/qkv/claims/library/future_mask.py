"""A future mask trains on all prefixes at once (Radford et al. 2018; Vaswani et al. 2017, section 3.2.3).

One pass over a text with the mask gives a loss for each position. The same gradients come from reading every prefix by itself
and predicting only its next word. That is a matter of exactness, not of statistics: we compare gradients, and time both.
"""

import time

import torch

from qkv.base.rows import unpadded_rows
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.pictures import strip
from qkv.claims.verdict import Always, Higher
from qkv.models import seeded_initialisation
from qkv.models.gpt import Gpt, GptConfig
from qkv.parts.loss import cross_entropy_sum

VOCABULARY = 50


def gradients(model: Gpt, texts: torch.Tensor, cut: bool) -> list[torch.Tensor]:
    """Return the gradients of all next-word losses: of whole texts in one pass, or of each prefix by itself."""
    model.zero_grad()
    for length in range(1, texts.size(1)) if cut else [texts.size(1) - 1]:
        hidden = model(unpadded_rows(texts[:, :length]))
        predicted = slice(length - 1, length) if cut else slice(0, length)
        labels = texts[:, 1 : length + 1][:, predicted]
        weight = model.embedding.token_embedding.weight
        cross_entropy_sum(hidden[:, predicted].flatten(0, 1), weight, labels.flatten()).backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def measure(cell: Cell) -> Measured:
    """Compare the gradients of one pass with those of all prefixes, and the time of both."""
    config = GptConfig(width=64, feedforward=128, heads=4, layers=3, dropout=0.0, max_positions=64)
    with seeded_initialisation(cell.seed):
        model = Gpt(config, VOCABULARY).to(cell.device)
    generator = torch.Generator().manual_seed(cell.seed)
    texts = torch.randint(0, VOCABULARY, (8, cell["length"]), generator=generator).to(cell.device)
    if not cell["masked"]:  # what a wrong mask does: everything sees everything
        model.causal = False
    found, seconds = [], []
    for cut in (False, True):
        began = time.monotonic()
        found.append(gradients(model, texts, cut))
        seconds.append(time.monotonic() - began)
    largest = max(float(g.abs().max()) for g in found[1])
    change = max(float((a - b).abs().max()) for a, b in zip(*found, strict=True)) / largest
    return {"change": change, "saved": seconds[1] / seconds[0]}


CLAIM = Claim(
    topic="attention itself",
    statement="A future mask is training on all prefixes at once: one pass gives the same gradients.",
    source="Vaswani et al. 2017, section 3.2.3; Radford et al. 2018, Improving Language Understanding, section 3.1",
    measured="The largest difference between the gradients of one masked pass over 8 texts and the sum of the gradients of "
    "all their prefixes, relative to the largest gradient, in a GPT of 3 layers; and the time of the two.",
    prediction="With the mask the gradients are the same to rounding (at most 0.00001), and one pass is at least 5 times as "
    "fast. Without it they differ by more than 0.01.",
    explanation="To learn to continue a text, a model could read its first word and guess the second, then the first two and"
    " guess the third, and so on. With a mask that hides what comes later it makes all these guesses in one reading, like a "
    "pupil who covers the rest of the page with a ruler.",
    formula="∇ Σₜ ℓ(xₜ₊₁ | x₁…xₜ) in one masked pass = Σₜ ∇ ℓ(xₜ₊₁ | x₁…xₜ), prefix by prefix",
    changes="Dropout draws differ between the two ways, so with dropout they agree only on average. A model that mixes "
    "positions other than by attention, as a bidirectional RNN does, has no such mask.",
    variants={"mask in every layer": {"masked": True}, "no mask": {"masked": False}},
    sizes={"cpu": {"length": 48}, "quick": {"length": 16}},
    measure=measure,
    units={"change": "difference of gradients, relative", "saved": "time of all prefixes, times that of one pass"},
    parts=(Always("the gradients are the same", "change", "mask in every layer", at_most=1e-5),),
    further=(Higher("one pass is faster", "saved", "mask in every layer", than=1.0, times=5.0),),
    controls=(Always("the measure sees a missing mask", "change", "no mask", at_least=0.01),),
    picture=[strip("change", log=True, marks={"rounding": 1e-5})],
    timed=True,
)

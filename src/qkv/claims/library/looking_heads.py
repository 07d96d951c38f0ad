"""Heads that look at a word matter for it (the assumption behind pictures of attention; Michel et al. 2019 remove heads).

A Transformer learns to reverse letters, so that for each output the right letter of the source is known. For each of its 16
cross-attention heads we compare how much it looks at the right letter with what removing it costs. The rival explanation is
loudness: a head that adds much to the states matters wherever it looks. Heads stand in for each other, so that removing one costs
little; the half of them that looks most is therefore removed too, and the half that looks least.
"""

import contextlib
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from qkv.base.rows import unpadded_rows
from qkv.claims import tasks
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.pictures import strip
from qkv.claims.probes import without_heads
from qkv.claims.training import TRANSFORMER, train_pairs
from qkv.claims.verdict import Higher, Lower
from qkv.lens.capture import capture

LENGTH, HEADS = 8, 8
SETTINGS = {**TRANSFORMER, "model.heads": HEADS, "model.width": 128}


def rank_correlation(one: list[float], other: list[float]) -> float:
    """Return Spearman's correlation of two lists without ties."""
    return float(torch.corrcoef(torch.tensor([one, other]).argsort().argsort().float())[0, 1])


def measure(cell: Cell) -> Measured:
    """Train; then remove each head alone."""
    letters = tasks.letters(20)
    pairs = tasks.examples(tasks.reverse, cell.seed, cell["pairs"], (4, LENGTH + 2), letters, 300)
    run = train_pairs(cell, "transformer-small", SETTINGS, pairs.train, pairs.dev, steps=cell["steps"])
    test = tasks.examples(tasks.reverse, 1000 + cell.seed, 0, (LENGTH, LENGTH), letters, 200).test
    (source, read, target), model = run.token_ids(test), run.model.to("cpu")
    rows = [unpadded_rows(source), unpadded_rows(read)]

    @torch.no_grad()
    def loss() -> float:
        logits = model.logits(model(*rows))
        return float(nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten()))

    attentions, states = [layer.cross for layer in model.decoder], list[Tensor]()
    with contextlib.ExitStack() as hooks:
        for attention in attentions:
            noted = attention.out.register_forward_pre_hook(lambda _, inputs: states.append(inputs[0].detach()))
            hooks.callback(noted.remove)
        weights = hooks.enter_context(capture(model))
        whole = loss()
    right = torch.arange(LENGTH - 1, -1, -1)
    looks, loud = list[float](), list[float]()
    for number, (attention, state) in enumerate(zip(attentions, states, strict=True)):
        looks += weights[f"decoder.{number}.cross"][..., torch.arange(LENGTH), right].mean((0, 2)).tolist()
        for part, weight in zip(state.chunk(HEADS, -1), attention.out.weight.chunk(HEADS, 1), strict=True):
            loud.append(float((part @ weight.detach().T).norm(dim=-1).mean()))

    def cost(heads: Iterable[int]) -> float:
        with contextlib.ExitStack() as hooks:
            for number, attention in enumerate(attentions):
                gone = [head % HEADS for head in heads if head // HEADS == number]
                hooks.enter_context(without_heads(attention, gone))
            return loss() - whole

    ranked, louder = (sorted(range(len(looks)), key=values.__getitem__) for values in (looks, loud))  # ascending
    half, single_costs = len(looks) // 2, [cost([head]) for head in range(len(looks))]
    most, least, loudest = cost(ranked[half:]), cost(ranked[:half]), cost(louder[half:])
    by_looks, by_loudness = rank_correlation(looks, single_costs), rank_correlation(loud, single_costs)
    return {
        "correlation": by_looks, "loudness": by_loudness, "lead": by_looks - by_loudness,
        "most": most, "least": least, "gap": most - least, "loudest": loudest,
        "blind": cost(range(len(looks))), "loss": whole,
    }  # fmt: skip


CLAIM = Claim(
    topic="looking",
    statement="Heads that look at a word matter for it.",
    source="folklore; Michel et al. 2019, Are Sixteen Heads Really Better than One?; Voita et al. 2019",
    measured="For 16 cross-attention heads of a Transformer that reverses 8 letters: Spearman's correlation between the mean "
    "attention weight on the right letter and the rise of the loss when the head is removed; the same for the size of what a "
    "head adds to the states; and the rise when the 8 heads that look most, or least, are removed together.",
    prediction="The correlation is at least 0.5, and at least 0.1 higher than that with the size. Removing the half that looks "
    "most costs at least 0.1 nats more than removing the half that looks least.",
    explanation="If a head looks at the right letter, we think that it reads the letter. Removing it is the test: the "
    "machine should then make mistakes. If it does not, other heads did the work, or the look meant nothing.",
    formula="looks(h) = mean αₜₛ at the right s;   matters(h) = loss without h − loss",
    changes="Heads can stand in for each other: removing one alone costs next to nothing, however it looks, so that "
    "correlations compare very small costs. In deep networks a look at a state is not a look at a word.",
    revised="The two heads that look most and least were removed, at a cost of 0.0006 nats at most, since others stand in for "
    "one. Halves are removed now, after half of the updates; their effect was seen in pilots with seeds 101 and 102.",
    variants={"Transformer": {}},
    sizes={"cpu": {"pairs": 10000, "steps": 400, "training.batch_tokens": 512}, "quick": {"steps": 200}},
    measure=measure,
    units={
        "correlation": "correlation of looking and mattering",
        "loudness": "correlation of size and mattering",
        "lead": "first correlation above the second",
        "most": "cost of the half that looks most, nats",
        "least": "cost of the half that looks least, nats",
        "gap": "difference of these costs, nats",
        "loudest": "cost of the half of the largest size, nats",
        "blind": "cost of removing all heads, nats",
        "loss": "loss of the whole network, nats",
    },
    parts=(
        Higher("heads that look matter", "correlation", "Transformer", than=0.0, by=0.5),
        Higher("the size of a head tells less", "lead", "Transformer", than=0.0, by=0.1),
        Higher("the half that looks most costs most", "gap", "Transformer", than=0.0, by=0.1),
    ),
    controls=(
        Lower("the task is learned", "loss", "Transformer", than=3.0, by=2.5),
        Higher("cross-attention is needed", "blind", "Transformer", than=0.0, by=1.0),
    ),
    picture=[strip("correlation", "loudness", span=(0, 1)), strip("most", "loudest", "least", span=(0,))],
)

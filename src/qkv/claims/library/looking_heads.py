"""Heads that look at a word matter for it (the assumption behind pictures of attention; Michel et al. 2019 remove heads).

A Transformer learns to reverse letters, so that for each output the right letter of the source is known. For each of its 16
cross-attention heads we compare how much it looks at the right letter with what removing it costs. The rival explanation is
loudness: a head that adds much to the states matters wherever it looks.
"""

from typing import Any

import torch
from torch import Tensor, nn

from qkv.base.rows import padded_rows
from qkv.claims import tasks
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.experiment import Result
from qkv.claims.pictures import Picture, stack, strip
from qkv.claims.training import TRANSFORMER, train_pairs
from qkv.claims.verdict import Higher, Lower
from qkv.folder.run import load_tokenizers
from qkv.lens.capture import capture

LENGTH, HEADS = 8, 8
SETTINGS = {**TRANSFORMER, "model.heads": HEADS, "model.width": 128}


def without_head(out: nn.Linear, head: int) -> Any:
    """Remove a head: its part of the input of the output projection becomes 0. Returns the handle of the hook."""
    width = out.in_features // HEADS

    def remove(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        kept = inputs[0].clone()
        kept[..., head * width : (head + 1) * width] = 0
        return (kept,)

    return out.register_forward_pre_hook(remove)


def rank_correlation(one: list[float], other: list[float]) -> float:
    """Return Spearman's correlation of two lists without ties."""
    return float(torch.corrcoef(torch.tensor([one, other]).argsort().argsort().float())[0, 1])


def measure(cell: Cell) -> Measured:
    """Train; then remove each head alone."""
    letters = tasks.letters(20)
    pairs = tasks.examples(tasks.reverse, cell.seed, cell["pairs"], (4, LENGTH + 2), letters, 300)
    run = train_pairs(cell, "transformer-small", SETTINGS, pairs.train, pairs.dev, steps=cell["steps"])
    test = tasks.examples(tasks.reverse, 1000 + cell.seed, 0, (LENGTH, LENGTH), letters, 200).test
    found = load_tokenizers(run.folder)
    assert found is not None
    source, target = (torch.tensor(found.source.encode_batch([pair[side] for pair in test])) for side in (0, 1))
    read = torch.cat([torch.full_like(target[:, :1], found.target.bos), target[:, :-1]], 1)
    model = run.model.to("cpu")
    rows = [padded_rows(ids, torch.ones_like(ids, dtype=torch.bool)) for ids in (source, read)]

    @torch.no_grad()
    def loss() -> float:
        logits = model.logits(model(*rows))
        return float(nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten()))

    outs, states = [layer.cross.out for layer in model.decoder], dict[int, Tensor]()
    noted = [out.register_forward_pre_hook(lambda out, inputs: states.update({id(out): inputs[0].detach()})) for out in outs]
    with capture(model) as weights:
        whole = loss()
    for handle in noted:
        handle.remove()
    right = torch.arange(LENGTH - 1, -1, -1)
    looks, cost, loud = list[float](), list[float](), list[float]()
    for number, out in enumerate(outs):
        looks += weights[f"decoder.{number}.cross"][..., torch.arange(LENGTH), right].mean((0, 2)).tolist()
        for head, (part, weight) in enumerate(zip(states[id(out)].chunk(HEADS, -1), out.weight.chunk(HEADS, 1), strict=True)):
            loud.append(float((part @ weight.detach().T).norm(dim=-1).mean()))
            handle = without_head(out, head)
            cost.append(loss() - whole)
            handle.remove()
    by_looks, by_loudness = rank_correlation(looks, cost), rank_correlation(loud, cost)
    most, least = cost[looks.index(max(looks))], cost[looks.index(min(looks))]
    return {
        "correlation": by_looks, "loudness": by_loudness, "lead": by_looks - by_loudness, "loss": whole,
        "most": most, "least": least, "gap": most - least,
    }  # fmt: skip


def picture(result: Result) -> Picture:
    """Draw both correlations, and the costs of removing a head."""
    return stack(*(strip(result, figure) for figure in ("correlation", "loudness", "most", "least")))


CLAIM = Claim(
    topic="looking",
    statement="Heads that look at a word matter for it.",
    source="folklore; Michel et al. 2019, Are Sixteen Heads Really Better than One?; Voita et al. 2019",
    measured="For 16 cross-attention heads of a Transformer that reverses 8 letters: Spearman's correlation between the mean "
    "attention weight on the right letter and the rise of the loss when the head is removed; the same for the size of what a "
    "head adds to the states.",
    prediction="The correlation is at least 0.5, and at least 0.1 higher than that with the size. Removing the head that "
    "looks most costs at least 0.1 nats more than removing the one that looks least.",
    explanation="If a head looks at the right letter, we think that it reads the letter. Removing it is the test: the "
    "machine should then make mistakes. If it does not, other heads did the work, or the look meant nothing.",
    formula="looks(h) = mean αₜₛ at the right s;   matters(h) = loss without h − loss",
    changes="Heads can stand in for each other: removing one alone then costs nothing, however it looks. In deep networks a "
    "look at a state is not a look at a word.",
    variants={"Transformer": {}},
    sizes={"cpu": {"pairs": 10000, "steps": 800, "training.batch_tokens": 512}, "quick": {"steps": 200}},
    measure=measure,
    units={
        "correlation": "correlation of looking and mattering",
        "loudness": "correlation of size and mattering",
        "lead": "first correlation above the second",
        "most": "cost of the head that looks most, nats",
        "least": "cost of the head that looks least, nats",
        "gap": "difference of these costs, nats",
        "loss": "loss of the whole network, nats",
    },
    parts=(
        Higher("heads that look matter", "correlation", "Transformer", than=0.0, by=0.5),
        Higher("the size of a head tells less", "lead", "Transformer", than=0.0, by=0.1),
        Higher("the head that looks most costs most", "gap", "Transformer", than=0.0, by=0.1),
    ),
    controls=(Lower("the task is learned", "loss", "Transformer", than=3.0, by=2.5),),
    picture=picture,
)

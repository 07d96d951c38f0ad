"""Attention as explanation: what attention looks at is what matters (Jain and Wallace 2019; Wiegreffe and Pinter 2019).

Networks learn to reverse letters, so that every output depends on exactly one letter of the input. We compare the letter that the
attention to the source looks at most with the one whose replacement changes the output most. Jain and Wallace found little
agreement in LSTMs, whose states know their neighbours: attention may look beside the word it uses. So there is an LSTM too.
"""

import torch
from torch import Tensor

from qkv.base.rows import unpadded_rows
from qkv.claims import tasks
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.pictures import strip
from qkv.claims.training import RNN, TRANSFORMER, Trained, train_pairs
from qkv.claims.verdict import Higher
from qkv.lens.capture import cross_attention

LENGTH = 8
SETTINGS = {"transformer-small": TRANSFORMER, "rnn-small": {**RNN, "model.input_feeding": False}}


@torch.no_grad()
def attention_and_effect(run: Trained, pairs: list[tuple[str, str]]) -> tuple[Tensor, Tensor]:
    """Return attention, and the loss of log-probability by replacing a letter, of each target letter for each source letter.

    What has been written before follows the replaced text: else the network would look for a letter that is gone.
    """
    (source, read, target), model = run.token_ids(pairs), run.model.to("cpu")

    def log_probability(ids: Tensor, before: Tensor) -> Tensor:
        logits = model.logits(model(unpadded_rows(ids), unpadded_rows(before)))  # (B, T, V)
        return logits.log_softmax(-1).gather(-1, target[..., None])[..., 0]

    drops, others = [], source.roll(1, 0)  # the letters of another text
    for position in range(LENGTH):
        replaced = source.clone()
        same = others[:, position] == source[:, position]
        replaced[:, position] = torch.where(same, source[:, position - 1], others[:, position])
        before = torch.cat([read[:, :1], replaced.flip(1)[:, :-1]], 1)
        drops.append(log_probability(source, read) - log_probability(replaced, before))
    return cross_attention(model, unpadded_rows(source), unpadded_rows(read)), torch.stack(drops, -1)


def measure(cell: Cell) -> Measured:
    """Train; return how often the letter most looked at is the one that matters most."""
    letters = tasks.letters(20)
    pairs = tasks.examples(tasks.reverse, cell.seed, cell["pairs"], (4, LENGTH + 2), letters, 300)
    run = train_pairs(cell, cell["recipe"], SETTINGS[cell["recipe"]], pairs.train, pairs.dev, steps=cell["steps"])
    test = tasks.examples(tasks.reverse, 1000 + cell.seed, 0, (LENGTH, LENGTH), letters, 200, tasks.different_words).test
    attention, drop = attention_and_effect(run, test)
    looked, mattered, true = attention.argmax(-1), drop.argmax(-1), torch.arange(LENGTH - 1, -1, -1)
    ranks = [x.argsort(-1).argsort(-1).float() for x in (attention, drop)]
    correlation = torch.stack([x - x.mean(-1, keepdim=True) for x in ranks]).prod(0).sum(-1) / (LENGTH * (LENGTH**2 - 1) / 12)
    return {
        "agree": float((looked == mattered).float().mean()),
        "beside": float(((looked - true).abs() == 1).float().mean()),
        "found": float((mattered == true).float().mean()),
        "correlation": float(correlation.mean()),
    }


CLAIM = Claim(
    topic="looking",
    statement="Attention looks at what matters for the output.",
    source="folklore; against it Jain and Wallace 2019, Attention is not Explanation; Wiegreffe and Pinter 2019",
    measured="For each letter that a network writes when it reverses 8 letters: whether the source letter with the largest "
    "attention weight, in the mean over layers and heads, is the one whose replacement lowers the probability of the output "
    "most (chance 12.5 %); and the rank correlation of both over all 8 letters, as in Jain and Wallace.",
    prediction="If attention explains, both agree for at least 80 % of the letters, in a Transformer and in an LSTM with "
    "attention, and the ranks of all letters by attention and by effect have a correlation of at least 0.5. The critics predict "
    "less, above all for the LSTM, whose states know their neighbours.",
    explanation="Arrows from output words to input words look like an explanation. To test one, take away the word that the "
    "arrow points to: if the output does not change, the arrow was not the reason. In an LSTM the note at one word also tells of "
    "the words before and after it, so that one can look at the neighbour and know the word.",
    formula="argmaxₛ αₜₛ = argmaxₛ [log p(yₜ | x) − log p(yₜ | x with xₛ replaced)]?",
    changes="Here one letter decides alone. In sentiment or translation several words share the work, and agreement is lower "
    "(Jain and Wallace: rank correlations below 0.5). Means over layers hide what single heads do.",
    revised="In a first run the LSTM looked at the right letter in all texts, and in 11 % another one mattered more, nearly "
    "always the one just written. Only the source had been replaced, so that what was written before contradicted it. "
    "Both are replaced now. The rank correlations were measured in that run and became parts after it.",
    variants={"Transformer": {"recipe": "transformer-small"}, "LSTM with attention": {"recipe": "rnn-small"}},
    sizes={"cpu": {"pairs": 10000, "steps": 1600, "training.batch_tokens": 512}, "quick": {"steps": 300}},
    measure=measure,
    units={
        "agree": "letters where attention and effect agree",
        "beside": "letters where attention looks one beside",
        "found": "letters where the right one matters most",
        "correlation": "rank correlation of attention and effect",
    },
    parts=(
        Higher("in a Transformer both agree", "agree", "Transformer", than=0.0, by=0.8),
        Higher("in an LSTM both agree", "agree", "LSTM with attention", than=0.0, by=0.8),
        Higher("a Transformer's ranks agree", "correlation", "Transformer", than=0.0, by=0.5),
        Higher("an LSTM's ranks agree", "correlation", "LSTM with attention", than=0.0, by=0.5),
    ),
    controls=(
        Higher("replacing finds the right letter in the Transformer", "found", "Transformer", than=0.0, by=0.9),
        Higher("replacing finds the right letter in the LSTM", "found", "LSTM with attention", than=0.0, by=0.9),
    ),
    picture=[strip("agree", marks={"chance": 1 / LENGTH}, span=(0, 1)), strip("beside", span=(0, 1))],
)

"""A tiny XLNet learns to recall: texts say everything twice, so that what is guessed stands elsewhere too."""

from itertools import islice

import numpy as np
import pytest
import torch
from torch import nn

from qkv.data.batches import START
from qkv.data.documents import Documents
from qkv.data.passages import PassageBatches
from qkv.data.tokens import texts_of
from qkv.models.xlnet import Xlnet, XlnetConfig
from qkv.objectives.masking import Vocabulary
from qkv.objectives.permutation import Permutation, PermutationConfig
from qkv.parts.heads import Headed

PAD, BOS, EOS, FIRST, WORDS, LONG = 0, 2, 3, 4, 12, 8
VOCAB = FIRST + WORDS
UPDATES = 250


def make_batches(seed: int) -> PassageBatches:
    """Documents of some different words in any order, twice: a word alone is as likely as any other."""
    rng = np.random.default_rng(seed)
    tokens = [2 * (FIRST + rng.permutation(WORDS)[:LONG]).tolist() for _ in range(3000)]
    marks = [[0] * len(ids) for ids in tokens]
    documents = Documents(texts_of(tokens), texts_of([[len(ids)] for ids in tokens]), texts_of(marks))
    return PassageBatches(
        documents=documents, chosen=np.arange(len(documents)), seed=1, rows=16, length=2 * (2 * LONG + 2),
        bos=BOS, eos=EOS, pad=PAD, tasks={"masking": (1.0, 0)},
    )  # fmt: skip


def trained(objective: Permutation) -> Headed:
    torch.manual_seed(1)
    model = Headed(Xlnet(XlnetConfig(width=64, inner=128, heads=4, layers=2, dropout=0.0), VOCAB), objective.config.heads)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 4 if parameter.dim() > 1 else 1  # first weights are meant for wider models
    optimiser = torch.optim.AdamW(model.parameters(), weight_decay=0.01, fused=True)
    for step, batch in enumerate(islice(make_batches(0).starting(START), UPDATES)):
        for group in optimiser.param_groups:
            group["lr"] = 4e-3 * min((step + 1) / 20, 1 - step / UPDATES)
        (objective.loss(model, *batch.inputs) / batch.answers).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
    return model.eval()


@pytest.mark.parametrize("stretch", [None, 18])
@torch.no_grad()
def test_an_xlnet_learns_to_recall(stretch: int | None) -> None:
    objective = Permutation(PermutationConfig(stretch=stretch), Vocabulary(VOCAB, FIRST, 1, (PAD, BOS, EOS)))
    with torch.enable_grad():
        model = trained(objective)
    objective.tally.read()
    for batch in islice(make_batches(1).in_order(), 10):
        objective.loss(model, *batch.inputs)
    told = objective.tally.read()
    # Words by themselves tell log(12) nats; where both of a pair are guessed, the first is known from those that are not there.
    assert told["word_loss"] < 0.5 * np.log(WORDS) and told["word_accuracy"] > 0.8

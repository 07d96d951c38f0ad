"""A tiny XLNet learns to count: a token follows from any other token and their distance."""

import math
from itertools import islice

import numpy as np
import torch
from torch import nn

from qkv.data.batches import START
from qkv.data.documents import Documents
from qkv.data.passages import PassageBatches
from qkv.data.tokens import token_texts
from qkv.models.xlnet import Xlnet, XlnetConfig
from qkv.objectives.masking import MaskingVocabulary
from qkv.objectives.permutation import PermutationConfig, PermutationLanguageModelling
from qkv.parts.heads import ModelWithHeads

PAD, BOS, EOS, FIRST, WORDS, LONG = 0, 2, 3, 4, 12, 16
VOCAB = FIRST + WORDS
UPDATES = 80


def make_batches(seed: int) -> PassageBatches:
    """Return documents that count upwards from a random number, modulo the vocabulary."""
    rng = np.random.default_rng(seed)
    tokens = [(FIRST + (rng.integers(WORDS) + np.arange(LONG)) % WORDS).tolist() for _ in range(2000)]
    flags = [[0] * len(ids) for ids in tokens]
    documents = Documents(token_texts(tokens), token_texts([[len(ids)] for ids in tokens]), token_texts(flags))
    return PassageBatches(
        documents=documents, chosen=np.arange(len(documents)), seed=1, rows=8, length=2 * (LONG + 2),
        bos=BOS, eos=EOS, pad=PAD, tasks={"masking": (1.0, 0)},
    )  # fmt: skip


def trained(objective: PermutationLanguageModelling) -> ModelWithHeads:
    torch.manual_seed(1)
    model = ModelWithHeads(
        Xlnet(XlnetConfig(width=32, feedforward=64, heads=2, layers=2, dropout=0.0), VOCAB), objective.config.heads
    )
    optimiser = torch.optim.AdamW(model.parameters(), weight_decay=0.01, fused=True)
    for step, batch in enumerate(islice(make_batches(0).starting(START), UPDATES)):
        for group in optimiser.param_groups:
            group["lr"] = 1e-2 * min((step + 1) / 20, 1 - step / UPDATES)
        (objective.loss(model, *batch.inputs) / batch.labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
    return model.eval()


@torch.no_grad()
def test_an_xlnet_learns_to_count() -> None:
    """Segments of a third of a row cut most texts, and later segments attend to the memory of earlier ones."""
    objective = PermutationLanguageModelling(
        PermutationConfig(segment_length=12), MaskingVocabulary(VOCAB, FIRST, 1, (PAD, BOS, EOS))
    )
    with torch.enable_grad():
        model = trained(objective)
    objective.tally.read()
    for batch in islice(make_batches(1).in_order(), 10):
        objective.loss(model, *batch.inputs)
    metrics = objective.tally.read()
    assert metrics["word_loss"] < 0.3 * math.log(WORDS)  # the loss of guessing evenly
    assert metrics["word_accuracy"] > 0.85

"""A tiny GPT learns to copy: each word is followed by the same word as the first time."""

from itertools import islice

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.data.batches import START
from qkv.data.documents import Documents
from qkv.data.passages import PassageBatches
from qkv.data.tokens import token_texts
from qkv.models.gpt import CausalLM, Gpt, GptConfig
from qkv.objectives.causal import CausalConfig, CausalLanguageModelling
from qkv.parts.heads import ModelWithHeads

PAD, BOS, EOS, FIRST, WORDS, LONG = 0, 2, 3, 4, 12, 8
VOCAB = FIRST + WORDS
UPDATES = 250


def make_batches() -> PassageBatches:
    """Return documents of different words in random order, repeated once."""
    rng = np.random.default_rng(0)
    tokens = [2 * (FIRST + rng.permutation(WORDS)[:LONG]).tolist() for _ in range(3000)]
    flags = [[0] * len(ids) for ids in tokens]
    documents = Documents(token_texts(tokens), token_texts([[len(ids)] for ids in tokens]), token_texts(flags))
    return PassageBatches(
        documents=documents, chosen=np.arange(len(documents)), seed=1, rows=16, length=2 * (2 * LONG + 2),
        bos=BOS, eos=EOS, pad=PAD, tasks={"masking": (1.0, 0)}, continuous=True,
    )  # fmt: skip


def trained() -> Gpt:
    torch.manual_seed(1)
    gpt = Gpt(GptConfig(width=64, feedforward=128, heads=4, layers=2, max_positions=40, dropout=0.0), VOCAB)
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter *= 4 if parameter.dim() > 1 else 1  # the initialisation is meant for wider models
    model, objective = ModelWithHeads(gpt, ()), CausalLanguageModelling(CausalConfig(), [1] * VOCAB)
    optimiser = torch.optim.AdamW(model.parameters(), weight_decay=0.01, fused=True)
    for step, batch in enumerate(islice(make_batches().starting(START), UPDATES)):
        for group in optimiser.param_groups:
            group["lr"] = 4e-3 * min((step + 1) / 20, 1 - step / UPDATES)
        (objective.loss(model, *batch.inputs) / batch.labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
    return gpt.eval()


@torch.no_grad()
def recalled(gpt: Gpt, texts: Tensor) -> Tensor:
    """Return the greedy continuation of texts (B, LONG), one token more than they have."""
    writer, begun = CausalLM(gpt), F.pad(texts, (1, 0), value=BOS)
    state = writer.start(begun[:, :-1], torch.ones(len(texts), LONG).bool(), max_length=LONG + 1)
    said = [begun[:, -1]]
    for _ in range(LONG + 1):
        said.append(writer.step(said[-1], state).argmax(-1))
    return torch.stack(said[1:], 1)


def test_a_gpt_learns_to_recall() -> None:
    rng = np.random.default_rng(1)
    texts = torch.tensor(np.stack([FIRST + rng.permutation(WORDS)[:LONG] for _ in range(40)]))
    found = recalled(trained(), texts)
    assert float((found[:, :LONG] == texts).float().mean()) > 0.95
    assert float((found[:, LONG] == EOS).float().mean()) > 0.95

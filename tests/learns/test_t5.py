"""A tiny T5, of each version, learns to reverse strings of different digits."""

import numpy as np
import pytest
import torch
from torch import nn

from qkv.data.batches import START, Batches
from qkv.data.tokens import TokenPairs, token_texts
from qkv.decoding.config import DecodingConfig
from qkv.decoding.search import decode
from qkv.inference.engines import pad
from qkv.models.t5 import T5, T5Config
from qkv.objectives.translation import Translation, TranslationConfig

PAD, BOS, EOS, FIRST = 0, 2, 3, 4  # a digit d has the id FIRST + d
VOCAB = FIRST + 10
UPDATES = 200


def digit_strings(count: int, seed: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [(FIRST + rng.permutation(10)[: rng.integers(3, 8)]).tolist() for _ in range(count)]


def trained(**version: str) -> T5:
    torch.manual_seed(1)
    shape = T5Config(
        width=48, feedforward=96, heads=4, head_width=12, encoder_layers=1, decoder_layers=2, dropout=0.0, buckets=16,
        max_distance=20,
        **version,
    )  # fmt: skip
    model, objective = T5(shape, VOCAB, VOCAB), Translation(TranslationConfig(smoothing=0.0), BOS)
    texts = digit_strings(20_000, seed=1)
    corpus = TokenPairs(token_texts([[*text, EOS] for text in texts]), token_texts([text[::-1] for text in texts]))
    batches = Batches([corpus], [1.0], seed=1, tokens=768, widths=(32, 32), eos=EOS).starting(START)
    optimiser = torch.optim.AdamW(model.parameters(), weight_decay=0.01, fused=True)
    for step in range(UPDATES):
        for group in optimiser.param_groups:
            group["lr"] = 5e-3 * min((step + 1) / 30, 1 - step / UPDATES)
        batch = next(batches)
        (objective.loss(model, *batch.inputs) / batch.labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
    return model.eval()


@pytest.mark.parametrize("version", [{}, {"activation": "geglu", "tied": "inputs"}], ids=["1.0", "1.1"])
def test_a_t5_learns_to_reverse(version: dict[str, str]) -> None:
    test = digit_strings(200, seed=2)
    ids, keep = pad([[*text, EOS] for text in test], torch.device("cpu"))
    found = decode(trained(**version), ids, keep, DecodingConfig(beam=1), bos=BOS, eos=EOS, pad=PAD)
    right = [best.ids == text[::-1] for text, [best] in zip(test, found, strict=True)]
    assert float(np.mean(right)) >= 0.95

"""A tiny UniLM learns to reverse strings of digits: source and target in one text, some words of the target masked."""

from itertools import islice

import numpy as np
import torch
from torch import nn

from qkv.data.batches import START, Batches
from qkv.data.tokens import TokenPairs, token_texts
from qkv.decoding.config import DecodingConfig
from qkv.decoding.search import decode
from qkv.inference.engines import pad
from qkv.models.unilm import UnilmConfig, UnilmTranslator
from qkv.objectives.masked_translation import MaskedTranslation, MaskedTranslationConfig

PAD, BOS, EOS, MASK, FIRST = 0, 2, 3, 4, 5
VOCAB = FIRST + 10
UPDATES = 130


def digit_strings(count: int, seed: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(FIRST, VOCAB, rng.integers(3, 7)).tolist() for _ in range(count)]


def trained(strings: list[list[int]]) -> UnilmTranslator:
    torch.manual_seed(1)
    shape = UnilmConfig(width=48, feedforward=96, heads=4, layers=2, max_positions=32, dropout=0.0)
    model = UnilmTranslator(shape, VOCAB, MASK)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 4 if parameter.dim() > 1 else 1  # the initialisation is meant for wider models
    objective = MaskedTranslation(MaskedTranslationConfig(smoothing=0.0), MASK)
    pairs = TokenPairs(token_texts(strings), token_texts([text[::-1] for text in strings]))
    batches = Batches([pairs], [1.0], seed=1, tokens=512, widths=(64, 64), eos=EOS)
    optimiser = torch.optim.AdamW(model.parameters(), weight_decay=0.0, fused=True)
    for step, batch in enumerate(islice(batches.starting(START), UPDATES)):
        for group in optimiser.param_groups:
            group["lr"] = 4e-3 * min((step + 1) / 30, 1 - step / UPDATES)
        (objective.loss(model, *batch.inputs) / batch.labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
    return model.eval()


def test_it_learns_to_reverse() -> None:
    train, test = digit_strings(10_000, seed=1), digit_strings(150, seed=2)
    test = [text for text in test if text not in train]
    model = trained(train)
    assert len(test) > 80
    for beam in (1, 4):
        found = decode(model, *pad(test, torch.device("cpu")), DecodingConfig(beam=beam), bos=BOS, eos=EOS, pad=PAD)
        assert np.mean([best.ids == text[::-1] for text, [best] in zip(test, found, strict=True)]) >= 0.95

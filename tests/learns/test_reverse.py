"""A tiny Transformer learns to reverse strings of digits, by the same loop, batches, objective and search as a real one."""

from pathlib import Path

import numpy as np
import torch

from qkv.data.batches import Batches
from qkv.data.tokens import TokenPairs, token_texts
from qkv.decoding.config import DecodingConfig
from qkv.decoding.search import decode
from qkv.inference.engines import pad
from qkv.models.transformer import Transformer, TransformerConfig
from qkv.objectives.translation import Translation, TranslationConfig
from qkv.training.config import TrainingConfig
from qkv.training.loop import Trainer, Validation
from qkv.training.progress import Progress

PAD, BOS, EOS, FIRST = 0, 2, 3, 4  # a digit d has the id FIRST + d
VOCAB = FIRST + 10
STEPS = 250


def digit_strings(count: int, seed: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(FIRST, VOCAB, rng.integers(3, 9)).tolist() for _ in range(count)]


def exact(model: Transformer, strings: list[list[int]], config: DecodingConfig) -> float:
    """Return the share of strings that are reversed without a mistake."""
    found = decode(model.eval(), *pad(strings, torch.device("cpu")), config, bos=BOS, eos=EOS, pad=PAD)
    return float(np.mean([best.ids == text[::-1] for text, [best] in zip(strings, found, strict=True)]))


def test_it_learns_to_reverse(tmp_path: Path) -> None:
    train, test = digit_strings(20_000, seed=1), digit_strings(200, seed=2)
    test = [text for text in test if text not in train]
    shape = TransformerConfig(width=48, feedforward=96, heads=4, encoder_layers=1, decoder_layers=2, dropout=0.0, norm="pre")
    model = Transformer(shape, VOCAB, VOCAB)
    pairs = TokenPairs(token_texts(train), token_texts([text[::-1] for text in train]))
    batches = Batches([pairs], [1.0], seed=1, tokens=1024, widths=(64, 64), eos=EOS)
    config = TrainingConfig(
        steps=STEPS, learning_rate=4e-3, warmup=60, schedule="cosine", precision="float32", device="cpu",
        validate_every=STEPS, save_every=STEPS, averaging="none",
    )  # fmt: skip
    trainer = Trainer(
        tmp_path, model, Translation(TranslationConfig(smoothing=0.0), BOS), batches, config,
        seed=1, width=shape.width, validate=lambda step: Validation({}, 0.0), progress=Progress(quiet=True),
    )  # fmt: skip
    before = exact(model, test, DecodingConfig(beam=1))
    state = trainer.train()
    assert len(test) > 100
    assert state.step == STEPS
    assert before < 0.05
    assert exact(model, test, DecodingConfig(beam=1)) >= 0.95
    assert exact(model, test, DecodingConfig(beam=4)) >= 0.95

"""A tiny Transformer learns to reverse strings of digits, by the same loop, batches, objective and search as a real one."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from qkv.data.batches import Batches
from qkv.data.tokens import TokenPairs, token_texts
from qkv.decoding.config import DecodingConfig
from qkv.decoding.search import decode
from qkv.inference.engines import pad
from qkv.models.transformer import Transformer, TransformerConfig
from qkv.objectives.translation import Translation, TranslationConfig
from qkv.parts.adapters import with_adapters
from qkv.parts.model_config import AdapterConfig
from qkv.training.config import TrainingConfig
from qkv.training.loop import Trainer, Validation
from qkv.training.progress import Progress

PAD, BOS, EOS, FIRST = 0, 2, 3, 4  # a digit d has the id FIRST + d
VOCAB = FIRST + 10
STEPS = 250


def digit_strings(count: int, seed: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(FIRST, VOCAB, rng.integers(3, 9)).tolist() for _ in range(count)]


TRAIN = digit_strings(20_000, seed=1)
TEST = [text for text in digit_strings(200, seed=2) if text not in TRAIN]


def exact(model: Transformer, strings: list[list[int]], wanted: Callable[[list[int]], list[int]], beam: int = 1) -> float:
    """Return the share of strings whose output is the wanted one without a mistake."""
    decoding = DecodingConfig(beam=beam)
    found = decode(model.eval(), *pad(strings, torch.device("cpu")), decoding, bos=BOS, eos=EOS, pad=PAD)
    return float(np.mean([best.ids == wanted(text) for text, [best] in zip(strings, found, strict=True)]))


def reverse(text: list[int]) -> list[int]:
    return text[::-1]


def reverse_with_other_words(text: list[int]) -> list[int]:
    """Another domain: the first two digits have changed places in the vocabulary."""
    return [{FIRST: FIRST + 1, FIRST + 1: FIRST}.get(token, token) for token in text[::-1]]


def train(
    folder: Path, model: Transformer, strings: list[list[int]], wanted: Callable[[list[int]], list[int]], steps: int
) -> None:
    pairs = TokenPairs(token_texts(strings), token_texts([wanted(text) for text in strings]))
    batches = Batches([pairs], [1.0], seed=1, tokens=1024, widths=(64, 64), eos=EOS)
    config = TrainingConfig(
        steps=steps, learning_rate=4e-3, warmup=60, schedule="cosine", precision="float32", device="cpu",
        validate_every=steps, save_every=steps, averaging="none",
    )  # fmt: skip
    trainer = Trainer(
        folder, model, Translation(TranslationConfig(smoothing=0.0), BOS), batches, config,
        seed=1, width=48, validate=lambda step: Validation({}, 0.0), progress=Progress(quiet=True),
    )  # fmt: skip
    assert trainer.train().step == steps


@pytest.fixture(scope="module")
def reverser(tmp_path_factory: pytest.TempPathFactory) -> tuple[Transformer, float]:
    """A model that was trained to reverse strings, and the share of strings that it reversed before."""
    torch.manual_seed(0)
    shape = TransformerConfig(width=48, feedforward=96, heads=4, encoder_layers=1, decoder_layers=2, dropout=0.0, norm="pre")
    model = Transformer(shape, VOCAB, VOCAB)
    before = exact(model, TEST, reverse)
    train(tmp_path_factory.mktemp("reverse"), model, TRAIN, reverse, STEPS)
    return model, before


def test_it_learns_to_reverse(reverser: tuple[Transformer, float]) -> None:
    model, before = reverser
    assert len(TEST) > 100
    assert before < 0.05
    assert exact(model, TEST, reverse) >= 0.95
    assert exact(model, TEST, reverse, beam=4) >= 0.95


def test_an_adapter_learns_another_domain_from_few_strings(reverser: tuple[Transformer, float], tmp_path: Path) -> None:
    base, _ = reverser
    changed = [text for text in TEST if {FIRST, FIRST + 1} & {*text}]
    adapted = with_adapters(base, AdapterConfig(rank=4, alpha=8))
    train(tmp_path, adapted, TRAIN[:500], reverse_with_other_words, 100)
    assert exact(base, changed, reverse_with_other_words) == 0
    assert exact(adapted, changed, reverse_with_other_words) >= 0.9
    assert exact(base, TEST, reverse) >= 0.95, "the base is as it was"

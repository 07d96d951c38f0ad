"""Position schemes learn tasks that need them: reverse two or three letters, or find the middle one."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from qkv.data.batches import make_batch
from qkv.decoding.config import DecodingConfig
from qkv.decoding.search import decode
from qkv.inference.engines import pad
from qkv.models.transformer import Transformer, TransformerConfig
from qkv.objectives.translation import Translation, TranslationConfig

PAD, BOS, EOS, FIRST, LETTERS = 0, 2, 3, 4, 4
VOCAB, TEXTS, ROWS, RATE = FIRST + LETTERS, 64, 8, 6e-3


def reverse(text: np.ndarray) -> np.ndarray:
    return text[::-1]


def middle(text: np.ndarray) -> np.ndarray:
    return text[len(text) // 2 : len(text) // 2 + 1]


def strings(count: int, rng: np.random.Generator, shortest: int) -> list[np.ndarray]:
    """Return strings of different letters, which only their order distinguishes."""
    return [FIRST + rng.permutation(LETTERS)[: rng.integers(shortest, 4)] for _ in range(count)]


def learned(positions: str, task: Callable[[np.ndarray], np.ndarray], shortest: int, steps: int = 150) -> float:
    """Return the share of strings that a tiny model solves after some updates."""
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    shape = {
        "width": 32,
        "feedforward": 64,
        "heads": 8,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "dropout": 0.0,
        "max_distance": 8,
        "max_positions": 64,
    }
    model = Transformer(TransformerConfig.model_validate({**shape, "positions": positions}), VOCAB, VOCAB)
    objective, adam = Translation(TranslationConfig(smoothing=0.0), BOS), torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    for step in range(steps):
        for group in adam.param_groups:
            group["lr"] = RATE * min((step + 1) / 20, 1) * min(2 * (1 - step / steps), 1)
        texts = strings(TEXTS, rng, shortest)
        rows = [texts[row::ROWS] for row in range(ROWS)]
        batch = make_batch(rows, [[task(text) for text in row] for row in rows], (4 * TEXTS // ROWS,) * 2, EOS)
        adam.zero_grad()
        (objective.loss(model, *batch.inputs) / batch.tokens).backward()
        adam.step()
    test = strings(200, rng, shortest)
    sources = pad([text.tolist() for text in test], torch.device("cpu"))
    found = decode(model.eval(), *sources, DecodingConfig(beam=1, max_extra=5), bos=BOS, eos=EOS, pad=PAD)
    return float(np.mean([best.ids == task(text).tolist() for text, [best] in zip(test, found, strict=True)]))


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "relative", "rotary", "counting", "normalised"])
def test_letters_are_learned_in_reverse(positions: str) -> None:
    assert learned(positions, reverse, shortest=2) >= 0.9


@pytest.mark.parametrize("positions", ["none", "alibi"])
def test_who_cannot_tell_left_from_right_cannot_learn_it(positions: str) -> None:
    """Without positions the encoder knows no order; with symmetric distances it does not know the direction."""
    assert learned(positions, reverse, shortest=2) <= 0.6


@pytest.mark.parametrize(("positions", "learns"), [("alibi", True), ("none", False)])
def test_a_distance_to_both_sides_tells_the_middle(positions: str, learns: bool) -> None:
    share = learned(positions, middle, shortest=3, steps=200)
    assert share >= 0.9 if learns else share <= 0.6

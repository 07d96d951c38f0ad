"""A trainer of a tiny Transformer on random texts, for tests of the training loop."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import RenderableType
from torch import Tensor

from qkv.data.batches import Batches
from qkv.data.tokens import TokenPairs, token_texts
from qkv.models.transformer import Transformer, TransformerConfig
from qkv.objectives.translation import Translation, TranslationConfig
from qkv.training import checkpoints
from qkv.training.config import TrainingConfig
from qkv.training.loop import Trainer, Validation
from qkv.training.progress import Progress

VOCAB, BOS, EOS, WIDTH = 12, 2, 3, 16
SMALL = TransformerConfig(width=WIDTH, feedforward=32, heads=2, encoder_layers=1, decoder_layers=1, dropout=0.0)
BASE = {"steps": 12, "batch_tokens": 96, "learning_rate": 0.01, "warmup": 4, "save_every": 4, "validate_every": 4,
        "log_every": 1, "precision": "float32", "device": "cpu"}  # fmt: skip


class RecordedProgress(Progress):
    """Progress that records messages and warnings."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.said: list[str] = []
        self.warnings: list[str] = []

    def say(self, what: RenderableType) -> None:
        self.said.append(str(what))

    def warn(self, what: str) -> None:
        self.warnings.append(what)


class ToyTrainer(Trainer):
    """A trainer whose progress is recorded."""

    progress: RecordedProgress


class FakeClock:
    """A fake clock that advances only with updates, by `seconds` each, and by `first` with the first one of a process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float, first: float | None = None):
        self.now, self.seconds, self.first = 0.0, seconds, seconds if first is None else first
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def on(self, trainer: ToyTrainer) -> ToyTrainer:
        """Return the trainer, whose updates advance the clock now."""
        update, at = trainer.update, iter([self.first])

        def timed(batch: object) -> None:
            update(batch)  # type: ignore[arg-type]
            self.now += next(at, self.seconds)

        trainer.update = timed  # type: ignore[method-assign]
        return trainer


def steps_of(run: Path) -> list[int]:
    """Return the steps of a run's checkpoints."""
    return [checkpoints.step_of(folder) for folder in checkpoints.folders(run)]


def toy_batches(pairs: int = 60, tokens: int = 96, seed: int = 1) -> Batches:
    """Return batches of random texts; each target is the reversed source."""
    rng = np.random.default_rng(0)
    texts = [rng.integers(4, VOCAB, size=rng.integers(2, 9)).tolist() for _ in range(pairs)]
    corpus = TokenPairs(token_texts(texts), token_texts([text[::-1] for text in texts]))
    return Batches([corpus], [1.0], seed=seed, tokens=tokens, widths=(24, 24), eos=EOS)


def toy_model(config: TransformerConfig = SMALL) -> Transformer:
    torch.manual_seed(5)
    return Transformer(config, VOCAB, VOCAB)


def toy_trainer(
    run: Path,
    loss: Callable[..., Tensor] | None = None,
    validate: Callable[[int], Validation] | None = None,
    model: Transformer | None = None,
    start_weights: dict[str, Tensor] | None = None,
    **config: Any,
) -> ToyTrainer:
    """Return a trainer of a tiny Transformer; `loss` replaces the objective's, `config` changes settings."""
    settings = TrainingConfig(**{**BASE, **config})
    objective = Translation(TranslationConfig(), BOS)
    if loss is not None:
        objective.loss = loss  # type: ignore[method-assign]
    return ToyTrainer(
        run,
        model or toy_model(),
        objective,
        toy_batches(tokens=settings.batch_tokens),
        settings,
        seed=1,
        width=WIDTH,
        validate=validate or (lambda step: Validation({"dev_loss": 1.0 / step}, float(step))),
        progress=RecordedProgress(),
        start_weights=start_weights,
    )


def weights_of(trainer: Trainer) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}


def largest_difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """Return the largest absolute difference between two sets of weights."""
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).detach().abs().max()) for name in one)


def without_key_biases(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights without the key biases, which do not change the output.

    A key bias adds the same number to all scores of a query, and softmax removes it: its gradient is only rounding, which Adam
    scales up to steps of full size.
    """
    stacked = {name: {"qkv": 3, "kv": 2}.get(name.split(".")[-2], 0) if name.endswith("bias") else 0 for name in weights}
    keys = {name: parts - 2 for name, parts in stacked.items() if parts}
    return {
        name: torch.cat([part for i, part in enumerate(t.chunk(stacked[name])) if i != keys[name]]) if name in keys else t
        for name, t in weights.items()
    }

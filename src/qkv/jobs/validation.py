"""Validation during training: the base of each job's validator."""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from qkv.base.hardware import choose_precision
from qkv.base.seeds import seed_at
from qkv.data.batches import Batch
from qkv.data.tokens import TokenPairs, exchange_sources
from qkv.recipes import Recipe
from qkv.training.health import SOURCE_GAIN
from qkv.training.loop import Validation
from qkv.training.progress import Progress

EXCHANGED_PAIRS = 128  # pairs whose sources are exchanged, at most


class Validator:
    """Scores a model on held-out text."""

    def __init__(self, recipe: Recipe, model: Any, objective: Any, progress: Progress):
        self.model, self.objective, self.progress, self.seed = model, objective, progress, recipe.seed
        self.device = next(model.parameters()).device
        self.precision = choose_precision(recipe.training.precision, self.device)  # of training, until `use_float32`

    def __call__(self, step: int) -> Validation:
        """Score the model at a step of training, and show the figures."""
        raise NotImplementedError

    def final(self) -> float:
        """Return the score by which candidates for the final weights are compared; higher is better."""
        raise NotImplementedError

    def use_float32(self) -> None:
        """Score in float32 from now on: at the end of training and in `qkv evaluate`, so that both give the same scores."""
        self.precision = torch.float32

    def in_precision(self) -> torch.autocast:
        """Return a context in which the model computes in the precision of scoring."""
        return torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32)

    @torch.no_grad()
    def mean_loss(self, batches: Iterable[Batch]) -> float:
        """Return the mean loss per label over all batches; random draws, such as masks, are the same at every call."""
        total, labels = torch.zeros((), device=self.device), 0
        with self.in_precision(), torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(seed_at(self.seed, "dev"))
            for batch in batches:
                total += self.objective.loss(self.model, *batch.to(self.device).inputs)
                labels += batch.labels
        return float(total) / labels

    def source_gain(self, pairs: TokenPairs, batches: Callable[[TokenPairs], Iterable[Batch]]) -> dict[str, float]:
        """Return how much higher the loss of some targets is when each is read with another text's source, in nats a token.

        It is 0 for a decoder that does not use the source. `batches` lays pairs out in rows.
        """
        if len(pairs) < 2:
            return {}
        own, exchanged = (self._token_loss(batches(some)) for some in exchange_sources(pairs, EXCHANGED_PAIRS))
        return {SOURCE_GAIN: exchanged - own}

    def _token_loss(self, batches: Iterable[Batch]) -> float:
        """Return the loss per token without tokens that are easy to predict, where the objective has such a figure."""
        figures = {"loss": self.mean_loss(batches)}
        if hasattr(self.objective, "tally"):
            figures |= self.objective.tally.read()
        return figures[self.objective.unigram_figure or "loss"]

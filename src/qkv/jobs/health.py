"""What a healthy run of a job leaves behind, and the probe of its network."""

from typing import Any

import numpy as np
import torch
from torch import nn

from qkv.base.draws import drawing
from qkv.data.tokens import Texts
from qkv.lens.probe import probe
from qkv.objectives.objective import Objective
from qkv.training.health import ENTROPY, SIMILARITY, Expectations, Probe

COUNTED_TOKENS = 4_000_000  # of the training text, for the frequencies of tokens
TEXT_SIMILARITY = "text_similarity/"


def count_tokens(texts: Texts, chosen: np.ndarray, vocabulary: int) -> np.ndarray:
    """Count the tokens of some texts, evenly chosen where there are many. -> (V,)."""
    mean_length = max(1, int(texts.lengths(chosen[:1000]).mean())) if len(chosen) else 1
    step = max(1, len(chosen) * mean_length // COUNTED_TOKENS)
    return np.bincount(texts.gather(chosen[::step]), minlength=vocabulary)


def expectations(objective: Objective, counts: np.ndarray | None) -> Expectations:
    """Return what the figures of a healthy run leave behind; `counts` are those of the predicted tokens."""
    figure = objective.unigram_figure
    if figure is None or counts is None or not counts.any():
        return Expectations(chance=objective.chance(), tasks_judged_after=objective.tasks_judged_after)
    return Expectations(objective.unigram_loss(counts), figure, objective.chance(), objective.tasks_judged_after)


def make_probe(model: nn.Module, objective: Any) -> Probe:
    """Return a function that measures the layers and heads of a model on a few rows, without a trace in its training."""
    device = next(model.parameters()).device

    def figures(inputs: tuple[Any, ...], seed: int) -> dict[str, float]:
        tally = getattr(objective, "tally", None)
        kept = tally.copy() if tally is not None else {}
        model.eval()
        try:
            with drawing(seed, torch.arange(len(inputs[0][0]), device=device)):
                found = probe(model, lambda: objective.loss(model, *inputs), [rows.text for rows in inputs])
        finally:
            model.train()
            if tally is not None:
                tally.restore(kept)
        return {
            **{SIMILARITY + name: layer.tokens for name, layer in found.similarity.items()},
            **{TEXT_SIMILARITY + name: layer.texts for name, layer in found.similarity.items()},
            **{f"{ENTROPY}{name}.{number}": value for name, heads in found.entropy.items() for number, value in enumerate(heads)},
        }

    return figures

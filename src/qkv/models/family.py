"""A family: everything that recipes, jobs, loading, scoring, serving and export need to know about one system.

Each model's file ends in its `FAMILY`; `models/__init__.py` lists them.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from qkv.base.seeds import seed_at
from qkv.parts.heads import ModelWithHeads
from qkv.parts.model_config import ModelConfig
from qkv.parts.token_scores import ScoreTokens, ScoringMode

Role = Literal["translator", "encoder", "generator", "infiller"]


@contextlib.contextmanager
def seeded_initialisation(seed: int) -> Iterator[None]:
    """Make the initial weights drawn inside depend only on the seed, and restore the caller's random state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_at(seed, "weights"))
        yield


@dataclass(frozen=True)
class Family:
    """One system: its config, its networks, the objectives that train it and the role of a trained run."""

    kind: str  # `model.kind` in a recipe
    config: type[ModelConfig]
    objectives: tuple[str, ...]  # kinds of the objectives that train it, except fine-tuning
    loads_as: Role  # the role of a pretrained run
    network: Callable[[Any, int], nn.Module] | None = None  # (config, vocabulary size) -> the network below heads
    # (config, source vocabulary size, target vocabulary size, id of [MASK]) -> a network that reads a source, predicts a target.
    translator: Callable[[Any, int, int, int | None], nn.Module] | None = None
    # (config, vocabulary size, objective's config) -> the model to pretrain, if not `network` with the objective's heads.
    pretraining_model: Callable[[Any, int, Any], nn.Module] | None = None
    sizes: Mapping[str, dict[str, Any]] = field(default_factory=dict)  # published sizes: values of `model.size`
    # Functions that score texts token by token, by mode; the first mode is the default.
    token_scores: Mapping[ScoringMode, ScoreTokens] = field(default_factory=dict)
    scoring_head: str | None = "masked"  # the head that token scores need
    fills: bool = True  # whether a pretrained run predicts masked tokens
    # Names and configs of networks that are pretrained together (ELECTRA's two); the first is the one to keep.
    networks: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    pretrains_translator: bool = False  # whether pretraining trains the whole translator (T5)
    # Weights of the whole translator -> weights of `network`, which fine-tuning uses (T5's encoder).
    network_weights: Callable[[Mapping[str, Tensor]], dict[str, Tensor]] | None = None

    @property
    def can_be_finetuned(self) -> bool:
        """Whether it takes heads for labelled examples."""
        return self.network is not None

    def build_network(self, config: Any, vocabulary: int, heads: tuple[str, ...], labels: int = 2) -> ModelWithHeads:
        """Build the network with heads."""
        assert self.network is not None
        return ModelWithHeads(self.network(config, vocabulary), heads, labels)

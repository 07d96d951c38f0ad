"""A family: everything that recipes, jobs, loading, scoring, serving and export need to know of one system.

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
from qkv.parts.token_scores import ScoreTokens, Way

Role = Literal["translator", "encoder", "generator", "infiller"]


@contextlib.contextmanager
def seeded_initialisation(seed: int) -> Iterator[None]:
    """Inside, a model's initial weights depend on the seed alone; the caller's random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_at(seed, "weights"))
        yield


@dataclass(frozen=True)
class Family:
    """One system: its config, its networks, what it can be trained for and what a trained one is used as."""

    kind: str  # `model.kind` in a recipe
    config: type[ModelConfig]
    objectives: tuple[str, ...]  # kinds of the objectives that train it, fine-tuning aside
    loads_as: Role  # what a pretrained run is used as
    network: Callable[[Any, int], nn.Module] | None = None  # (config, vocabulary): reads texts; heads stand on it
    # (config, source vocabulary, target vocabulary, id of [MASK]): reads a source, predicts a target.
    translator: Callable[[Any, int, int, int | None], nn.Module] | None = None
    # (config, vocabulary, objective's config): what is pretrained, where it is not `network` with the objective's heads.
    pretraining_model: Callable[[Any, int, Any], nn.Module] | None = None
    sizes: Mapping[str, dict[str, Any]] = field(default_factory=dict)  # published sizes: values of `model.size`
    # How texts are scored token by token, by direction; the first one is the default.
    token_scores: Mapping[Way, ScoreTokens] = field(default_factory=dict)
    scoring_head: str | None = "masked"  # the head that token scores need
    fills: bool = True  # whether a pretrained run predicts masked tokens
    # Names and configs of the networks that are pretrained together, the one that is kept first (ELECTRA's two).
    networks: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    pretrains_translator: bool = False  # whether pretraining trains the whole translator (T5)
    # Weights of the whole translator -> those of `network`, which fine-tuning takes alone (T5's encoder).
    network_weights: Callable[[Mapping[str, Tensor]], dict[str, Tensor]] | None = None

    @property
    def can_be_finetuned(self) -> bool:
        """Whether heads for labelled examples can stand on it."""
        return self.network is not None

    def build_network(self, config: Any, vocabulary: int, heads: tuple[str, ...], labels: int = 2) -> ModelWithHeads:
        """Build the network with heads on it."""
        assert self.network is not None
        return ModelWithHeads(self.network(config, vocabulary), heads, labels)

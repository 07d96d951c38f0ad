"""Low-rank adapters: "LoRA: Low-Rank Adaptation of Large Language Models" (Hu et al. 2021, section 4).

A frozen projection W gets a second path: W x + alpha / rank B A x, with small trained matrices A and B. The attention and
feed-forward projections of every layer have one; embeddings, norms and heads stay as they are. Queries, keys and values are one
projection here (`attention.py`), and share A.
C input width, D output width, R rank.
"""

import copy
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.base.errors import CheckpointError
from qkv.parts.activations import ACTIVATIONS
from qkv.parts.attention import CrossAttention, SelfAttention
from qkv.parts.dropout import dropout
from qkv.parts.feedforward import FeedForward
from qkv.parts.linear import Linear
from qkv.parts.model_config import AdapterConfig

M = TypeVar("M", bound=nn.Module)


class AdaptedLinear(nn.Module):
    """A frozen linear layer plus the product of two small matrices; it computes what the frozen layer does at first."""

    def __init__(self, base: Linear, c: AdapterConfig):
        super().__init__()
        self.base, self.scale, self.dropout = base, c.scale, c.dropout
        self.lora_a = nn.Parameter(base.weight.new_empty(c.rank, base.in_features))  # (R, C)
        self.lora_b = nn.Parameter(base.weight.new_zeros(base.out_features, c.rank))  # (D, R)
        if c.rank:
            nn.init.kaiming_uniform_(self.lora_a, a=5**0.5)  # as in the authors' code

    @property
    def bias(self) -> Tensor | None:
        """The frozen layer's bias; adapters have none."""
        return self.base.bias

    def forward(self, x: Tensor) -> Tensor:
        """x (..., C) -> (..., D)."""
        low = F.linear(dropout(x, self.dropout, self.training), self.lora_a)  # (..., R)
        return torch.add(self.base(x), F.linear(low, self.lora_b), alpha=self.scale)

    def then(self, activation: str, x: Tensor) -> Tensor:
        """Apply the layer and then the activation of that name. x (..., C) -> (..., D)."""
        return ACTIVATIONS[activation](self(x))


def with_adapters(model: M, c: AdapterConfig) -> M:
    """Return a copy of a model with new adapters; it shares all other weights with the model, and they are frozen."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    adapted = copy.deepcopy(model, shared).requires_grad_(False)
    for module in [*adapted.modules()]:
        if isinstance(module, SelfAttention | CrossAttention | FeedForward):
            for name, child in [*module.named_children()]:
                if isinstance(child, Linear):
                    setattr(module, name, AdaptedLinear(child, c).train(child.training))
    adapted.saves_only_trained = True  # type: ignore[assignment]  # see training/checkpoints.py
    return adapted


def merge_adapters(
    weights: Mapping[str, Tensor], adapters: Mapping[str, Tensor], c: AdapterConfig, source: str
) -> dict[str, Tensor]:
    """Return a model's weights with W + alpha / rank B A for each adapted W; an error names the source of the adapters."""
    merged = dict(weights)
    for name, a in adapters.items():
        module, _, part = name.rpartition(".")
        if part == "lora_a":
            weight, b = weights.get(f"{module}.weight"), adapters.get(f"{module}.lora_b")
            if weight is None or b is None or (len(b), a.size(1)) != weight.shape or b.size(1) != len(a):
                raise CheckpointError(f"{source}: the adapter is of another model (differs at {module!r})")
            merged[f"{module}.weight"] = (weight.double() + c.scale * (b.double() @ a.double())).to(weight.dtype)
    return merged

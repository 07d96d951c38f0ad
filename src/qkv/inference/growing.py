"""Outputs that grow together, a token a step; others may join them between two steps."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from qkv.decoding.hypothesis import Hypothesis
from qkv.decoding.protocol import ReadsPieces
from qkv.decoding.search import Search, decoding_precision


class GrowingOutput:
    """An output while it grows: what it is made from, and whom it is for."""

    def __init__(self, source: Any, owner: Any):
        self.source, self.owner = source, owner


class GrowingOutputs:
    """A running search whose outputs are returned as texts, each with its owner."""

    def __init__(self, search: Search, result: Callable[[Any, list[Hypothesis]], Any]):
        """The search's owners are `GrowingOutput`s; `result` makes a text of one of them and its hypotheses."""
        self.search, self.result = search, result
        self._unread = search.state if isinstance(search.state, ReadsPieces) else None  # protocols are slow to ask

    def __len__(self) -> int:
        """The number of outputs that still grow."""
        return len(self.search)

    @property
    def reading(self) -> bool:
        """Whether the next step reads inputs, or a piece of long ones; the last such step makes the first tokens."""
        return self._unread is not None and self._unread.reading

    def joins(self, other: "GrowingOutputs") -> bool:
        """Return whether others that have just begun can join these."""
        return self.search.joins(other.search)

    @torch.inference_mode()
    def join(self, other: "GrowingOutputs") -> None:
        """Add others, which are not used any more."""
        self.search.join(other.search)  # type: ignore[arg-type]

    @torch.inference_mode()
    def step(self, between_layers: Callable[[], object] | None = None) -> list[tuple[Any, Any]]:
        """Let all outputs grow by a token; return those that are complete, with their owners.

        Where inputs are read in pieces, `between_layers` is called after each layer: others may be computed there, but not join.
        """
        batch = self.search.batch
        if self._unread is not None and batch.device.type == "cpu":  # a GPU's step is short, and may be one CUDA graph
            self._unread.between_layers = between_layers
        with decoding_precision(batch.config.precision, batch.device):
            ended = self.search.step()
        return [(growing.owner, self.result(growing, hypotheses)) for growing, hypotheses in ended]

    def drop(self, owners: Sequence[Any]) -> None:
        """Forget the outputs of some owners."""
        gone = set(map(id, owners))
        self.search.drop([one for one in self.search.batch.owners if id(one.owner) in gone])

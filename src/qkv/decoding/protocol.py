"""The interface of models that can be decoded from: read the source once, then one token at a time.

B inputs, R hypotheses, N sources, W hypotheses of each source, S source length, V vocabulary.
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from torch import Tensor


class DecodingState(Protocol):
    """A model's memory between two steps, one row for each hypothesis."""

    attention: Tensor | None  # (R, S) attention over the source in the last step, if `start` was asked for it

    def select(self, rows: Tensor) -> None:
        """Make row i the old row rows[i], in place; rows may repeat, move or leave."""
        ...


@runtime_checkable
class Joinable(Protocol):
    """A state that the rows of another one can join: texts of different lengths are decoded together."""

    def join(self, other: Any) -> None:
        """Add the rows of another state of the same model, after the own ones."""
        ...


@runtime_checkable
class Replaceable(Joinable, Protocol):
    """A state in which new texts can take the place of those that are done, so that its memory stays where it is."""

    def retire(self, texts: Tensor) -> None:
        """Note that some texts are done, though their rows stay."""
        ...

    def replace(self, texts: Tensor, other: Any) -> bool:
        """Let another state's texts take the place of some; return whether that was possible."""
        ...


@runtime_checkable
class ReadsPieces(Protocol):
    """A state whose inputs are read by its first steps, in pieces, so that a long input does not take long at once."""

    between_layers: Callable[[], object] | None  # called after each layer of a step, if the model knows of it

    @property
    def reading(self) -> bool:
        """Whether no step has been taken yet."""
        ...

    def read_piece(self) -> bool:
        """Read a piece of the inputs, unless the next step reads all that is left; return whether it does."""
        ...


class Grouped(DecodingState, Protocol):
    """A state that decodes faster if it knows which hypotheses share a source."""

    def regroup(self, rows: Tensor, sources: Tensor | None) -> None:
        """Select rows (N, W), the hypotheses of a source side by side; keep only these sources (N,), or all if None."""
        ...


class Decodable(Protocol):
    """A model that can be decoded from."""

    def start(self, ids: Tensor, keep: Tensor, max_length: int, attention: bool = False) -> DecodingState:
        """Read the sources, ids and keep (B, S), and make room for `max_length` steps of B hypotheses."""
        ...

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        """Return the logits (R, V) that follow the newest token of each hypothesis (R,), and advance the state."""
        ...

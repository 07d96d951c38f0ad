"""What decoding asks of a model: to begin with the source, and to go on by one word."""

from typing import Any, Protocol

from torch import Tensor


class State(Protocol):
    """What a model remembers between two steps, one row for each hypothesis."""

    attention: Tensor | None  # (R, S) over the source in the last step, when `start` was asked for it

    def select(self, rows: Tensor) -> None:
        """Make row i what row rows[i] was, in place; rows may repeat, move or leave."""
        ...


class Grouped(State, Protocol):
    """A state that gains from being told which hypotheses share a source."""

    def regroup(self, rows: Tensor, sources: Tensor | None) -> None:
        """As select of rows (N, W), those of a source side by side, where only these sources go on, (N,), or None for all."""
        ...


class Decodable(Protocol):
    """A model that can be decoded from."""

    def start(self, ids: Tensor, keep: Tensor, longest: int, attention: bool = False) -> State:
        """Read the source, ids and keep (B, S), and make room for `longest` steps of B hypotheses."""
        ...

    def step(self, words: Tensor, state: Any) -> Tensor:
        """Give logits (R, V) for what follows the last word of each hypothesis (R,), bos first; moves the state on."""
        ...

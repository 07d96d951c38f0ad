"""Views of a model that take several steps to compute, as a model's worker computes them: a step of one of them at a time."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from qkv.base.stepwise import Stepwise
from qkv.serving.batching import BatchItem, PreparedRequest
from qkv.serving.json_answer import ANY

VIEWS = "views"  # the lane of all of them


class View(Protocol):
    """A result with plain values, such as an `AttentionView`."""

    def json(self) -> dict[str, Any]:
        """Return the values."""
        ...


def view_at_once(name: str, compute: Callable[[], View], tokens: int, cost: float) -> PreparedRequest:
    """Prepare a view that is computed at once; the answer is its JSON."""
    return PreparedRequest((VIEWS, name), [BatchItem(compute, tokens, cost)], lambda results: results[0])


def view_in_steps(
    name: str, begin: Callable[[int], Stepwise[View]], tokens: int, cost: float, step_cost: float
) -> PreparedRequest:
    """Prepare a view that is computed step by step; `begin` gets the tokens that a step should compute."""
    item = BatchItem(begin, tokens, cost, step_cost=step_cost, lane=VIEWS)
    return PreparedRequest((VIEWS, name), [item], lambda results: results[0])


class RunningViews:
    """Views that are being computed, each in turn."""

    reading = False

    def __init__(self, items: Sequence[BatchItem], piece: int):
        self.views = deque((item, item.value(piece)) for item in items)

    def __len__(self) -> int:
        return len(self.views)

    def joins(self, other: "RunningViews") -> bool:
        """Return True: any views can take turns."""
        return True

    def join(self, other: "RunningViews") -> None:
        """Add others, which are not used any more."""
        self.views.extend(other.views)

    def step(self, meanwhile: Callable[[], object]) -> list[tuple[BatchItem, Any]]:
        """Take a step of the view that has waited longest; return its item and its JSON if it is done."""
        item, steps = self.views.popleft()
        try:
            next(steps)
        except StopIteration as done:
            return [(item, write_view(done.value))]
        self.views.append((item, steps))
        return []

    def drop(self, items: Sequence[BatchItem]) -> None:
        """Forget the views of some items."""
        gone = set(map(id, items))
        self.views = deque((item, steps) for item, steps in self.views if id(item) not in gone)


def write_view(view: View) -> bytes:
    """Return the values of a view as JSON."""
    return b"{%b}" % b",".join(_members(view.json()))


def _members(values: dict[str, Any]) -> Iterator[bytes]:
    """Yield the members of an object in JSON, map by map: while a large value is written, no other thread can run."""
    for name, value in values.items():
        if name == "maps":
            value = b"[%b]" % b",".join([ANY.dump_json(one) for one in value])
        elif name in ("before", "after") and isinstance(value, dict):
            value = b"{%b}" % b",".join(_members(value))
        else:
            value = ANY.dump_json(value)
        yield b"%b:%b" % (ANY.dump_json(name), value)

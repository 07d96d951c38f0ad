"""Lanes: running batches of texts that are generated token by token, and who may share one."""

from collections import Counter
from collections.abc import Sequence

from qkv.serving.batching import BatchItem, RunningItems

POLITE = 4  # texts that a caller may have in a lane with others


class Lane:
    """Texts that are generated together, step by step."""

    def __init__(self, running: RunningItems, items: Sequence[BatchItem]):
        self.kind, self.running, self.items = items[0].lane, running, list(items)
        self.seconds = self.stepped = 0.0  # of the last step, and when it was

    @property
    def reading(self) -> bool:
        """Whether its texts are still being read; nobody can join them then."""
        return self.running.reading

    def join(self, running: RunningItems, items: Sequence[BatchItem]) -> None:
        """Add texts that have just begun."""
        self.running.join(running)
        self.items += items

    def callers(self) -> Counter[str]:
        """Return how many texts each caller has in it."""
        return Counter(item.request.caller for item in self.items)

    def is_own(self, caller: str) -> bool:
        """Return whether all texts are one caller's."""
        return set(self.callers()) == {caller}


def may_join(item: BatchItem, members: Sequence[BatchItem], polite: bool = False) -> bool:
    """Return whether an item may be computed together with others: with its caller's own, or a few of each caller's.

    A polite one does not even have many of its own.
    """
    if item.request.alone or any(one.request.alone for one in members):
        return all(one.request is item.request for one in members)
    counts = Counter(one.request.caller for one in members)
    own = counts.pop(item.request.caller, 0)
    return (not counts and not polite) or (max(counts.values(), default=0) <= POLITE and own < POLITE)

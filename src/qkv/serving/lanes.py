"""Lanes: running batches of texts that are generated token by token, and who may share one."""

from collections import Counter
from collections.abc import Iterable, Sequence

from qkv.serving.batching import BatchItem, QueuedRequest, RunningItems

FEW = 4  # texts that a caller may have in a lane with others


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


class Members:
    """Items that are computed together, counted by caller, and who may join them."""

    def __init__(self, items: Iterable[BatchItem] = ()):
        self.counts: Counter[str] = Counter()
        self.alone: QueuedRequest | None = None  # a request that shares with no other
        self.request: QueuedRequest | None = None  # the only one, if there is only one
        for item in items:
            self.add(item)

    def add(self, item: BatchItem) -> None:
        """Add an item."""
        self.request = item.request if not self.counts or self.request is item.request else None
        self.alone = item.request if item.request.alone else self.alone
        self.counts[item.request.caller] += 1

    def admit(self, item: BatchItem, few_only: bool = False) -> bool:
        """Return whether an item may join: it joins its caller's own, or a few of each caller's.

        With `few_only`, even texts of a single caller must be few.
        """
        if item.request.alone or self.alone is not None:
            return not self.counts or self.request is item.request
        own = self.counts[item.request.caller]
        if own == self.counts.total() and not few_only:
            return True
        most = max((count for caller, count in self.counts.items() if caller != item.request.caller), default=0)
        return own < FEW and most <= FEW

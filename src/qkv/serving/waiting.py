"""What waits for a model: the items of each request, in the order in which they are due.

A turn looks at requests, which are few, and at the items that it takes, but not at all that wait: a request may have hundreds.
"""

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from operator import attrgetter

from qkv.serving.batching import BatchItem, QueuedRequest

Place = tuple[QueuedRequest, bool]  # a request, and whether its items here grow step by step


class WaitingItems:
    """Items that wait, by request; another thread may ask for their number at any time."""

    def __init__(self) -> None:
        self._items: dict[Place, list[BatchItem]] = {}  # ordered by due time, and never empty
        self._costs: dict[Place, float] = {}  # of what is not done
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[BatchItem]:
        return chain.from_iterable(self._items.values())

    def add(self, items: Iterable[BatchItem]) -> None:
        """Let items wait, each until its turn."""
        added = defaultdict[Place, list[BatchItem]](list)
        for item in items:
            added[_place(item)].append(item)
        for place, new in added.items():
            self._replace(place, sorted([*self._items.get(place, ()), *new], key=attrgetter("due")))

    def take(self, items: Iterable[BatchItem]) -> None:
        """Remove items, whose turn has come."""
        taken = defaultdict[Place, set[int]](set)
        for item in items:
            taken[_place(item)].add(id(item))
        for place, ids in taken.items():
            self._replace(place, [item for item in self._items.get(place, ()) if id(item) not in ids])

    def forget_cancelled(self) -> None:
        """Remove the items of cancelled requests."""
        for place in [place for place in self._items if place[0].cancelled]:
            self._replace(place, [])

    def _replace(self, place: Place, items: list[BatchItem]) -> None:
        self._count += len(items) - len(self._items.pop(place, ()))
        self._costs.pop(place, None)
        if items:
            self._items[place] = items
            self._costs[place] = sum(item.cost - item.done for item in items)

    def requests(self) -> set[QueuedRequest]:
        """Return the requests that have items here."""
        return {request for request, _ in self._items}

    def firsts(self) -> dict[tuple[str, bool], BatchItem]:
        """Return the item that is due first, by caller and whether it grows step by step."""
        found: dict[tuple[str, bool], BatchItem] = {}
        for (request, grows), items in self._items.items():
            before = found.get((request.caller, grows))
            if before is None or items[0].due < before.due:
                found[request.caller, grows] = items[0]
        return found

    def backlog(self) -> defaultdict[str, float]:
        """Return the work that waits, by caller."""
        backlog = defaultdict[str, float](float)
        for (request, _), cost in self._costs.items():
            if not request.cancelled:
                backlog[request.caller] += cost
        return backlog

    def in_order(self, grows: bool, requests: Collection[QueuedRequest]) -> Iterator[BatchItem]:
        """Yield the items of some requests, by due time; nothing may be added or taken meanwhile."""
        lists = [items for (request, kind), items in self._items.items() if kind == grows and request in requests]
        return heapq.merge(*lists, key=attrgetter("due"))


def _place(item: BatchItem) -> Place:
    return item.request, item.lane is not None

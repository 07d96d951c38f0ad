"""Messages between processes."""

import torch

from process_group import in_processes
from qkv.objectives.tally import Tally
from qkv.training import distributed


def add_up(rank: int) -> None:
    """Check the sum of tallies that have begun with another name in each process, and of names that only one has."""
    tally = Tally()
    for name, total, count in ([("a", 1, 2), ("b", 10, 10)], [("b", 30, 10), ("a", 3, 2), ("ü", 5, 1)])[rank]:
        tally.add(name, torch.tensor(total), torch.tensor(count))
    distributed.sum_tally(tally)
    assert tally.read() == {"a": 1.0, "b": 2.0, "ü": 5.0}
    empty = Tally()
    distributed.sum_tally(empty)
    assert empty.read() == {}


def test_tallies_are_added_by_name() -> None:
    in_processes(2, add_up)

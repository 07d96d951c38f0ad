"""Rows that move to a device, and their copies on the host."""

import pytest
import torch

from qkv.base.rows import host_copy, map_tensors, move_rows, padded_rows
from qkv.data.batches import START, Batch

META = torch.device("meta")  # tensors there have no values, so only an original can have been returned


def test_a_host_copy_needs_no_device() -> None:
    rows = padded_rows(torch.arange(12).view(3, 4), torch.ones(3, 4, dtype=torch.bool))
    moved = move_rows(rows, META)
    assert moved.ids.device == META and moved.head is None
    assert host_copy(moved.ids) is rows.ids and host_copy(moved.text) is rows.text
    assert host_copy(rows.ids) is rows.ids


def test_a_tensor_that_has_changed_has_no_host_copy() -> None:
    rows = padded_rows(torch.arange(12).view(3, 4), torch.ones(3, 4, dtype=torch.bool))
    moved = move_rows(rows, META)
    moved.ids.add_(1)
    others = map_tensors(moved, torch.clone)
    for values in (moved.ids, others.text):
        with pytest.raises(NotImplementedError, match="meta"):
            host_copy(values)


def test_a_part_of_a_batch_that_moves_has_a_host_copy() -> None:
    rows = padded_rows(torch.arange(12).view(3, 4), torch.ones(3, 4, dtype=torch.bool))
    (moved,) = Batch((rows,), 12, 12, 12, 12, START).part(slice(1, 3)).to(META).inputs
    assert torch.equal(host_copy(moved.ids), rows.ids[1:])

"""Prompts that are read by CUDA graphs, here where none can be recorded."""

from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.base import graphs
from qkv.base.errors import QkvWarning
from qkv.parts.prompt_graphs import PromptRecorder


def test_prompts_are_not_padded_once_a_recording_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise RuntimeError("out of memory")

    shapes = []

    def read(ids: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        shapes.append(tuple(ids.shape))
        return torch.zeros(len(ids), 5), torch.zeros(1, ids.numel(), 4)

    monkeypatch.setattr(graphs, "GraphedFunction", fail)
    recorder, ids = PromptRecorder(64), torch.zeros(1, 9, dtype=torch.long)
    assert recorder.read(read, ids, None) is not None
    with pytest.warns(QkvWarning, match="could not be recorded"):
        assert recorder.read(read, ids, None) is not None
    assert recorder.read(read, ids, None) is None
    assert shapes == [(1, 16)] * 2

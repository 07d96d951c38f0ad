"""What tests of exported models share."""

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from torch.onnx._internal.exporter._registration import ONNXRegistry

sys.path.insert(0, str(Path(__file__).parent))

from interop_models import SOURCE_WORDS


@pytest.fixture
def sources() -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [rng.integers(4, SOURCE_WORDS, rng.integers(1, 12)).tolist() for _ in range(20)]


@pytest.fixture(scope="session", autouse=True)
def _operators_are_listed_once() -> Iterator[None]:
    """The exporter lists the operators of ONNX anew for each graph, and does not change the list: half a second each time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(cache(ONNXRegistry.from_torchlib)))
        yield

"""What tests of exported models share."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from interop_models import SOURCE_WORDS


@pytest.fixture
def sources() -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [rng.integers(4, SOURCE_WORDS, rng.integers(1, 12)).tolist() for _ in range(20)]

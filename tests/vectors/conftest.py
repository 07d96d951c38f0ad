"""Fixtures: a few words with random vectors."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from word_toys import plain, with_subwords

from qkv.vectors.word_vectors import WordVectors


@pytest.fixture
def vectors() -> WordVectors:
    return plain()


@pytest.fixture
def subword_vectors() -> WordVectors:
    return with_subwords()

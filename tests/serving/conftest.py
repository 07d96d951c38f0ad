"""Models of every kind, loaded once, and a service of them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from service_runs import Running, write_all

from qkv.serving.registry import ModelRegistry, load_models


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_all(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def models(folders: list[str]) -> ModelRegistry:
    return load_models(folders, "cpu")


@pytest.fixture(scope="session")
def running(models: ModelRegistry) -> Iterator[Running]:
    with Running(models) as running:
        yield running

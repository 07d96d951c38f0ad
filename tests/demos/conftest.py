"""The demo scripts stand outside the package, so tests load them by path."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

DEMOS = Path(__file__).parents[2] / "demos"


@pytest.fixture
def demo() -> Callable[[str], ModuleType]:
    """Load a demo script by its name, without running it."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"demo_{name}", DEMOS / f"{name}.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load

"""The code of the peers that benchmarks run, loaded from benchmarks/systems."""

import importlib.util
from pathlib import Path
from types import ModuleType

SYSTEMS = Path(__file__).parents[1] / "benchmarks" / "systems"


def peer(name: str) -> ModuleType:
    """Load a peer's file."""
    spec = importlib.util.spec_from_file_location(f"peer_{name}", SYSTEMS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""Checks of accessibility by axe-core in pages that tests open; skipped where it is not installed."""

from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent / "javascript" / "node_modules" / "axe-core" / "axe.min.js"
RUN = "async (within) => (await axe.run(within)).violations"


def violations(page: Any, within: str = "body") -> list[str]:
    """Return what axe finds wrong inside the first element that a selector matches: rule, help and element in a line each."""
    if not SCRIPT.exists():
        pytest.skip("axe-core is not installed: npm install --prefix tests/javascript")
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(SCRIPT.read_text(encoding="utf-8"))
    found = page.evaluate(RUN, within)
    return [f"{one['id']}: {one['help']}: {node['html'][:200]} {node['target']}" for one in found for node in one["nodes"]]

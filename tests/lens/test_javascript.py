"""Modules of the pages that need no browser, tested by node's own test runner (tests/javascript)."""

import shutil
import subprocess
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[1] / "javascript").glob("*.test.js"))


def node_version() -> tuple[int, ...]:
    """Return the version of node; empty without it."""
    node = shutil.which("node")
    if node is None:
        return ()
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(number) for number in said.strip().lstrip("v").split("."))


@pytest.mark.skipif(node_version() < (20, 19), reason="node 20.19 or newer is not installed")
def test_modules_pass_their_tests() -> None:
    found = subprocess.run(["node", "--test", *map(str, FILES)], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout[-8000:]
    assert "# fail 0" in found.stdout or "fail 0" in found.stdout

"""What holds for every test: one core, known randomness, and no file outside the test's own folder."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # kernels run step by step in Python, where Triton is installed

# A shell lets what it starts in the background ignore Ctrl-C, and so do the children of that, some of which are sent one.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _one_core() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _apart_from_the_world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Weights and inputs drawn in a test are the same each time, and corpora are cached in the test's folder."""
    torch.manual_seed(0)
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real one, in which pages are used; where there is none, tests that ask for it are skipped."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed, which drives the browser")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium is installed, in which pages would be used")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()

"""Fixtures for every test: one core, a fixed seed, and no files outside the test's own folder."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import platform_needs
from object_store import environment, running_store

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # runs Triton kernels in Python, without a GPU

# A shell starts background jobs with SIGINT ignored; children inherit that, and some tests send them SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that this system cannot run; each says why."""
    missing = platform_needs.lacking()
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        marks = {mark.name for mark in item.iter_markers()}
        for need in missing & platform_needs.needs_of(marks, fixtures, item.path.parent.name):
            item.add_marker(pytest.mark.skip(reason=f"{need}: {platform_needs.NEEDS[need]}"))


@pytest.fixture(scope="session", autouse=True)
def _one_core() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _apart_from_the_world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Fix the random seed, and cache corpora in the test's folder."""
    torch.manual_seed(0)
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real browser; skips the test where none is installed."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def _store_server() -> Iterator[Any]:
    with running_store() as store:
        yield store


@pytest.fixture
def store(_store_server: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An S3 server that this process and its children reach, with no faults yet."""
    _store_server.reset()
    for name, value in environment(_store_server).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("qkv.base.urls.FIRST_WAIT", 0.001)
    return _store_server

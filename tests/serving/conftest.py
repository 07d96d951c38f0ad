"""Models of every kind, loaded once, and a service of them."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from pages import DESKTOP, SHOWN, Open
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


FAILED = "Failed to load resource"  # what the browser itself writes of an answer that is a refusal


@pytest.fixture
def open_page(browser: Any, running: Running) -> Iterator[Open]:
    """Opens the page at an address; in the end no script may have failed, and nobody else may have been asked anything."""
    problems: list[str] = []
    contexts: list[Any] = []

    def opened(
        address: str = "",
        url: str = running.url,
        viewport: dict[str, int] = DESKTOP,
        theme: str = "light",
        locale: str = "en-GB",
        routes: dict[str, Any] | None = None,
    ) -> Any:
        contexts.append(browser.new_context(viewport=viewport, color_scheme=theme, locale=locale, reduced_motion="reduce"))
        page = contexts[-1].new_page()
        page.set_default_timeout(SHOWN)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: said.type == "error" and FAILED not in said.text and problems.append(said.text))
        page.on("request", lambda asked: asked.url.startswith((url, "data:", "blob:")) or problems.append(asked.url))
        for pattern, answer in (routes or {}).items():
            page.route(pattern, answer)
        page.goto(f"{url}/#{address}")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert problems == []

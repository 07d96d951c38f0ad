"""The pages of word vectors in a browser: search, choice of a word, keys, methods, a slider; and the commands that write them."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from axe import violations
from qkv.cli.app import app
from qkv.lens.page import render_page
from qkv.vectors.views import NeighboursThroughTraining, map_words, view_analogy
from qkv.vectors.word_vectors import WordVectors

WORDS = ["king", "queen", "man", "woman", "<b>prince</b>", "water", "river", "music"]
PHONE = {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def vectors() -> WordVectors:
    matrix = np.random.default_rng(4).normal(size=(len(WORDS), 10)).astype(np.float32)
    return WordVectors(WORDS, matrix, counts=np.arange(80, 0, -10))


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens the page of a view; at the end, nothing may have gone wrong in it."""
    problems: list[str] = []
    contexts = []

    def opened(view: dict[str, Any], **options: Any) -> Any:
        path = tmp_path / "page.html"
        path.write_text(render_page(view), encoding="utf-8")
        contexts.append(browser.new_context(**options))
        shown = contexts[-1].new_page()
        shown.on("pageerror", lambda error: problems.append(str(error)))
        shown.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
        shown.goto(path.as_uri())
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
        return shown

    yield opened
    for context in contexts:
        context.close()
    assert problems == []


def test_a_word_of_the_map_is_found_and_its_neighbours_are_listed(show: Any, vectors: WordVectors) -> None:
    view = map_words(vectors, [WORDS], "tsne").json()
    shown = show(view)
    shown.get_by_role("searchbox").fill("wat")
    shown.keyboard.press("Enter")
    near = shown.locator(".near-words")
    assert near.locator("p").inner_text() == "Nearest to “water” (occurs 30 times)"
    listed = [WORDS[number] for number, _ in view["neighbours"][WORDS.index("water")]]
    assert all(word in said for word, said in zip(listed, near.locator("button").all_inner_texts(), strict=True))
    near.get_by_role("button").first.click()
    assert f"Nearest to “{listed[0]}”" in near.inner_text()
    shown.get_by_role("searchbox").fill("zzz")
    assert "No word" in shown.locator(".found-words").inner_text()


def test_the_map_is_zoomed_moved_and_switched(show: Any, vectors: WordVectors) -> None:
    shown = show(map_words(vectors, [WORDS], "tsne").json(), viewport=PHONE, locale="zh-CN", color_scheme="dark")
    canvas = shown.locator("canvas.word-map")
    pixels = "canvas => canvas.toDataURL()"
    seen = [canvas.evaluate(pixels)]
    canvas.focus()
    for key in ("+", "ArrowLeft", "ArrowUp", "-"):
        shown.keyboard.press(key)
        seen.append(canvas.evaluate(pixels))
    shown.get_by_role("button", name="放大").click()
    seen.append(canvas.evaluate(pixels))
    canvas.hover()
    shown.mouse.wheel(0, -200)
    shown.wait_for_function("([canvas, before]) => canvas.toDataURL() !== before", arg=[canvas.element_handle(), seen[-1]])
    seen.append(canvas.evaluate(pixels))
    assert all(one != other for one, other in itertools.pairwise(seen))
    canvas.focus()
    shown.keyboard.press("0")
    assert canvas.evaluate(pixels) == seen[0]
    shown.get_by_role("radio", name="PCA").click()
    assert canvas.evaluate(pixels) != seen[0] and "method=pca" in shown.url


def test_a_link_restores_the_chosen_word(show: Any, vectors: WordVectors) -> None:
    shown = show(map_words(vectors, [WORDS], "pca").json())
    shown.get_by_role("searchbox").fill("music")
    shown.keyboard.press("Enter")
    shown.reload()
    assert "Nearest to “music”" in shown.locator(".near-words").inner_text()


def test_an_analogy_has_two_arrows_and_labels_that_are_texts(show: Any, vectors: WordVectors) -> None:
    shown = show(view_analogy(vectors, ("man", "king", "woman")).json(), viewport=PHONE)
    assert shown.locator("svg.analogy line").count() == 2
    assert {"man", "king", "woman"} <= {*shown.locator("svg.analogy title").all_text_contents()}
    assert shown.locator("svg.analogy b").count() == 0 and shown.locator("ol.answers li").count() == 5


def test_the_slider_shows_each_snapshot(show: Any) -> None:
    found = [{"king": [("queen", 0.2), ("man", 0.1)]}, {"king": [("queen", 0.9), ("river", 0.4)]}]
    shown = show(NeighboursThroughTraining(["king"], [0.005, 1.0], found).json())
    assert shown.locator(".training-share").inner_text() == "100 % of the training"
    assert shown.locator("li.final").count() == 2
    shown.get_by_role("slider").focus()
    shown.keyboard.press("Home")
    assert shown.locator(".training-share").inner_text() == "0.5 % of the training"
    assert shown.locator("li.final .near").all_inner_texts() == ["queen"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_are_accessible(theme: str, show: Any, vectors: WordVectors) -> None:
    followed = NeighboursThroughTraining(["king"], [0.0, 1.0], [{"king": [("man", 0.1)]}, {"king": [("queen", 0.9)]}])
    for view in (map_words(vectors, [WORDS], "tsne"), view_analogy(vectors, ("man", "king", "woman")), followed):
        shown = show(view.json(), color_scheme=theme)
        if shown.get_by_role("searchbox").count():
            shown.get_by_role("searchbox").fill("music")
            shown.keyboard.press("Enter")
        elif shown.get_by_role("slider").count():
            shown.get_by_role("slider").fill("0")
        assert violations(shown) == []


def test_commands_write_the_pages(vectors: WordVectors, tmp_path: Path) -> None:
    vectors.save(tmp_path / "vectors")
    for arguments in (["map", "--count", "6"], ["analogy", "man", "king", "woman"]):
        command, *rest = arguments
        out = tmp_path / f"{command}.html"
        done = CliRunner().invoke(app, ["vectors", command, str(tmp_path / "vectors"), *rest, "--out", str(out)])
        assert done.exit_code == 0, done.output
        assert "Content-Security-Policy" in out.read_text(encoding="utf-8")

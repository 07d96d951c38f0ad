"""The laboratory in the page: each view of each model is drawn, by the address too, and asks for other numbers."""

import json
import re
from typing import Any

import pytest
from pages import PHONE, Open, ask, message, show

from axe import violations

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed, which drives the browser")
expect = playwright.expect
LABORATORY = ["arithmetic", "change", "layers", "attribution", "steps"]
TEXT = "red bird sings"


def shown(page: Any, view: str) -> None:
    """Wait until a view has drawn something."""
    page.locator(f"#{view}:not(.busy) .result:not([hidden]) .view > *").first.wait_for()


@pytest.mark.parametrize(("theme", "locale"), [("light", "en-GB"), ("dark", "zh-CN")])
def test_every_view_of_a_translator_is_drawn_and_accessible(open_page: Open, theme: str, locale: str) -> None:
    page = open_page(f"en-la/arithmetic?text={TEXT}", theme=theme, locale=locale)
    shown(page, "arithmetic")
    for view in LABORATORY:
        show(page, view, "en-la")
        shown(page, view)
        expect(page.locator(f"#{view} [name=text]")).to_have_value(TEXT)
        assert violations(page) == [], view


def test_views_of_word_vectors_are_drawn_and_accessible(open_page: Open) -> None:
    page = open_page("words/map")
    shown(page, "map")
    assert violations(page) == []
    show(page, "analogy", "words")
    for name, word in {"first": "sun", "second": "rain", "third": "tree"}.items():
        page.locator(f"#analogy [name={name}]").fill(word)
    page.locator("#analogy [name=third]").press("Control+Enter")
    shown(page, "analogy")
    assert violations(page) == []


def test_other_numbers_are_asked_for_and_in_the_address(open_page: Open) -> None:
    page = open_page("gpt/arithmetic?text=The quick fox")
    shown(page, "arithmetic")
    bodies: list[Any] = []
    page.on("request", lambda request: bodies.append(json.loads(request.post_data)) if request.post_data else None)
    layer = page.locator("#arithmetic .view select[data-key=Layer]")
    with page.expect_response("**/arithmetic"):
        layer.select_option("0")
    assert bodies[-1]["layer"] == 0 and bodies[-1]["text"] == "The quick fox"
    page.wait_for_url(re.compile("see=.*layer%3D0"))
    again = open_page(page.url.split("#")[1])
    shown(again, "arithmetic")
    expect(again.locator("#arithmetic .view select[data-key=Layer]")).to_have_value("0")


def test_a_patch_needs_two_texts(open_page: Open) -> None:
    page = open_page("gpt/patch?text=The quick fox&other=The quick fox", viewport=PHONE)
    expect(message(page, "patch")).to_have_text("Change a word of the second text.")
    ask(page, "patch", "The quick fox", other="The quick dog")
    page.locator("#patch:not(.busy) .message:not(:empty), #patch:not(.busy) .view > *").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


def test_views_are_in_two_groups(open_page: Open) -> None:
    page = open_page("gpt")
    groups = page.locator("nav .group")
    expect(groups.nth(0).locator("a")).to_have_text(["Continue"])
    expect(groups.nth(1).locator("a").first).to_have_text("Attention")
    assert "Arithmetic" in groups.nth(1).inner_text()
    show(page, "fill")
    expect(groups.nth(1)).not_to_contain_text("While it writes")


def test_measured_heads_are_shown_without_a_form(open_page: Open) -> None:
    page = open_page("bert/heads")
    shown(page, "heads")
    expect(page.locator("#heads form")).to_be_hidden()
    expect(page.locator("#heads .view table").first).to_be_visible()
    assert violations(page) == []
    expect(page.locator("nav a[aria-current=page]")).to_have_text("Heads")


def test_a_first_result_is_announced_while_it_is_computed(open_page: Open) -> None:
    page = open_page("gpt/layers")
    shown(page, "layers")
    page.route("**/attribute", lambda route: None)  # never answered
    page.evaluate("location.hash = '#gpt/attribution'")
    expect(message(page, "attribution")).to_have_text("Computing…")


def test_a_text_that_is_being_written_is_not_dimmed(open_page: Open) -> None:
    page = open_page("gpt/write")
    page.emulate_media(reduced_motion="no-preference")
    page.locator("#write .made").wait_for(state="attached")
    page.evaluate("document.getElementById('write').classList.add('busy')")
    page.wait_for_timeout(600)  # after the transition
    assert page.locator("#write .result").evaluate("one => getComputedStyle(one).opacity") == "1"

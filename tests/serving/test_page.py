"""The page in a real browser: every view used by pointer and keys, in both themes and on a phone."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pages import DESKTOP, FAINT, HOSTILE, NAMELESS, PHONE, VIEWS, Open, answered, ask, message, show
from service_runs import Running

from axe import violations
from encoder_runs import write_run
from qkv.serving.registry import load_models
from qkv.serving.streaming import RequestStream

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed, which drives the browser")
expect = playwright.expect
LONG = "Donaudampfschifffahrtsgesellschaftskapitän"


def test_translate_with_words_to_point_at(open_page: Open, running: Running) -> None:
    page = open_page("translate")
    ask(page, "translate", "red bird sings")
    said = running.said("/translate", q="red bird sings", alternatives=3)
    expect(page.locator("#translate-output")).to_have_text(said["translatedText"])
    assert page.locator("label[for=translate-text]").inner_text() == "English"
    assert page.locator("#translate-target").inner_text() == "Latin"
    assert page.locator("#best .score").all_inner_texts() == [f"{score:.2f}".replace("-", "−") for score in said["scores"]]

    words, told = page.locator("#alignment .chip"), page.locator("#alignment [aria-live]")
    words.nth(0).hover()
    expect(told).to_contain_text("was attended to by")
    before = told.inner_text()
    words.nth(0).focus()
    page.keyboard.press("ArrowRight")
    expect(told).not_to_have_text(before)
    assert words.nth(1).get_attribute("aria-pressed") == "true"


def test_another_translation_can_be_chosen(open_page: Open) -> None:
    page = open_page("en-la/translate?text=old tree")
    second = page.locator("#best li").nth(1)
    other = second.locator("label > span").first.inner_text()
    page.wait_for_selector("#translate:not(.busy) #alignment button")  # of the first one, drawn before another is chosen
    second.locator("input").check()
    expect(page.locator("#translate-output")).to_have_text(other)
    page.get_by_role("link", name="See all layers and heads").click()
    expect(page.locator("#attention [name=target]")).to_have_value(other)
    page.wait_for_selector("#attention [role=tab]")


def test_open_a_head_and_change_the_layer(open_page: Open) -> None:
    page = open_page("gpt/attention")
    ask(page, "attention", "The quick brown fox")
    page.get_by_role("tab", name="Attention").click()
    heads = page.get_by_role("group", name="Heads by layer")
    heads.locator("button").first.click()
    expect(page.get_by_role("region", name="Layer 1, head 1")).to_be_visible()
    heads.locator("button").nth(4).click()
    expect(page.get_by_role("region", name="Layer 2, head 1")).to_be_visible()
    expect(page.locator("#attention summary").first).to_contain_text("Continuation")


def test_a_text_with_its_tree(open_page: Open, tmp_path: Path) -> None:
    write_run(tmp_path / "tags", heads=("tags",), labels=("O", "NAME"), objective="tagging", positions="structural")
    with Running(load_models([str(tmp_path / "tags")], "cpu")) as served:
        page = open_page("attention", served.url)
        label = page.locator("label[for=attention-text]")
        expect(label).to_have_text('Text, such as {"text": "good dogs", "heads": [2, 0]}')
        ask(page, "attention", "the fox")
        expect(message(page, "attention")).to_contain_text('give {"text": "good dogs", "heads": [2, 0]}')
        page.locator("#attention summary").click()
        ask(page, "attention", '{"text": "the fox", "heads": [2, 0]}', target='{"text": "a dog", "heads": [2, 0]}')
        page.wait_for_selector("#attention [role=tab]")


def test_fill_in(open_page: Open, running: Running) -> None:
    page = open_page("fill")
    page.locator("#fill-text").fill("The quick ")
    page.get_by_role("button", name="Insert a blank").click()
    page.keyboard.press("Control+Enter")
    first, second = running.said("/fill", text="The quick [MASK]", top=6)["masks"][0][:2]
    guesses = page.locator("#fill .guess")
    expect(guesses.nth(0)).to_contain_text(first["word"])
    assert guesses.count() == 6 and "%" in guesses.nth(0).inner_text()
    guesses.nth(1).click()
    assert page.locator("#fill .filled").inner_text() == f"The quick {second['word']}"
    ask(page, "fill", "no blank here")
    expect(message(page, "fill")).to_contain_text("no blank")


def test_a_text_is_continued(open_page: Open) -> None:
    page = open_page("write")
    ask(page, "write", "The quick", tokens="20", temperature="0")
    expect(message(page, "write")).to_have_text("Ended after 20 tokens, the limit.")
    shown = page.locator("#write .written")
    assert shown.inner_text().startswith("The quick") and len(page.locator("#write .made").inner_text()) > 5
    assert not page.get_by_role("button", name="Stop").is_visible()


def test_writing_can_be_stopped(open_page: Open, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = RequestStream.token_callback

    def slowly(self: RequestStream, index: int, decoder: Any) -> Callable[[int], None]:
        tell = plain(self, index, decoder)
        return lambda token: (time.sleep(0.1), tell(token))[1]

    monkeypatch.setattr(RequestStream, "token_callback", slowly)
    page = open_page("write")
    ask(page, "write", "The quick", tokens="500", temperature="0")
    expect(page.locator("#write .made")).not_to_be_empty()
    page.get_by_role("button", name="Stop").click()
    expect(message(page, "write")).to_have_text("Stopped.")
    worker = running.service.workers["gpt"]
    while worker.active:
        time.sleep(0.02)
    expect(page.locator("#write-text")).to_be_focused()


def test_spaces_are_not_sent(open_page: Open) -> None:
    page = open_page("en-la/translate?text=")
    page.locator("#translate").wait_for()
    asked: list[str] = []
    page.on("request", lambda request: request.method == "POST" and asked.append(request.url))
    ask(page, "translate", " \n ")
    expect(message(page, "translate")).to_contain_text("nothing but spaces")
    assert not page.locator("#translate .result").is_visible() and asked == []


def test_predictions(open_page: Open) -> None:
    page = open_page("classes/predict")
    said = page.locator("#predict .prediction")
    ask(page, "predict", "The quick fox")
    expect(said).to_contain_text("%")
    assert said.locator(".verdict").inner_text() in ("good", "bad")
    show(page, "predict", "tags")
    ask(page, "predict", "The quick fox")
    expect(said).to_contain_text("tags the marked words")
    expect(said).to_contain_text("quick")
    assert page.locator("#predict-second").count() == 0
    show(page, "predict", "answers")
    ask(page, "predict", "What jumps?", second="The quick fox jumps.")
    expect(said).to_contain_text("a span of the passage")


def test_that_no_word_has_a_tag_is_told(open_page: Open) -> None:
    page = open_page("tags/predict")
    answered(page, "predict", {"model": "tags", "predictions": [{"tags": ["O", "O"]}]})
    ask(page, "predict", "quick fox")
    expect(page.locator("#predict .prediction")).to_contain_text("tags none of these words")


def test_neighbours_and_their_map(open_page: Open) -> None:
    page = open_page("words")
    ask(page, "words", "sun nowhere, rain")
    expect(page.locator("#words .neighbours h2")).to_have_text(["sun", "nowhere", "rain"])
    assert "not in the vocabulary" in page.locator("#words .neighbours .card").nth(1).inner_text()
    picture = page.get_by_role("img", name="A map of 8 words")
    assert picture.locator("circle").count() == 8 and picture.locator(".own").count() == 2
    first = page.locator("#words .guess").first
    word = first.locator(".word").inner_text()
    first.hover()
    assert picture.locator(".lit text").text_content() == word
    first.click()
    expect(page.locator("#words .neighbours h2")).to_have_text([word])


def test_themes(open_page: Open) -> None:
    page = open_page(theme="dark")
    switch = page.get_by_role("switch", name="Dark colours")
    ground = "getComputedStyle(document.body).backgroundColor"
    expect(switch).to_have_attribute("aria-checked", "true")
    assert page.evaluate(ground) == "rgb(16, 19, 26)"
    switch.focus()
    page.keyboard.press("Space")
    assert switch.get_attribute("aria-checked") == "false" and page.evaluate(ground) == "rgb(244, 245, 247)"
    page.reload()
    assert page.evaluate(ground) == "rgb(244, 245, 247)"


TEXTS = {"translate": "sun rain " * 4, "fill": "The [MASK]", "words": "sun"}


def use_all(page: Any, more: str = "") -> None:
    """Use every view, with some more text than it needs."""
    page.locator("body.ready").wait_for()
    for view in VIEWS:
        show(page, view)
        ask(page, view, f"{TEXTS.get(view, 'The quick fox')} {more}")
        page.wait_for_selector(f"#{view}:not(.busy) .result:not([hidden])")


def test_on_a_phone_nothing_is_wider_than_the_screen(open_page: Open) -> None:
    page = open_page(viewport=PHONE)
    use_all(page, LONG)
    for view in VIEWS:
        show(page, view)
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"], view
        assert page.locator("nav select[name=view]").bounding_box()["height"] >= 40


@pytest.mark.parametrize(("theme", "viewport"), [("light", DESKTOP), ("dark", PHONE)])
def test_everything_has_a_name_and_can_be_read(open_page: Open, theme: str, viewport: dict[str, int]) -> None:
    page = open_page(theme=theme, viewport=viewport)
    use_all(page)
    for view in VIEWS:
        show(page, view)
        assert page.evaluate(NAMELESS) == [] and page.evaluate(FAINT) == [], view


@pytest.mark.parametrize(("theme", "locale"), [("light", "en-GB"), ("dark", "zh-CN")])
def test_the_page_is_accessible(open_page: Open, theme: str, locale: str) -> None:
    page = open_page(theme=theme, locale=locale)
    use_all(page)
    for view in VIEWS:
        show(page, view)
        assert violations(page) == [], view


def test_text_stays_text(open_page: Open) -> None:
    page = open_page()
    page.locator("body.ready").wait_for()
    for view in VIEWS:
        show(page, view)
        ask(page, view, f"{HOSTILE} [MASK]" if view == "fill" else HOSTILE)
        page.wait_for_selector(f"#{view}:not(.busy)")
    show(page, "write")
    expect(page.locator("#write .given")).to_have_text(HOSTILE)
    show(page, "predict")
    expect(page.locator("#predict .prediction")).to_contain_text("onerror")
    assert page.locator("main img").count() == 0 and page.evaluate("window.ran") is None


def test_what_models_say_stays_text(open_page: Open) -> None:
    page = open_page("fill")
    page.locator("#fill").wait_for()
    answered(page, "fill", {"masks": [[{"word": HOSTILE, "probability": 0.5}]]})
    answered(page, "neighbours", {"neighbours": [{"word": HOSTILE, "similarity": 0.5}]})
    answered(page, "map", {"points": [{"word": HOSTILE, "x": 0, "y": 0}], "missing": []})
    answered(page, "predict", {"model": "classes", "predictions": [{"label": HOSTILE, "probability": 0.5}]})
    answered(page, "translate", {"translatedText": HOSTILE, "alternatives": [HOSTILE], "scores": [-1.0, -2.0]})
    for view, where in {"fill": ".filled", "words": ".map text", "predict": ".prediction", "translate": "#best li"}.items():
        show(page, view)
        ask(page, view, "[MASK]")
        expect(page.locator(f"#{view} {where}").first).to_contain_text(HOSTILE)
    assert page.locator("main img").count() == 0 and page.evaluate("window.ran") is None


def test_refusals_are_told_in_words(open_page: Open) -> None:
    page = open_page("translate")
    told = message(page, "translate")
    ask(page, "translate", "sun " * 20_000)
    expect(told).to_have_text("79,999 characters in one request; send 50,000 at most.")
    answered(page, "translate", {"error": "busy"}, 429, **{"Retry-After": "7"})
    ask(page, "translate", "sun")
    expect(told).to_have_text("The server is busy. Try again in 7 s.")
    answered(page, "translate", {"error": "internal"}, 500)
    ask(page, "translate", "sun")
    expect(told).to_contain_text("Something went wrong on the server")
    page.route("**/translate", lambda route: route.abort())
    ask(page, "translate", "sun")
    expect(told).to_contain_text("The server does not answer")
    page.unroute("**/translate")
    ask(page, "translate", "sun")
    expect(told).to_be_empty()


def test_a_refusal_within_a_stream_is_told(open_page: Open) -> None:
    pieces = [
        {"choices": [{"index": 0, "text": " fox", "finish_reason": None}]},
        {"error": {"message": "the answer took too long"}},
    ]
    body = "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces)
    page = open_page("write")
    page.route("**/v1/completions", lambda route: route.fulfill(status=200, body=body, content_type="text/event-stream"))
    ask(page, "write", "The")
    expect(message(page, "write")).to_have_text("The answer took too long.")
    assert page.locator("#write .written").inner_text() == "The fox"

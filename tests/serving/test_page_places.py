"""The page's models, views and addresses; examples, what follows typing, languages and keys."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from pages import PHONE, SHOWN, Open, answered, ask, show
from service_runs import Running

import qkv.lens
import qkv.serving
from qkv.serving.authentication import digest
from qkv.serving.registry import ModelRegistry
from qkv.serving.settings import ApiKey

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed, which drives the browser")
expect = playwright.expect
EXAMPLES = ["red bird sings", "old tree", "sun rain falls"]
PAGE = Path(qkv.serving.__file__).parent / "page"
CHINESE = Path(qkv.lens.__file__).parent / "viewer" / "chinese" / "page.js"


def with_examples(route: Any) -> None:
    """Answer GET /models with examples of the translator."""
    models = route.fetch().json()
    route.fulfill(json=[{**one, "examples": EXAMPLES if one["id"] == "en-la" else []} for one in models])


def test_each_model_has_the_views_of_its_abilities(open_page: Open) -> None:
    page = open_page()
    page.locator("body.ready #translate").wait_for()
    listed = page.locator("nav .model b").all_inner_texts()
    assert listed == ["en-la", "bert", "classes", "tags", "answers", "gpt", "t5", "words"]
    assert "English → Latin" in page.locator("nav .model").first.inner_text()
    expect(page.locator("nav .views a").first).to_have_text("Translate")
    assert page.title() == "Translate · en-la · qkv"
    page.get_by_role("link", name="words").click()
    expect(page.locator("#words-title")).to_be_focused()
    expect(page).to_have_title("Neighbours · words · qkv")
    assert page.locator("nav [aria-current=page]").all_inner_texts() == ["Neighbours"]
    page.get_by_role("link", name="Skip to the content").press("Enter")
    expect(page.locator("main")).to_be_focused()
    assert page.locator("#words").is_visible() and "#words/words" in page.url


def test_on_a_phone_models_and_views_are_fields(open_page: Open) -> None:
    page = open_page("translate", viewport=PHONE)
    page.locator("nav select[name=model]").select_option(label="gpt: continues texts")
    page.locator("#write").wait_for()
    page.locator("nav select[name=view]").focus()
    page.locator("nav select[name=view]").select_option(label="Attention")
    page.locator("#attention").wait_for()
    expect(page.locator("nav select[name=view]")).to_be_focused()
    assert page.evaluate("location.hash").startswith("#gpt/attention")


def test_at_first_the_first_example_is_shown(open_page: Open, running: Running) -> None:
    page = open_page(routes={"**/models": with_examples})
    expect(page.locator("#translate-text")).to_have_value(EXAMPLES[0])
    output = page.locator("#translate-output")
    first, second = (running.said("/translate", q=text, alternatives=3)["translatedText"] for text in EXAMPLES[:2])
    expect(output).to_have_text(first)
    assert page.locator(".example").all_inner_texts() == EXAMPLES
    page.get_by_role("button", name=EXAMPLES[1]).click()
    expect(output).to_have_text(second)
    page.go_back()
    expect(page.locator("#translate-text")).to_have_value(EXAMPLES[0])


def test_views_of_a_model_share_its_text_and_the_back_button_returns(open_page: Open) -> None:
    page = open_page("translate")
    ask(page, "translate", "red bird")
    page.locator("#translate:not(.busy) .result").wait_for()
    page.get_by_role("link", name="Attention", exact=True).click()
    expect(page.locator("#attention [name=text]")).to_have_value("red bird")
    page.wait_for_selector("#attention [role=tab]")
    ask(page, "attention", "old tree")
    page.wait_for_url(re.compile("attention.*old.tree"))
    page.go_back()
    expect(page.locator("#translate-text")).to_have_value("red bird")
    page.go_forward()
    expect(page.locator("#attention [name=text]")).to_have_value("old tree")


def test_an_address_restores_a_view(open_page: Open) -> None:
    page = open_page("gpt/attention")
    text = "The quick brown fox, 50 % & more? #1 " + "dog " * 12
    ask(page, "attention", text)
    page.get_by_role("tab", name="Attention").click()
    page.get_by_role("group", name="Heads by layer").locator("button").nth(4).click()
    page.get_by_role("region", name="Layer 2, head 1").wait_for()
    page.wait_for_url(re.compile("see=.*head"))
    again = open_page(page.url.split("#")[1])
    again.get_by_role("region", name="Layer 2, head 1").wait_for()
    expect(again.locator("#attention [name=text]")).to_have_value(text.strip())


def test_options_and_long_texts_are_in_the_address(open_page: Open) -> None:
    long = "sun rain " * 4000
    page = open_page("write", routes={"**/v1/completions": lambda route: route.abort()})
    ask(page, "write", long, temperature="0")
    page.wait_for_url(re.compile("text=sun.*temperature=0"))
    again = open_page(page.url.split("#")[1], routes={"**/v1/completions": lambda route: route.abort()})
    expect(again.get_by_label("Sampling")).to_have_value("0")
    assert len(again.locator("#write-text").input_value()) == len(long.strip())


def test_an_unknown_address_shows_the_first_view(open_page: Open) -> None:
    page = open_page("nobody/nothing?x=%E0%A4%A")
    page.locator("#translate").wait_for()


def wait_for(page: Any, found: list[Any], count: int) -> None:
    """Wait until a list has so many elements, which the page's events add."""
    end = time.monotonic() + SHOWN / 1000
    while len(found) < count and time.monotonic() < end:
        page.evaluate("new Promise((resolve) => requestAnimationFrame(resolve))")
    assert len(found) == count


def test_the_result_follows_what_is_typed_with_one_request_at_a_time(open_page: Open) -> None:
    page = open_page("bert/fill?text=")
    page.locator("#fill").wait_for()
    waiting: list[Any] = []
    texts: list[str] = []

    def hold(route: Any) -> None:
        texts.append(json.loads(route.request.post_data)["text"])
        waiting.append(route)

    page.route("**/fill", hold)
    expect(page.locator("#fill-text")).to_have_value("")
    page.locator("#fill-text").press_sequentially("one [MASK]")
    wait_for(page, waiting, 1)
    page.locator("#fill-text").press_sequentially(" two three")
    page.locator("#fill-text").press_sequentially(" four")
    assert texts == ["one [MASK]"]  # the first answer is still awaited
    waiting[0].fulfill(json={"masks": [[{"word": "first", "probability": 0.5}]]})
    wait_for(page, waiting, 2)
    waiting[1].fulfill(json={"masks": [[{"word": "last", "probability": 0.5}]]})
    expect(page.locator("#fill .filled")).to_have_text("one last two three four")
    assert texts == ["one [MASK]", "one [MASK] two three four"]
    expect(page.locator("#fill-text")).to_be_focused()


def test_a_long_text_waits_for_a_button(open_page: Open) -> None:
    page = open_page("en-la/translate?text=")
    page.locator("#translate").wait_for()
    asked: list[str] = []
    page.on("request", lambda request: request.method == "POST" and asked.append(request.url))
    page.locator("#translate-text").fill("sun rain " * 300)
    button = page.get_by_role("button", name="Translate")
    expect(button).to_be_visible()
    assert asked == []
    answered(page, "look", {"error": "no"}, 400)
    answered(page, "translate", {"translatedText": "sol", "alternatives": [], "scores": [-1.0]})
    button.click()
    expect(page.locator("#translate-output")).to_have_text("sol")
    page.locator("#translate-text").fill("sun")
    expect(button).not_to_be_visible()


def test_the_page_speaks_the_readers_language(open_page: Open) -> None:
    page = open_page("fill", locale="zh-CN")
    expect(page.locator("#fill h1")).to_have_text("填空")
    assert page.evaluate("document.documentElement.lang") == "zh-Hans"
    ask(page, "fill", "The [MASK]")
    page.get_by_role("button", name="English").click()
    expect(page.locator("#fill h1")).to_have_text("Fill in")
    expect(page.locator("#fill-text")).to_have_value("The [MASK]")
    assert page.evaluate("document.documentElement.lang") == "en"
    page.goto(page.url.split("#")[0] + "docs")
    expect(page.locator("main button").first).to_have_text("Try")


def texts_of_the_page() -> set[str]:
    """Return all that modules of the page say."""
    found: set[str] = set()
    for path in PAGE.glob("*.js"):
        code = path.read_text(encoding="utf-8")
        found |= set(re.findall(r'\bsay\((?:[^"()]*\? )?"([^"]+)"', code))
        found |= set(re.findall(r'\b(?:name|lead|action|busy|missing|hint): "([A-Z][^"]+)"', code))
        found |= set(re.findall(r'(?:say\([^"()]*\? "[^"]+"|hint\([^"()]*\? "[^"]+") : "([^"]+)"', code))
    for path in (PAGE / "index.html", PAGE.parent / "docs_page.py"):
        html = path.read_text(encoding="utf-8")
        found |= set(re.findall(r"data-say>([^<{]+)<", html)) | set(re.findall(r'aria-label="([^"]+)" data-say-label', html))
    return found


def test_every_text_of_the_page_has_a_translation() -> None:
    known = set(re.findall(r'^  "((?:[^"\\]|\\.)+)": ', CHINESE.read_text(encoding="utf-8"), re.MULTILINE))
    said = texts_of_the_page()
    assert len(said) > 80 and said - known == set()


def guarded(models: ModelRegistry) -> Running:
    return Running(models, keys=(ApiKey(name="anna", digest=digest("open sesame")),))


def test_a_key_is_asked_for_until_it_is_right(open_page: Open, models: ModelRegistry) -> None:
    with guarded(models) as served:
        page = open_page(url=served.url, viewport=PHONE)
        field = page.get_by_role("dialog", name="This server needs a key").get_by_label("Key", exact=True)
        expect(field).to_be_focused()
        field.fill("guessed")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("does not know this key")
        expect(field).to_be_focused()
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        page.keyboard.type("open sesame")  # what was wrong is selected
        page.keyboard.press("Enter")
        ask(page, "translate", "red bird")
        expect(page.locator("#translate-output")).not_to_be_empty()
        assert not field.is_visible() and page.evaluate("localStorage.length") == 0
        page.reload()
        page.locator("#translate").wait_for()
        page.goto("about:blank")


def test_work_goes_on_after_the_key_is_given(open_page: Open, models: ModelRegistry) -> None:
    with guarded(models) as served:
        page = open_page(url=served.url)
        page.get_by_role("dialog", name="This server needs a key").get_by_label("Key", exact=True).fill("open sesame")
        page.keyboard.press("Enter")
        show(page, "fill")
        served.service.authenticator.keys = (ApiKey(name="ben", digest=digest("changed")),)
        ask(page, "fill", "The [MASK]")
        field = page.get_by_role("dialog", name="This server needs a key").get_by_label("Key", exact=True)
        expect(page.get_by_role("alert")).to_contain_text("does not know this key")
        field.fill("changed")
        page.keyboard.press("Enter")
        expect(page.locator("#fill .filled")).to_contain_text("The")
        expect(page.locator("#fill-text")).to_be_focused()
        page.goto("about:blank")


def test_without_a_key_the_page_says_what_is_missing(open_page: Open, models: ModelRegistry) -> None:
    with guarded(models) as served:
        page = open_page(url=served.url)
        page.get_by_role("dialog", name="This server needs a key").get_by_label("Key", exact=True).wait_for()
        page.keyboard.press("Escape")
        expect(page.locator("#note")).to_contain_text("needs a key")
        page.get_by_role("button", name="Give the key").click()
        page.get_by_role("dialog", name="This server needs a key").get_by_label("Key", exact=True).fill("open sesame")
        page.keyboard.press("Enter")
        page.locator("#translate").wait_for()
        expect(page.locator("#note")).to_be_empty()
        page.goto("about:blank")

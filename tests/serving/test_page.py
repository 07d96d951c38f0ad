"""The page in a real browser: every panel used by pointer and keys, in both themes and on a phone."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from service_runs import Running

from encoder_runs import write_run
from qkv.serving.admin_api import admin_router
from qkv.serving.authentication import digest
from qkv.serving.registry import ModelRegistry, load_models
from qkv.serving.settings import ApiKey
from qkv.serving.streaming import RequestStream
from qkv.serving.supervisor_link import SupervisorLink

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed, which drives the browser")
DESKTOP, PHONE = {"width": 1200, "height": 900}, {"width": 360, "height": 740}
PANELS = ["translate", "fill", "write", "predict", "words", "look"]
HOSTILE = '<img src=x onerror="window.ran=1">'
LONG = "Donaudampfschifffahrtsgesellschaftskapitän"
FAILED = "Failed to load resource"  # what the browser itself writes of an answer that is a refusal

Open = Callable[..., Any]


@pytest.fixture
def open_page(browser: Any, running: Running) -> Iterator[Open]:
    """Opens the page at a panel; in the end no script may have failed, and nobody else may have been asked anything."""
    problems: list[str] = []
    contexts: list[Any] = []

    def opened(panel: str = "", url: str = running.url, viewport: dict[str, int] = DESKTOP, theme: str = "light") -> Any:
        contexts.append(browser.new_context(viewport=viewport, color_scheme=theme))
        page = contexts[-1].new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: said.type == "error" and FAILED not in said.text and problems.append(said.text))
        page.on("request", lambda asked: asked.url.startswith(url) or problems.append(asked.url))
        page.goto(f"{url}/#{panel}")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert problems == []


def ask(page: Any, panel: str, text: str, **fields: str) -> None:
    """Fill in a panel's form and send it."""
    for name, value in fields.items():
        field = page.locator(f"#{panel} form [name={name}]")
        (field.select_option if name in ("model", "tokens", "temperature") else field.fill)(value)
    page.locator(f"#{panel} form [name=text]").fill(text)
    page.locator(f"#{panel} button[type=submit]").click()


def message(page: Any, panel: str) -> Any:
    return page.locator(f"#{panel} .message")


def test_a_panel_for_each_thing_that_the_models_can_do(open_page: Open) -> None:
    page = open_page()
    page.wait_for_selector("#translate:not([hidden])")
    assert page.locator("nav a:visible").all_inner_texts() == [
        "Translate",
        "Fill in",
        "Continue",
        "Predict",
        "Words",
        "Attention",
    ]
    assert page.title() == "Translate · qkv"
    page.get_by_role("link", name="Words").click()
    playwright.expect(page.locator("#words-title")).to_be_focused()
    assert page.locator("#words").is_visible() and not page.locator("#translate").is_visible()
    assert page.evaluate("document.activeElement.id") == "words-title" and page.title() == "Words · qkv"
    page.get_by_role("link", name="Skip to the content").press("Enter")
    page.wait_for_url("**/#main")
    assert page.locator("#words").is_visible() and page.evaluate("document.activeElement.id") == "words-title"


def test_translate_with_words_to_point_at(open_page: Open, running: Running) -> None:
    page = open_page("translate")
    ask(page, "translate", "red bird sings")
    said = running.said("/translate", q="red bird sings", alternatives=3)
    playwright.expect(page.locator("#translate-output")).to_have_text(said["translatedText"])
    assert page.locator("label[for=translate-text]").inner_text() == "English"
    assert page.locator("#translate-target").inner_text() == "Latin"
    assert page.locator("#best .score").all_inner_texts() == [f"{score:.2f}".replace("-", "−") for score in said["scores"]]

    words, told = page.locator("#alignment .chip"), page.locator("#alignment [aria-live]")
    words.nth(0).hover()
    playwright.expect(told).to_contain_text("was attended to by")
    before = told.inner_text()
    words.nth(0).focus()
    page.keyboard.press("ArrowRight")
    assert told.inner_text() != before and words.nth(1).get_attribute("aria-pressed") == "true"


def test_another_translation_can_be_chosen(open_page: Open) -> None:
    page = open_page("translate")
    ask(page, "translate", "old tree")
    second = page.locator("#best li").nth(1)
    other = second.locator("label > span").first.inner_text()
    page.wait_for_selector("#alignment button")  # of the first one, drawn before another is chosen
    second.locator("input").check()
    playwright.expect(page.locator("#translate-output")).to_have_text(other)
    page.wait_for_selector("#translate:not(.busy) #alignment button")
    page.get_by_role("link", name="See all layers and heads").click()
    assert page.locator("#look-target").input_value() == other
    page.wait_for_selector("#look [role=tab]")


def test_open_a_head_and_change_the_layer(open_page: Open) -> None:
    page = open_page("look")
    ask(page, "look", "The quick brown fox", model="gpt")
    page.get_by_role("tab", name="Attention").click()
    heads = page.get_by_role("group", name="Heads by layer")
    heads.locator("button").first.click()
    playwright.expect(page.get_by_role("region", name="Layer 1, head 1")).to_be_visible()
    heads.locator("button").nth(4).click()
    playwright.expect(page.get_by_role("region", name="Layer 2, head 1")).to_be_visible()
    assert page.locator("label[for=look-target]").inner_text().startswith("Continuation")


def test_a_text_with_its_tree(open_page: Open, tmp_path: Path) -> None:
    write_run(tmp_path / "tags", heads=("tags",), labels=("O", "NAME"), objective="tagging", positions="structural")
    with Running(load_models([str(tmp_path / "tags")], "cpu")) as served:
        page = open_page("look", served.url)
        label = page.locator("label[for=look-text]")
        playwright.expect(label).to_have_text('Text, such as {"text": "good dogs", "heads": [2, 0]}')
        ask(page, "look", "the fox")
        playwright.expect(message(page, "look")).to_contain_text('give {"text": "good dogs", "heads": [2, 0]}')
        ask(page, "look", '{"text": "the fox", "heads": [2, 0]}', target='{"text": "a dog", "heads": [2, 0]}')
        page.wait_for_selector("#look [role=tab]")


def test_fill_in(open_page: Open, running: Running) -> None:
    page = open_page("fill")
    page.locator("#fill-text").fill("The quick ")
    page.get_by_role("button", name="Insert a blank").click()
    page.keyboard.press("Control+Enter")
    first, second = running.said("/fill", text="The quick [MASK]", top=6)["masks"][0][:2]
    guesses = page.locator("#fill .guess")
    playwright.expect(guesses.nth(0)).to_contain_text(first["word"])
    assert guesses.count() == 6 and "%" in guesses.nth(0).inner_text()
    guesses.nth(1).click()
    assert page.locator("#fill .filled").inner_text() == f"The quick {second['word']}"
    ask(page, "fill", "no blank here")
    playwright.expect(message(page, "fill")).to_contain_text("no blank")


def test_a_text_is_continued(open_page: Open) -> None:
    page = open_page("write")
    ask(page, "write", "The quick", tokens="20", temperature="0")
    playwright.expect(message(page, "write")).to_have_text("Ended after 20 tokens, the limit.")
    shown = page.locator("#write .written")
    assert shown.inner_text().startswith("The quick") and len(page.locator("#write .made").inner_text()) > 5
    assert not page.get_by_role("button", name="Stop").is_visible()


def test_writing_can_be_stopped(open_page: Open, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = RequestStream.callback

    def slowly(self: RequestStream, index: int, *record: Any) -> Callable[[str], None]:
        tell = plain(self, index, *record)
        return lambda piece: (time.sleep(0.1), tell(piece))[1]

    monkeypatch.setattr(RequestStream, "callback", slowly)
    page = open_page("write")
    ask(page, "write", "The quick", tokens="500", temperature="0")
    playwright.expect(page.locator("#write .made")).not_to_be_empty()
    page.get_by_role("button", name="Stop").click()
    playwright.expect(message(page, "write")).to_have_text("Stopped.")
    worker = running.service.workers["gpt"]
    while worker.active:
        time.sleep(0.02)
    assert page.evaluate("document.activeElement.textContent") == "Continue"


def test_spaces_are_not_sent(open_page: Open) -> None:
    page = open_page("translate")
    page.wait_for_selector("#translate:not([hidden])")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    ask(page, "translate", " \n ")
    playwright.expect(message(page, "translate")).to_contain_text("nothing but spaces")
    assert not page.locator("#translate .result").is_visible() and asked == []


def test_predictions(open_page: Open) -> None:
    page = open_page("predict")
    said = page.locator("#predict .prediction")
    ask(page, "predict", "The quick fox", model="classes")
    playwright.expect(said).to_contain_text("%")
    assert said.locator(".verdict").inner_text() in ("good", "bad")
    ask(page, "predict", "The quick fox", model="tags")
    playwright.expect(said).to_contain_text("tags the marked words")
    assert "quick" in said.inner_text() and not page.locator("#predict-second").is_visible()
    ask(page, "predict", "What jumps?", model="answers", second="The quick fox jumps.")
    playwright.expect(said).to_contain_text("a span of the passage")


def test_that_no_word_has_a_tag_is_told(open_page: Open) -> None:
    page = open_page("predict")
    page.route("**/predict", lambda asked: asked.fulfill(json={"model": "tags", "predictions": [{"tags": ["O", "O"]}]}))
    ask(page, "predict", "quick fox", model="tags")
    playwright.expect(page.locator("#predict .prediction")).to_contain_text("tags none of these words")


def test_neighbours_and_their_map(open_page: Open) -> None:
    page = open_page("words")
    ask(page, "words", "sun nowhere, rain")
    playwright.expect(page.locator("#words .neighbours h2")).to_have_text(["sun", "nowhere", "rain"])
    assert "not in the vocabulary" in page.locator("#words .neighbours .card").nth(1).inner_text()
    picture = page.get_by_role("img", name="A map of 8 words")
    assert picture.locator("circle").count() == 8 and picture.locator(".own").count() == 2
    first = page.locator("#words .guess").first
    word = first.locator(".word").inner_text()
    first.hover()
    assert picture.locator(".lit text").text_content() == word
    first.click()
    playwright.expect(page.locator("#words .neighbours h2")).to_have_text([word])


def test_themes(open_page: Open) -> None:
    page = open_page(theme="dark")
    switch = page.get_by_role("switch", name="Dark colours")
    ground = "getComputedStyle(document.body).backgroundColor"
    assert switch.get_attribute("aria-checked") == "true" and page.evaluate(ground) == "rgb(16, 19, 26)"
    switch.focus()
    page.keyboard.press("Space")
    assert switch.get_attribute("aria-checked") == "false" and page.evaluate(ground) == "rgb(244, 245, 247)"
    page.reload()
    assert page.evaluate(ground) == "rgb(244, 245, 247)"


BELOW = """() => [...document.querySelectorAll(".index a, .endpoint h2")]
  .filter((one) => one.querySelector("b").getBoundingClientRect().right > one.lastElementChild.getBoundingClientRect().left)
  .map((one) => one.textContent)"""  # paths that are not beside their method


def use_all(page: Any, more: str = "") -> None:
    """Use every panel, with some more text than it needs."""
    page.wait_for_selector("nav a:visible")
    for panel, text in zip(PANELS, ["sun rain " * 4, "The [MASK]", "The", "fox", "sun", "red bird"], strict=True):
        page.evaluate(f"location.hash = '{panel}'")
        ask(page, panel, f"{text} {more}", **({"model": "gpt"} if panel == "look" else {}))
        page.wait_for_selector(f"#{panel}:not(.busy) .result:not([hidden])")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_api_on_a_phone(open_page: Open, running: Running, theme: str) -> None:
    page = open_page(viewport=PHONE, theme=theme)
    page.goto(f"{running.url}/docs")
    assert page.locator("section").count() > 10
    page.locator("summary").first.click()
    assert page.evaluate(NAMELESS) == [] and page.evaluate(FAINT) == []
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert page.evaluate(BELOW) == []


def test_requests_are_tried_on_the_page_of_the_api(open_page: Open, running: Running, tmp_path: Path) -> None:
    page = open_page()
    page.goto(f"{running.url}/docs")
    said = running.said("/translate", q="How are you?", source="en", target="la", alternatives=2)
    page.locator("#post-translate button[type=submit]").click()
    page.locator("#post-translate .status", has_text="200").wait_for()
    assert json.loads(page.locator("#post-translate pre").inner_text()) == said
    page.locator("#post-translate textarea").fill('{"q": "sun", "target": "xx"}')
    page.locator("#post-translate button[type=submit]").click()
    page.locator("#post-translate .status.failed", has_text="400").wait_for()
    page.locator("#post-translate textarea").fill("no JSON")
    page.locator("#post-translate button[type=submit]").click()
    page.locator("#post-translate .message.error", has_text="not JSON").wait_for()
    page.locator("#post-v1-completions button[type=submit]").click()
    page.locator("#post-v1-completions pre", has_text="[DONE]").wait_for()
    (tmp_path / "a.txt").write_text("red bird")
    for endpoint, problem in {
        "post-translate_file": "Choose a file first.",
        "get-download_file-name": "Fill in name first.",
    }.items():
        page.locator(f"#{endpoint} button[type=submit]").click()
        playwright.expect(page.locator(f"#{endpoint} .message.error")).to_have_text(problem)
    page.locator("#post-translate_file input[type=file]").set_input_files(tmp_path / "a.txt")
    page.locator("#post-translate_file button[type=submit]").click()
    with page.expect_download() as fetched:
        page.locator("#post-translate_file .answer a").click()
    assert fetched.value.suggested_filename == "a_la.txt"
    page.locator("#get-download_file-name button[type=submit]").click()
    playwright.expect(page.locator("#get-download_file-name pre")).to_have_text(f"{len(said_of(running, 'red bird'))} bytes")


def said_of(running: Running, text: str) -> bytes:
    return running.said("/translate", q=text)["translatedText"].encode()


class Administered(SupervisorLink):
    """Stands for the supervisor of a service."""

    def __init__(self) -> None:
        pass

    async def ask(self, **question: Any) -> dict[str, Any]:
        served = {"models": {"gpt": "runs/gpt"}, "adapters": {}}
        return {"served": served} if question["what"] == "list" else {"failed": f"there is no {question['name']}"}


def test_administration_is_tried_with_its_own_key(open_page: Open, models: ModelRegistry) -> None:
    keys = {"keys": (ApiKey(name="anna", digest=digest("sesame")),), "admin_keys": (ApiKey(name="root", digest=digest("root")),)}
    served = Running(models, **keys)
    served.app.include_router(admin_router(served.service, Administered()))
    with served as guarded:
        described = guarded.client.get("/openapi.json").json()["paths"]["/admin/models/{name}"]["delete"]
        assert {"403", "409"} <= described["responses"].keys() and described["security"] != []
        page = open_page(url=guarded.url)
        page.goto(f"{guarded.url}/docs")
        page.locator("#get-admin-models button[type=submit]").click()
        page.locator("#get-admin-models .status.failed", has_text="401").wait_for()
        page.get_by_role("link", name="Give the key").click()
        page.get_by_label("These requests need an administrator's key").fill("root")
        page.keyboard.press("Enter")
        page.locator("#get-admin-models button[type=submit]").click()
        page.locator("#get-admin-models .status", has_text="200").wait_for()
        page.locator("#delete-admin-models-name button[type=submit]").click()
        playwright.expect(page.locator("#delete-admin-models-name .message")).to_have_text("Fill in name first.")
        page.locator("#delete-admin-models-name input").fill("old one")
        page.locator("#delete-admin-models-name button[type=submit]").click()
        page.locator("#delete-admin-models-name .status.failed", has_text="409").wait_for()
        assert "there is no old one" in page.locator("#delete-admin-models-name pre").inner_text()
        page.get_by_label("This service needs a key").fill("sesame")
        page.keyboard.press("Enter")
        page.locator("#get-models button[type=submit]").click()
        page.locator("#get-models .status", has_text="200").wait_for()
        page.goto("about:blank")


def test_on_a_phone_nothing_is_wider_than_the_screen(open_page: Open) -> None:
    page = open_page(viewport=PHONE)
    use_all(page, LONG)
    for panel in PANELS:
        page.evaluate(f"location.hash = '{panel}'")
        playwright.expect(page.locator(f"#{panel}")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"], panel
        assert page.locator("nav a[aria-current]").bounding_box()["height"] >= 32


NAMELESS = """() => [...document.querySelectorAll("main button, main input, main textarea, main select, header button")]
  .filter((one) => one.checkVisibility() && !one.labels?.length && !one.ariaLabel && !one.textContent.trim())
  .map((one) => one.outerHTML)"""
FAINT = """() => {
  const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
  const even = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const light = (color) => {
    const [red, green, blue] = numbers(color).map((value) => even(value / 255));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ground = (one) => {
    const color = getComputedStyle(one).backgroundColor;
    return numbers(color)[3] === 0 ? ground(one.parentElement) : color;
  };
  const contrast = (one) => {
    const [dark, bright] = [light(getComputedStyle(one).color), light(ground(one))].sort((a, b) => a - b);
    return (bright + 0.05) / (dark + 0.05);
  };
  return [...document.querySelectorAll("body *:not(.qkv-viewer *):not(svg *)")]
    .filter((one) => one.checkVisibility() && [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
    .filter((one) => contrast(one) < 4.5).map((one) => one.outerHTML.slice(0, 100));
}"""  # text with less contrast than WCAG 2 asks for


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everything_has_a_name_and_can_be_read(open_page: Open, theme: str) -> None:
    page = open_page(theme=theme)
    use_all(page)
    for panel in PANELS:
        page.evaluate(f"location.hash = '{panel}'")
        playwright.expect(page.locator(f"#{panel}")).to_be_visible()
        assert page.evaluate(NAMELESS) == [] and page.evaluate(FAINT) == [], panel


def test_text_stays_text(open_page: Open) -> None:
    page = open_page()
    page.wait_for_selector("nav a:visible")
    for panel, text in {
        "translate": HOSTILE,
        "fill": f"{HOSTILE} [MASK]",
        "write": HOSTILE,
        "words": HOSTILE,
        "look": HOSTILE,
    }.items():
        page.evaluate(f"location.hash = '{panel}'")
        ask(page, panel, text)
        page.wait_for_selector(f"#{panel}:not(.busy)")
    page.evaluate("location.hash = 'predict'")
    ask(page, "predict", HOSTILE, model="tags")
    page.wait_for_selector("#predict:not(.busy)")
    assert (
        HOSTILE in page.locator("#write .given").text_content()
        and "onerror" in page.locator("#predict .prediction").text_content()
    )
    assert page.locator("main img").count() == 0 and page.evaluate("window.ran") is None


def answered(page: Any, path: str, body: Any, status: int = 200, **headers: str) -> None:
    """Let the browser get this answer instead of the service's."""
    page.route(f"**/{path}", lambda route: route.fulfill(status=status, json=body, headers=headers))


def test_what_models_say_stays_text(open_page: Open) -> None:
    page = open_page("fill")
    answered(page, "fill", {"masks": [[{"word": HOSTILE, "probability": 0.5}]]})
    answered(page, "neighbours", {"neighbours": [{"word": HOSTILE, "similarity": 0.5}]})
    answered(page, "map", {"points": [{"word": HOSTILE, "x": 0, "y": 0}], "missing": []})
    answered(page, "predict", {"model": "classes", "predictions": [{"label": HOSTILE, "probability": 0.5}]})
    answered(page, "translate", {"translatedText": HOSTILE, "alternatives": [HOSTILE], "scores": [-1.0, -2.0]})
    for panel, where in {"fill": ".filled", "words": ".map text", "predict": ".prediction", "translate": "#best li"}.items():
        page.evaluate(f"location.hash = '{panel}'")
        ask(page, panel, "[MASK]")
        playwright.expect(page.locator(f"#{panel} {where}").first).to_contain_text(HOSTILE)
    assert page.locator("main img").count() == 0 and page.evaluate("window.ran") is None


def test_refusals_are_told_in_words(open_page: Open) -> None:
    page = open_page("translate")
    told = message(page, "translate")
    ask(page, "translate", "sun " * 20_000)
    playwright.expect(told).to_have_text("79,999 characters in one request; send 50,000 at most.")
    answered(page, "translate", {"error": "busy"}, 429, **{"Retry-After": "7"})
    ask(page, "translate", "sun")
    playwright.expect(told).to_have_text("The server is busy. Try again in 7 seconds.")
    answered(page, "translate", {"error": "internal"}, 500)
    ask(page, "translate", "sun")
    playwright.expect(told).to_contain_text("Something went wrong on the server")
    page.route("**/translate", lambda route: route.abort())
    ask(page, "translate", "sun")
    playwright.expect(told).to_contain_text("The server does not answer")
    page.unroute("**/translate")
    ask(page, "translate", "sun")
    playwright.expect(told).to_be_empty()


def test_a_refusal_within_a_stream_is_told(open_page: Open) -> None:
    page = open_page("write")
    pieces = [
        {"choices": [{"index": 0, "text": " fox", "finish_reason": None}]},
        {"error": {"message": "the answer took too long"}},
    ]
    body = "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces)
    page.route("**/v1/completions", lambda route: route.fulfill(status=200, body=body, content_type="text/event-stream"))
    ask(page, "write", "The")
    playwright.expect(message(page, "write")).to_have_text("The answer took too long.")
    assert page.locator("#write .written").inner_text() == "The fox"


def test_a_key_is_asked_for(open_page: Open, models: ModelRegistry) -> None:
    with Running(models, keys=(ApiKey(name="anna", digest=digest("open sesame")),)) as guarded:
        page = open_page(url=guarded.url)
        field = page.get_by_label("This server needs a key")
        field.fill("guessed")
        page.keyboard.press("Enter")
        playwright.expect(page.locator("#note")).to_contain_text("missing or wrong")
        field.fill("open sesame")
        page.keyboard.press("Enter")
        ask(page, "translate", "red bird")
        playwright.expect(page.locator("#translate-output")).not_to_be_empty()
        assert not field.is_visible()
        page.goto("about:blank")

"""A lesson in a real browser: walked through by keyboard, wrong answers and right ones, both languages and themes, a phone."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from axe import violations
from inspected_models import TEXT, generator, reader, translator
from qkv.inference.lesson import lesson
from qkv.lens.lesson.page import render_lesson

DESKTOP, PHONE = {"width": 1200, "height": 900}, {"width": 360, "height": 780}
OTHER = "Rome is the capital of Italy."
RIGHT = {"en-GB": ("Right!", "Right, well done."), "zh-CN": ("答对了！", "对了，很好。")}


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return lesson(translator("transformer"), [TEXT, OTHER]).json()


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens a lesson; at the end, nothing may have gone wrong in it."""
    problems: list[str] = []
    contexts = []

    def opened(told: dict[str, Any], viewport: dict[str, int] = DESKTOP, theme: str = "light", locale: str = "en-GB") -> Any:
        path = tmp_path / "lesson.html"
        path.write_text(render_lesson(told), encoding="utf-8")
        contexts.append(browser.new_context(viewport=viewport, color_scheme=theme, locale=locale))
        shown = contexts[-1].new_page()
        shown.on("pageerror", lambda error: problems.append(str(error)))
        shown.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
        shown.on("dialog", lambda dialog: problems.append("a script ran") or dialog.dismiss())
        shown.goto(path.as_uri())
        return shown

    yield opened
    for context in contexts:
        context.close()
    assert problems == []


def written(value: float) -> str:
    return f"{value:.3f}".replace("-", "−")  # as the page writes it; it takes both signs


def answer(shown: Any, question: dict[str, Any], wrong_first: bool) -> None:
    """Answer a question by keys alone; the focus is inside its card afterwards, or at the next question."""
    card = shown.locator(f'[data-question="{question["name"]}"]')
    if question["kind"] == "number":
        field = card.get_by_role("textbox")
        field.focus()
        if wrong_first:
            shown.keyboard.type(written(question["answer"] + 10 * question["tolerance"] + 1))
            shown.keyboard.press("Enter")
            assert card.locator(".feedback.wrong").inner_text()
            field.fill("")
        shown.keyboard.type(written(question["answer"]))
        shown.keyboard.press("Enter")
        return
    options = card.locator(".option")
    if wrong_first:
        options.nth((question["answer"] + 1) % len(question["options"])).focus()
        shown.keyboard.press("Enter")
        assert card.locator(".feedback.wrong").inner_text()
    options.nth(question["answer"]).focus()
    shown.keyboard.press("Enter")


def walk(shown: Any, told: dict[str, Any], locale: str) -> None:
    """Go from the first step to the last: the first question of each step is answered wrong, then right, the others right."""
    for number, step in enumerate(told["examples"][0]["steps"]):
        assert shown.locator('.stepper [aria-current="step"]').inner_text().strip()
        for n, question in enumerate(step["questions"]):
            assert shown.locator("[data-question]").count() == n + 1  # one after the other
            answer(shown, question, wrong_first=n == 0)
            feedback = shown.locator(f'[data-question="{question["name"]}"] .feedback')
            assert feedback.locator("b").inner_text() in RIGHT[locale]
        covered = shown.locator("main .picture .covered").count()
        assert covered == 0, f"step {number + 1} still hides something"
        assert shown.evaluate("document.documentElement.scrollWidth") <= shown.viewport_size["width"]
        if number < 5:
            shown.locator("body").press("Tab")
            shown.evaluate("document.activeElement.blur()")
            shown.keyboard.press("ArrowRight")
            assert shown.evaluate("document.activeElement.className") == "title"


@pytest.mark.parametrize(
    ("locale", "theme", "viewport"),
    [("en-GB", "light", DESKTOP), ("zh-CN", "dark", DESKTOP), ("zh-CN", "light", PHONE), ("en-GB", "dark", PHONE)],
)
def test_a_lesson_from_the_first_step_to_the_last(
    show: Any, told: dict[str, Any], locale: str, theme: str, viewport: dict[str, int]
) -> None:
    shown = show(told, viewport, theme, locale)
    assert shown.evaluate("document.documentElement.lang") == locale[:2]
    walk(shown, told, locale)
    questions = [one for step in told["examples"][0]["steps"] for one in step["questions"]]
    points = 2 * len(questions) - 6  # a wrong answer in each step
    ending = shown.locator(".ending").inner_text()
    assert re.findall(r"\d+", ending) == [str(points), str(2 * len(questions))]
    output = shown.locator("main .result b").inner_text()
    assert output == told["examples"][0]["steps"][-1]["pictures"][-1]["output"]
    if locale == "zh-CN":
        said = shown.locator("main p:not(.result), main h2, main h3, nav, footer, header p").all_inner_texts()
        assert [text for text in said if re.search(r"[A-Za-z]{3}", text) and not re.search(r"[\u4e00-\u9fff]", text)] == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_wrong_for_those_who_do_not_see_it(show: Any, told: dict[str, Any], theme: str) -> None:
    shown = show(told, DESKTOP, theme)
    found = []
    for step in range(6):
        shown.keyboard.press(str(step + 1))
        found += violations(shown)
        shown.locator(".aside button").first.click()
        while shown.locator(".aside").count():
            shown.locator(".aside button").nth(1).click()
        found += violations(shown)
    assert not found, "\n".join(found)


def test_hints_and_answers_that_are_shown_cost_points(show: Any, told: dict[str, Any]) -> None:
    shown = show(told)
    first, second = told["examples"][0]["steps"][0]["questions"]
    card = shown.locator(f'[data-question="{first["name"]}"]')
    card.get_by_role("button", name="Hint").press("Enter")
    assert first["hint"]["text"] in card.inner_text()
    answer(shown, first, wrong_first=False)
    assert shown.locator(".points-line").inner_text().startswith("Points: 1 of")
    card = shown.locator(f'[data-question="{second["name"]}"]')
    card.get_by_role("button", name="Show").press("Enter")
    assert card.get_by_role("textbox").input_value().replace("−", "-") == f"{second['answer']:.2f}"
    assert shown.evaluate("document.activeElement.className").startswith("feedback")
    assert shown.locator(".points-line").inner_text().startswith("Points: 1 of")
    shown.keyboard.press("2")
    shown.keyboard.press("1")
    assert shown.locator(".ask.done").count() == 2  # answers stay while one goes on and back
    assert shown.evaluate("localStorage.length + sessionStorage.length") == 0
    shown.reload()
    assert shown.locator(".points-line").inner_text().startswith("Points: 0 of")


def test_numbers_as_people_type_them(show: Any, told: dict[str, Any]) -> None:
    shown = show(told)
    first, second = told["examples"][0]["steps"][0]["questions"]
    answer(shown, first, wrong_first=False)
    field, feedback = shown.get_by_role("textbox"), shown.locator(f'[data-question="{second["name"]}"] .feedback')

    def typed(text: str) -> str:
        field.fill(text)
        field.press("Enter")
        return feedback.inner_text()

    assert typed("about half").startswith("Type a number")
    assert typed(f"{second['answer'] - 3}").startswith("Not yet: it is larger")
    assert typed(f"{second['answer'] + 3}").startswith("Not yet: it is smaller")
    assert typed(f"{-second['answer']}").startswith("The number is right, but look at the sign")
    assert typed(f" {second['answer']:.3f} ".replace(".", ",").replace("-", "–")).startswith("Right")


def test_a_language_a_size_and_another_sentence(show: Any, told: dict[str, Any]) -> None:
    shown = show(told)
    assert shown.title() == "How a model translates · transformer"
    shown.get_by_role("button", name="中文").press("Enter")
    assert shown.locator("header h1").inner_text() == "模型怎样翻译"
    assert shown.evaluate("document.activeElement.textContent") == "English"
    shown.get_by_role("button", name="English").press("Enter")
    before = shown.locator("h2.title").evaluate("e => parseFloat(getComputedStyle(e).fontSize)")
    shown.get_by_role("button", name="Projector").press("Enter")
    assert shown.locator("h2.title").evaluate("e => parseFloat(getComputedStyle(e).fontSize)") == pytest.approx(1.5 * before)
    shown.get_by_role("combobox").select_option(OTHER)
    assert "".join(shown.locator("main .token").all_inner_texts()).startswith(OTHER.split()[0])
    shown.keyboard.press("Escape")
    assert shown.evaluate("document.activeElement.tagName") == "SELECT"


def test_a_worksheet_has_blanks_and_its_answers_at_the_end(show: Any, told: dict[str, Any]) -> None:
    shown = show(told)
    shown.emulate_media(media="print")
    sheets = shown.locator(".sheet")
    assert sheets.count() == 7 and not shown.locator("main").is_visible()
    questions = [one for step in told["examples"][0]["steps"] for one in step["questions"]]
    numbers = sum(one["kind"] == "number" for one in questions)
    assert shown.locator(".blanks .blank").count() == numbers and shown.locator(".blanks > li").count() == len(questions)
    assert shown.locator(".sheet .picture .covered").count() > 6
    last = sheets.nth(6).inner_text()
    assert last.startswith("Answers") and sheets.nth(6).locator("li").count() == len(questions)
    pages = shown.pdf(format="A4").count(b"/Type /Page\n")
    assert pages >= 7


def test_a_gpt_and_an_encoder_have_lessons(show: Any, tmp_path: Path) -> None:
    made = {
        "How a model writes": lesson(generator(tmp_path), ["The quick brown fox"]).json(),
        "How a model fills a gap": lesson(reader("bert", tmp_path), ["Paris is the [MASK] of France."]).json(),
        "How a model translates": lesson(translator("rnn"), [TEXT]).json(),
    }
    for title, values in made.items():
        shown = show(values, PHONE)
        assert shown.locator("header h1").inner_text() == title
        walk(shown, values, "en-GB")


def test_text_stays_text(show: Any) -> None:
    nasty = '<img src=x onerror="alert(1)"> {token} <script>alert(2)</script>'
    values = lesson(translator("transformer"), [TEXT]).json()
    example = values["examples"][0]
    example["text"] = values["run"] = nasty
    for step in example["steps"]:
        for one in (*step["questions"], *step["pictures"]):
            for text in [one.get("asks"), one.get("title"), *one.get("says", [])]:
                if text and "token" in text["values"]:
                    text["values"]["token"] = nasty
            one["options"] = [nasty if isinstance(option, str) else option for option in one.get("options", [])]
    example["steps"][0]["pictures"][0]["tokens"][0]["text"] = nasty
    shown = show(values)
    for number in range(6):
        shown.keyboard.press(str(number + 1))
        while shown.locator(".aside").count():
            shown.locator(".aside button").nth(1).click()
        assert shown.locator("img, script[src]").count() == 0
    shown.keyboard.press("1")
    assert nasty in shown.locator("main .token").first.inner_text()
    assert nasty in shown.locator(".about-line").inner_text()

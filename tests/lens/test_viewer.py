"""The viewer in a real browser: every tab, a head opened, words pointed at, keys, themes, a phone; no text becomes markup."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inspected_models import TEXT, generator, reader, translator
from qkv.lens.page import render_page
from qkv.lens.view import look

DESKTOP, PHONE = {"width": 1200, "height": 900}, {"width": 390, "height": 800}


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens a page; at the end, nothing may have gone wrong in it."""
    problems: list[str] = []
    contexts = []

    def opened(told: dict[str, Any], viewport: dict[str, int] = DESKTOP, theme: str = "light") -> Any:
        path = tmp_path / "page.html"
        path.write_text(render_page(told), encoding="utf-8")
        contexts.append(browser.new_context(viewport=viewport, color_scheme=theme))
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


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return look(translator("transformer"), TEXT, "Le café est très agréable").json()


def tab(shown: Any, name: str) -> None:
    shown.get_by_role("tab", name=name).click()


def test_every_tab_of_every_kind_opens(show: Any, told: dict[str, Any], tmp_path: Path) -> None:
    kinds = [
        told,
        look(reader("bert", tmp_path), "Paris is the [MASK] of France.").json(),
        look(generator(tmp_path), "The fox").json(),
    ]
    kinds += [look(translator(name), TEXT).json() for name in ("rnn", "convolution", "unilm")]
    for one in kinds:
        shown = show(one)
        tabs = shown.get_by_role("tab")
        assert tabs.count() >= 3
        for number in range(tabs.count()):
            tabs.nth(number).click()
            assert shown.get_by_role("tabpanel").inner_text().strip()


def test_pointing_at_a_word_lights_up_its_partners(show: Any, told: dict[str, Any]) -> None:
    shown = show(told)
    shown.get_by_role("group", name="Translation").get_by_role("button", name="café").hover()
    best = max((link for link in told["alignment"] if told["words"]["target"][link[1]] == "café"), key=lambda link: link[2])
    assert f"café attended to: {told['words']['source'][best[0]]}" in shown.locator(".says").inner_text()
    lit = shown.locator(".alignment .line").first.locator(".strong")
    assert told["words"]["source"][best[0]] in [lit.nth(n).inner_text() for n in range(lit.count())]


def test_a_head_is_opened_and_tells_its_numbers(show: Any, told: dict[str, Any]) -> None:
    shown = show(told)
    tab(shown, "Attention")
    shown.get_by_role("radio", name="Reading the source").click()
    shown.get_by_role("radio", name="Pieces").click()
    shown.get_by_role("button", name="Layer 2, head 1").click()
    assert shown.get_by_role("heading", name="Layer 2, head 1").is_visible()
    weights = next(one for one in told["maps"] if one["name"] == "encoder.1.self")["heads"][0]
    cells = shown.get_by_role("gridcell")
    assert cells.count() == len(weights) * len(weights[0])
    says = cells.nth(len(weights[0]) + 2).get_attribute("aria-label")
    assert says.endswith(f": {weights[1][2]:.3f}")
    shown.get_by_role("button", name="Next").click()
    assert shown.get_by_role("heading", name="Layer 2, head 2").is_visible()


def test_words_are_sums_over_pieces(show: Any, told: dict[str, Any]) -> None:
    shown = show(told)
    tab(shown, "Attention")
    shown.get_by_role("radio", name="Words", exact=True).click()
    shown.get_by_role("button", name="Layer 1, head 1").click()
    one = next(one for one in told["maps"] if one["name"] == "decoder.0.cross")
    rows = [n for n, word in enumerate(told["target_words"]) if word == 1]
    columns = [n for n, word in enumerate(told["source_words"]) if word == 0]
    wanted = sum(one["heads"][0][t][s] for t in rows for s in columns) / len(rows)
    target, source = told["words"]["target"][1], told["words"]["source"][0]
    assert shown.get_by_label(f"{target} → {source}: {wanted:.3f}", exact=True).count() >= 1


def test_everything_can_be_done_with_keys(show: Any, told: dict[str, Any]) -> None:
    shown = show(told)
    shown.get_by_role("tab", name="Word by word").focus()
    shown.keyboard.press("ArrowRight")
    assert shown.get_by_role("tab", name="Attention").get_attribute("aria-selected") == "true"
    shown.get_by_role("radio", name="From translation to source").focus()
    shown.keyboard.press("ArrowLeft")
    chosen = shown.get_by_role("radio", name="Looking back at its own words")
    assert chosen.get_attribute("aria-checked") == "true" and chosen.evaluate("e => e === document.activeElement")
    head = shown.get_by_role("button", name="Layer 1, head 2")
    head.focus()
    shown.keyboard.press("Enter")
    assert shown.get_by_role("button", name="Layer 1, head 2").get_attribute("aria-pressed") == "true"
    cell = shown.get_by_role("gridcell").first
    cell.focus()
    shown.keyboard.press("ArrowDown")
    assert "attends to" in shown.locator(".says").inner_text()
    unlabelled = shown.evaluate(
        "[...document.querySelectorAll('button')].filter(b => !(b.textContent.trim() || b.ariaLabel)).length"
    )
    assert unlabelled == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_phone_and_both_themes(show: Any, told: dict[str, Any], theme: str) -> None:
    shown = show(told, PHONE, theme)
    for number in range(shown.get_by_role("tab").count()):
        shown.get_by_role("tab").nth(number).click()
        assert shown.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    paper = shown.evaluate("getComputedStyle(document.querySelector('.qkv-viewer')).backgroundColor")
    assert (sum(map(int, paper[4:-1].split(","))) < 200) == (theme == "dark")
    other = {"light": "dark", "dark": "light"}[theme]
    shown.evaluate(f"document.documentElement.dataset.theme = '{other}'")
    changed = shown.evaluate("getComputedStyle(document.querySelector('.qkv-viewer')).backgroundColor")
    assert changed != paper


def test_a_long_word_fits_a_phone(show: Any, told: dict[str, Any]) -> None:
    words = {side: ["Donaudampfschifffahrtsgesellschaftskapitän", *spelled[1:]] for side, spelled in told["words"].items()}
    shown = show({**told, "words": words}, PHONE)
    assert shown.get_by_role("button", name="Donau").count() == 2
    assert shown.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_text_stays_text(show: Any, told: dict[str, Any]) -> None:
    nasty = '<img src=x onerror="alert(1)"><script>alert(2)</script>'
    changed = json.loads(json.dumps(told).replace("café", nasty.replace('"', '\\"')))
    changed["output"] = nasty
    changed["source"][0] = changed["words"]["source"][0] = nasty
    shown = show(changed)
    for number in range(shown.get_by_role("tab").count()):
        shown.get_by_role("tab").nth(number).click()
    assert shown.locator("img").count() == 0
    assert nasty in shown.locator(".summary").inner_text()

"""The viewer in a real browser: every tab, a head opened, words pointed at, keys, themes, a phone; no text becomes markup."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import axe
from inspected_models import TEXT, generator, reader, translator
from qkv.lens.page import render_page
from qkv.lens.view import look

DESKTOP, PHONE = {"width": 1200, "height": 900}, {"width": 390, "height": 800}


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens a page; at the end, nothing may have gone wrong in it."""
    problems: list[str] = []
    contexts = []

    def opened(told: dict[str, Any], viewport: dict[str, int] = DESKTOP, theme: str = "light", language: str = "en-US") -> Any:
        path = tmp_path / "page.html"
        path.write_text(render_page(told), encoding="utf-8")
        contexts.append(browser.new_context(viewport=viewport, color_scheme=theme, locale=language))
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


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(show: Any, told: dict[str, Any], theme: str) -> None:
    effects = {"figure": "log-probability of a token", "score": -2.0, "texts": 3, "drops": {"encoder.0.self": [0.1, -0.02]}}
    shown = show({**told, "effects": effects}, theme=theme)
    for number in range(shown.get_by_role("tab").count()):
        shown.get_by_role("tab").nth(number).click()
        assert axe.violations(shown) == []
    tab(shown, "Attention")
    shown.get_by_role("button", name="Layer 1, head 1").click()
    assert axe.violations(shown) == []


def test_pictures_are_saved_as_files_that_need_nothing_else(show: Any, told: dict[str, Any], tmp_path: Path) -> None:
    shown = show(told)
    for number in range(shown.get_by_role("tab").count()):
        shown.get_by_role("tab").nth(number).click()
        for kind in ("PNG", "SVG"):
            with shown.expect_download() as waiting:
                shown.get_by_role("button", name=kind, exact=True).first.click()
            path = tmp_path / waiting.value.suggested_filename
            waiting.value.save_as(path)
            if kind == "PNG":
                assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000
            else:
                drawn = ElementTree.parse(path).getroot()
                assert len(list(drawn.iter())) > 5
                assert not re.search(r"var\(| class=| style=|url\(http", path.read_text(encoding="utf-8"))


def test_a_saved_picture_has_the_words_and_the_colours(show: Any, told: dict[str, Any], tmp_path: Path) -> None:
    shown = show(told, theme="dark")
    with shown.expect_download() as waiting:
        shown.get_by_role("button", name="SVG", exact=True).click()
    waiting.value.save_as(tmp_path / "one.svg")
    drawn = ElementTree.parse(tmp_path / "one.svg").getroot()
    svg = "{http://www.w3.org/2000/svg}"
    assert drawn.find(f"{svg}rect").get("fill") == "#161920"
    texts = [one.text for one in drawn.iter(f"{svg}text")]
    assert set(told["words"]["target"]) <= set(texts)
    assert {one.get("stroke") for one in drawn.iter(f"{svg}path")} == {"#81a1ff"}


def test_a_figure_fills_the_screen(show: Any, told: dict[str, Any]) -> None:
    shown = show(told)
    before = shown.locator(".chip").first.bounding_box()
    shown.get_by_role("button", name="Full screen").click()
    leave = shown.get_by_role("button", name="Leave full screen")
    leave.wait_for()
    assert shown.evaluate("document.fullscreenElement.matches('.qkv-viewer')")
    assert shown.locator(".chip").first.evaluate("e => parseFloat(getComputedStyle(e).fontSize)") >= 20
    assert not shown.get_by_role("tab", name="Attention").is_visible()
    leave.click()
    shown.get_by_role("tab", name="Attention").wait_for()
    assert shown.locator(".chip").first.bounding_box() == before


def test_the_screen_stays_full_while_one_chooses(show: Any, told: dict[str, Any]) -> None:
    shown = show(told)
    tab(shown, "Attention")
    shown.get_by_role("button", name="Full screen").click()
    shown.get_by_role("button", name="Leave full screen").wait_for()
    shown.get_by_role("radio", name="Reading the source").click()
    assert shown.get_by_role("heading", name="Reading the source").is_visible()
    shown.get_by_role("button", name="Layer 2, head 1").click()  # its figure is new
    assert shown.get_by_role("heading", name="Layer 2, head 1").is_visible()
    assert not shown.get_by_role("heading", name="Reading the source").is_visible()
    shown.get_by_role("button", name="Close").click()
    assert shown.get_by_role("heading", name="Reading the source").is_visible()
    assert shown.evaluate("document.fullscreenElement !== null")


def test_an_address_restores_the_view(show: Any, told: dict[str, Any]) -> None:
    shown = show(told)
    tab(shown, "Attention")
    shown.get_by_role("radio", name="Reading the source").click()
    shown.get_by_role("button", name="Layer 2, head 1").click()
    address = shown.url
    shown.goto("about:blank")
    shown.goto(address)
    assert shown.get_by_role("heading", name="Layer 2, head 1").is_visible()
    assert shown.get_by_role("radio", name="Reading the source").get_attribute("aria-checked") == "true"
    shown.goto("about:blank")
    shown.goto(address.split("#")[0] + '#tab=nothing&head=["x",1]&part=5&__proto__=1')
    assert shown.get_by_role("tab", name="Word by word").get_attribute("aria-selected") == "true"


def test_a_text_of_300_words_is_broken_into_lines(show: Any, told: dict[str, Any]) -> None:
    count = 300
    words = [f"word{number}" for number in range(count)]
    numbers = list(range(count))
    diagonal = [[0.9 if t == s else round(0.1 / count, 4) for s in numbers] for t in numbers]
    maps = [{"name": "decoder.0.cross", "part": "cross", "layer": 0, "rows": "target", "columns": "source", "heads": [diagonal]}]
    sides = {"source": words, "target": words, "source_words": numbers, "target_words": numbers}
    long = {**told, **sides, "words": {"source": words, "target": words}, "maps": maps, "attribution": None, "rollout": None}
    shown = show({**long, "patterns": [], "points": {}, "output": " ".join(words)}, PHONE)
    assert shown.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    bands = shown.locator(".band")
    assert 50 < bands.count() < 150
    for band in (bands.first, bands.nth(20)):  # what belongs together stands together
        lines = [band.get_by_role("group").nth(side).inner_text().split() for side in (0, 1)]
        assert lines[0] == lines[1]
    shown.get_by_role("button", name="word150", exact=True).first.click()
    assert "word150 was attended to by: word150 " in shown.locator(".says").inner_text()
    tab(shown, "Attention")
    assert shown.locator("canvas.matrix").count() == 1


def test_a_head_says_what_the_model_loses_without_it(show: Any, told: dict[str, Any]) -> None:
    shown = show(told)
    tab(shown, "Head patterns")
    assert "qkv heads RUN DEV" in shown.get_by_role("tabpanel").inner_text()
    name = told["maps"][0]["name"]
    effects = {"figure": "accuracy", "score": 0.75, "texts": 40, "drops": {name: [0.125, -0.25]}}
    pattern = {
        "map": name,
        "head": 0,
        "pattern": "previous",
        "score": 0.5,
        "says": "Attends to the token just before.",
        "drop": 0.125,
    }
    shown = show({**told, "effects": effects, "patterns": [pattern]})
    tab(shown, "Head patterns")
    assert "−0.1250" in shown.locator(".pattern-line").inner_text()
    shown.locator(".pattern-line button").click()
    assert "accuracy 0.6250 instead of 0.7500 (−0.1250)" in shown.get_by_role("tabpanel").inner_text()


def test_an_attribution_names_its_method(show: Any, told: dict[str, Any]) -> None:
    complete = {"sum": 1.5, "difference": 1.501, "error": 0.001, "steps": 64, "complete": True}
    values = [[float(n) for n, _ in enumerate(told["source"])]]
    found = {
        "of": "“dog”",
        "method": "integrated",
        "values": values[0],
        "each": values,
        "positions": [2],
        "completeness": complete,
    }
    shown = show({**told, "attribution": found})
    tab(shown, "What mattered")
    said = shown.get_by_role("tabpanel").inner_text()
    assert "integrated gradients" in said and "sum to 1.500" in said and "They agree" in said and "Explained: “dog”" in said
    assert shown.locator(".bar-line").count() == min(12, len(told["words"]["source"]) + told["source_words"].count(None))


def test_a_page_says_what_it_shows(show: Any, told: dict[str, Any]) -> None:
    shown = show({**told, "about": {"run": "mine", "data": "train.tsv (en → de)"}})
    head = shown.locator("header").inner_text()
    assert "mine, transformer, translator" in head and "trained on train.tsv (en → de)" in head
    assert re.search(r"made on \d{4}-\d\d-\d\d", head)
    for label in shown.locator(".points text").all():  # none is cut
        assert label.is_visible()


def test_a_reader_of_chinese_reads_chinese(show: Any, told: dict[str, Any]) -> None:
    shown = show(told, language="zh-CN")
    shown.get_by_role("tab", name="注意力").click()
    assert shown.get_by_role("button", name="第 1 层，第 1 个头").is_visible()


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

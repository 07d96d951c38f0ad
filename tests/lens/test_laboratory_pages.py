"""Offline pages of the laboratory in a real browser: every view shows its numbers, by keyboard, in both themes, on a phone."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import qkv
from axe import violations
from inspected_models import TEXT, generator, reader, translator
from qkv.inference.attribute import attribute
from qkv.lens.arithmetic import HeadChoice, arithmetic, with_other_heads
from qkv.lens.arithmetic.words import WORDS
from qkv.lens.changes import SoftmaxTemperature, WithoutHead
from qkv.lens.comparison import changed
from qkv.lens.page import VIEWER, render_page
from qkv.lens.word_edits import ReplaceWord

DESKTOP, PHONE = {"width": 1200, "height": 900}, {"width": 360, "height": 760}
MASKED = "The quick [MASK] fox jumps over the lazy dog."
FAMILIES = (
    "transformer",
    "relative",
    "t5",
    "rnn",
    "rnn, unfed",
    "convolution",
    "unilm",
    "gpt",
    "bert",
    "xlnet",
    "window",
    "rotary",
)
SENTENCES = re.compile(r'say\(\s*"((?:[^"\\]|\\.)*)"')


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    folder, known = tmp_path_factory.mktemp("models"), {}

    def model(name: str) -> Any:
        if name in ("gpt", "bert", "xlnet", "window", "rotary"):
            if name not in known:
                known[name] = generator(folder) if name == "gpt" else reader(name, folder / name)
            return known[name]
        return translator(name)

    return model


@pytest.fixture(scope="module")
def views(models: Callable[[str], Any]) -> dict[str, dict[str, Any]]:
    """The JSON of every view of a translator."""
    model = models("transformer")
    changes = [WithoutHead("decoder.1.cross", 1), SoftmaxTemperature(2.0, "encoder.0.self")]
    found = arithmetic(model, TEXT, None, HeadChoice("cross", 1, 0, 2))
    methods = [attribute(model, TEXT, method=method).json() for method in ("gradient", "occlusion")]
    final = qkv.look(model, TEXT).json()
    drops = {one["name"]: [0.25, -0.125] for one in final["maps"]}
    return {
        "arithmetic": with_other_heads(model, TEXT, None, found),
        "attribution": {**methods[0], "others": methods[1:]},
        "change": changed(model, TEXT, changes).json(),
        "edited": changed(model, TEXT, [ReplaceWord(2, "red")]).json(),
        "heads": {"view": "heads", "kind": "translator", "figure": "log-probability of a token", "score": -2.5, "texts": 9,
                  "drops": drops, "patterns": final["patterns"]},
        "layers": qkv.layers(model, TEXT).json(),
        "patch": qkv.patch(model, "The quick brown fox jumps", "The quick crown fox jumps").json(),
        "beam": qkv.steps(model, TEXT, beam=3).json(),
        "sampling": qkv.steps(model, TEXT, sampling=True, temperature=0.7, top_k=12, top_p=0.9, seed=5).json(),
        "training": training(final),
    }  # fmt: skip


def training(final: dict[str, Any]) -> dict[str, Any]:
    """Return a text at two snapshots."""
    count = len(final["target"])
    snapshot = {"loss": 2.5, "output": "first words", "probabilities": [0.25] * count, "predictions": None, "maps": final["maps"]}
    snapshots = [{**snapshot, "step": 0}, {**snapshot, "step": 100, "loss": 1.25, "output": "last words"}]
    losses = [[10, 2.5], [100, 1.25]]
    return {**final, "view": "training", "steps": [0, 100], "losses": losses, "scores": [], "snapshots": snapshots}


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens a page; at the end, nothing may have gone wrong in it."""
    problems: list[str] = []
    contexts = []

    def opened(view: dict[str, Any], viewport: dict[str, int] = DESKTOP, theme: str = "light", **options: Any) -> Any:
        path = tmp_path / f"page{len(contexts)}.html"
        path.write_text(render_page(view), encoding="utf-8")
        contexts.append(browser.new_context(viewport=viewport, color_scheme=theme, reduced_motion="reduce", **options))
        shown = contexts[-1].new_page()
        shown.on("pageerror", lambda error: problems.append(str(error)))
        shown.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
        shown.goto(path.as_uri())
        return shown

    yield opened
    for context in contexts:
        context.close()
    assert problems == []


def numbers(text: str) -> list[float]:
    """Return the numbers of a text as they are written for people."""
    return [float(one.replace("−", "-")) for one in re.findall(r"[−+]?\d+\.\d+", text)]


def go_to(shown: Any, view: dict[str, Any], name: str) -> dict[str, Any]:
    """Open the step of a name, and return it."""
    number = next(n for n, step in enumerate(view["steps"]) if step["name"] == name)
    shown.locator(".lab-rail button").nth(number).click()
    return view["steps"][number]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_step_of_every_family_is_drawn(name: str, models: Callable[[str], Any], show: Any) -> None:
    model = models(name)
    view = arithmetic(model, MASKED if model.loads_as == "encoder" else TEXT).json()
    shown = show(view)
    for number, step in enumerate(view["steps"]):
        shown.locator(".lab-rail button").nth(number).click()
        assert shown.locator(".lab-step h3").inner_text() == step["title"]
        assert shown.locator(".lab-says").inner_text() == step["says"]
        assert shown.locator(".lab-formula").get_attribute("aria-label") == step["formula"]
        assert shown.locator(".lab-step-picture").inner_text().strip()
        for one in step["values"]:
            if one["kind"] == "keys" and name != "xlnet":
                cells = shown.locator(".lab-keys .lab-last").all_inner_texts()
                hidden = ["−∞" if value is None else f"{value:.3f}" for value in one["values"]]
                if one is step["values"][-1]:
                    assert [cell.replace("−0.000", "0.000") for cell in cells] == [
                        h.replace("-0.000", "0.000").replace("-", "−") for h in hidden
                    ]


def test_pointing_at_a_key_shows_what_its_score_is_made_of(show: Any, views: dict[str, dict[str, Any]]) -> None:
    view = views["arithmetic"]
    shown = show(view)
    scores = go_to(shown, view, "dot")["values"][0]["values"]
    for key in (0, 3):
        shown.locator(".lab-keys tbody tr").nth(key).hover()
        sum_line = shown.locator(".lab-sum").inner_text()
        assert numbers(shown.locator(".lab-score").inner_text()) == [pytest.approx(scores[key], abs=6e-4)]
        factors = numbers(sum_line)[:-1]
        q = next(s for s in view["steps"] if s["name"] == "query")["values"][0]["values"]
        k = next(s for s in view["steps"] if s["name"] == "keys_source")["values"][0]["values"][key]
        products = sorted((abs(a * b) for a, b in zip(q, k, strict=True)), reverse=True)[:3]
        assert sorted((abs(a * b) for a, b in zip(factors[::2], factors[1::2], strict=True)), reverse=True) == pytest.approx(
            products, abs=0.05
        )


def test_steps_follow_keys_and_buttons_and_play_only_when_asked(show: Any, views: dict[str, dict[str, Any]]) -> None:
    shown = show(views["arithmetic"])
    count = len(views["arithmetic"]["steps"])
    said = shown.locator(".lab-count")
    assert said.inner_text() == f"Step 1 of {count}"
    shown.get_by_role("button", name="Next", exact=False).click()
    assert said.inner_text() == f"Step 2 of {count}"
    shown.keyboard.press("PageDown")
    assert said.inner_text() == f"Step 3 of {count}"
    shown.locator(".lab-rail [aria-current]").focus()
    shown.keyboard.press("ArrowRight")
    assert said.inner_text() == f"Step 4 of {count}"
    assert "step=3" in shown.url
    shown.get_by_role("button", name="Play").click()
    assert said.inner_text() == f"Step 5 of {count}"
    shown.get_by_role("button", name="Stop").click()
    assert shown.get_by_role("button", name="Play").count() == 1


def test_an_offline_page_offers_the_heads_that_it_holds(show: Any, views: dict[str, dict[str, Any]]) -> None:
    view = views["arithmetic"]
    shown = show(view)
    assert shown.locator("select").count() == 1
    shown.get_by_role("combobox", name="Head").select_option(index=1)
    assert "head 2 of 2" in shown.locator(".lab-heading").inner_text()
    wanted = next(s for s in view["others"][0]["steps"] if s["name"] == "softmax")["values"][0]["values"]
    go_to(shown, view, "softmax")
    assert numbers(" ".join(shown.locator(".lab-keys .lab-last").all_inner_texts())) == pytest.approx(wanted, abs=6e-4)


ASKED = """(view) => { window.asked = [];
  const ask = async (...question) => { asked.push(question); return view; };
  QkvViewer.show(document.getElementById("viewer"), view, { ask }); }"""


def test_choosers_ask_for_other_numbers(show: Any, views: dict[str, dict[str, Any]]) -> None:
    shown = show(views["arithmetic"])
    shown.evaluate(ASKED, views["arithmetic"])
    shown.get_by_role("combobox", name="Layer").select_option(index=2)
    shown.get_by_role("combobox", name="Attention").select_option(value="encoder")
    asked = shown.evaluate("asked")
    assert asked == [[{"part": "cross", "layer": 2, "head": 0, "position": 2}], [{"part": "encoder"}]]


def test_before_and_after_stand_side_by_side(show: Any, views: dict[str, dict[str, Any]]) -> None:
    view = views["change"]
    shown = show(view)
    rows = shown.locator("table[aria-label='Probabilities of the tokens'] tbody tr")
    for row, token in zip(rows.all(), view["tokens"], strict=True):
        assert numbers(" ".join(row.locator(".lab-number").all_inner_texts()))[:2] == pytest.approx(
            [token["before"], token["after"]], abs=6e-4
        )
    parts = ("encoder", "decoder", "cross")
    moved = [share for part in parts for one in view["moved"] if one["part"] == part for share in one["heads"]]
    assert numbers(" ".join(shown.locator(".lab-grid.texts td").all_inner_texts())) == pytest.approx(moved, abs=6e-3)
    shown.get_by_role("gridcell", name="Layer 2, head 2").last.click()
    assert shown.get_by_role("heading", name="Cross-attention, layer 2, head 2").is_visible()
    before, after = (view[side]["maps"] for side in ("before", "after"))
    weight = next(one for one in before if one["name"] == "decoder.1.cross")["heads"][1][0][1]
    cells = shown.locator(".lab-side .lab-grid:not(.texts) td[data-at='0 1']")
    assert numbers(cells.first.get_attribute("aria-label"))[-1] == pytest.approx(weight, abs=6e-4)
    assert (
        numbers(cells.last.get_attribute("aria-label"))[-1]
        == 0
        == next(o for o in after if o["name"] == "decoder.1.cross")["heads"][1][0][1]
    )
    edited = show(views["edited"])
    assert edited.locator("del").first.inner_text() == "brown" and edited.locator("ins").first.inner_text() == "red"


def test_changes_are_made_by_clicks(show: Any, views: dict[str, dict[str, Any]]) -> None:
    shown = show(views["change"])
    shown.evaluate(ASKED, views["change"])
    shown.get_by_role("button", name="quick").click()
    shown.get_by_label("Word 2").fill("slow")
    shown.keyboard.press("Enter")
    shown.get_by_role("button", name="without head 1 of self-attention of encoder layer 1", exact=True).click()
    shown.get_by_label("Temperature of the softmax").fill("1")
    asked = shown.evaluate("asked.map(([changes]) => changes)")
    assert asked[0][-1] == {"change": "replace", "word": 1, "text": "slow"}
    assert asked[1][-1] == {"change": "head", "attention": "encoder.0.self", "head": 0}
    assert asked[2][-1] == {"change": "temperature", "value": 2}
    shown.get_by_role("button", name="Undo all").click()
    assert shown.evaluate("asked.at(-1)[0]") == []


def test_grids_of_patching_have_the_shares(show: Any, views: dict[str, dict[str, Any]]) -> None:
    view = views["patch"]
    shown = show(view)
    shares = [value for row in [*view["heads"], *view["states"]] for value in row["values"]]
    cells = shown.locator(".lab-grid td[data-at]")
    assert sorted(numbers(" ".join(cells.all_inner_texts()))) == pytest.approx(sorted(shares), abs=6e-3)
    cells.first.focus()
    shown.keyboard.press("ArrowRight")
    assert "head 2" in shown.get_by_role("status").inner_text()


def test_layers_show_their_tokens_and_the_answers_rank(show: Any, views: dict[str, dict[str, Any]]) -> None:
    view = views["layers"]
    shown = show(view)
    assert shown.get_by_role("gridcell").count() == len(view["layers"]) * len(view["positions"])
    shown.locator("td[data-at='0 3']").click()
    rows = shown.locator("table.lab-keys tbody tr").all()
    found = [row.locator(".lab-number").all_inner_texts() for row in rows]
    assert [int(rank) for _, rank in found] == [ranks[3] for ranks in view["rank"]]
    assert [float(share) for share, _ in found] == pytest.approx([shares[3] for shares in view["probability"]], abs=6e-4)


def test_a_search_is_walked_through(show: Any, views: dict[str, dict[str, Any]]) -> None:
    view = views["beam"]
    shown = show(view)
    kept = [node for node in view["nodes"] if node["kept"] and node["parent"] is not None]
    assert shown.locator(".lab-tree .node").count() == len(kept)
    top = view["steps"][0]["hypotheses"][0]["top"]
    assert [float(text) for text in shown.locator(".lab-keys .lab-last").all_inner_texts()] == pytest.approx(
        [p for _, p in top], abs=6e-4
    )
    shown.get_by_label("Step of the search").focus()
    shown.keyboard.press("ArrowRight")
    assert "Step 2 of" in shown.locator("output").inner_text()
    sampling = show(views["sampling"])
    draw = views["sampling"]["steps"][0]["draw"]
    after = [float(text) for text in sampling.locator(".lab-keys .lab-last").all_inner_texts()[:5] if text != "cut off"]
    assert after == pytest.approx([p for _, p in draw["top"][: len(after)]], abs=6e-4)


def test_a_slider_moves_through_training(show: Any, views: dict[str, dict[str, Any]]) -> None:
    shown = show(views["training"])
    assert shown.locator(".lab-written").inner_text() == "last words"
    slider = shown.get_by_label("Step of the training").first
    slider.focus()
    shown.keyboard.press("Home")
    assert shown.locator(".lab-written").inner_text() == "first words"
    assert "at step 0 it is 2.50" in shown.locator(".lab-curve").get_attribute("aria-label")
    shown.get_by_label("Head").select_option(index=2)
    weights = next(one for one in views["training"]["maps"] if one["part"] == "cross")["heads"][1]
    label = shown.locator("td[data-at='1 2']").first.get_attribute("aria-label")
    assert numbers(label)[-1] == pytest.approx(weights[1][2], abs=6e-4)


def test_methods_stand_side_by_side_with_their_sums(show: Any, views: dict[str, dict[str, Any]]) -> None:
    view = views["attribution"]
    shown = show(view)
    sums = numbers(shown.locator(".lab-methods .lab-total").inner_text())
    assert sums == pytest.approx([sum(one["attribution"]["values"]) for one in (view, *view["others"])], abs=0.011)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    "name", ["arithmetic", "attribution", "change", "heads", "layers", "patch", "beam", "sampling", "training"]
)
def test_views_are_accessible_and_fit_a_phone(name: str, theme: str, show: Any, views: dict[str, dict[str, Any]]) -> None:
    view = views[name]
    shown = show(view, PHONE, theme)
    if name == "arithmetic":
        go_to(shown, view, "softmax")
    if name == "change":
        shown.evaluate(ASKED, view)
        shown.locator(".lab-grid td").first.click()
    assert shown.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert violations(shown) == []


@pytest.mark.parametrize("name", ["arithmetic", "patch", "layers"])
def test_a_title_has_the_text_without_marks_of_tokens(name: str, views: dict[str, dict[str, Any]]) -> None:
    title = re.search("<title>(.*) · qkv (.*)</title>", render_page(views[name]))
    assert title is not None and title[2] == name
    assert "▁" not in title[1] and " " in title[1]


def test_texts_stay_texts(show: Any, views: dict[str, dict[str, Any]]) -> None:
    nasty = "<img src=x onerror=alert(1)>"
    for name in ("arithmetic", "change", "beam"):
        shown = show(json.loads(json.dumps(views[name]).replace("quick", nasty).replace('"T', f'"{nasty}')))
        assert shown.locator("img").count() == 0


def test_a_page_speaks_chinese(show: Any, views: dict[str, dict[str, Any]]) -> None:
    shown = show(views["arithmetic"], locale="zh-CN")
    assert shown.locator(".lab-step h3").inner_text() == "词元变成向量"


def test_an_explained_output_has_its_chinese_name(show: Any, views: dict[str, dict[str, Any]]) -> None:
    view = views["attribution"]
    view = {**view, "attribution": {**view["attribution"], "of": "the translation"}}
    assert show(view, locale="zh-CN").locator(":is(h2, h3)").first.inner_text() == "什么影响了译文"


def test_every_sentence_has_chinese() -> None:
    table = "".join(path.read_text(encoding="utf-8") for path in (VIEWER / "chinese").glob("*.js"))
    keys = set(re.findall(r'^  "((?:[^"\\]|\\.)*)":', table, re.MULTILINE)) | set(re.findall(r"^  (\w+):", table, re.MULTILINE))
    own = [
        path for path in VIEWER.glob("*.js") if "lab-" in path.read_text(encoding="utf-8") or path.stem in ("names", "formula")
    ]
    assert len(own) >= 12
    said = {text for path in own for text in SENTENCES.findall(path.read_text(encoding="utf-8"))}
    said |= {text for words in WORDS.values() for text in (words.title, words.says)}
    assert said - keys == set()

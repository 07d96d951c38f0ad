"""The gallery in a real browser, the table of verdicts, and the list."""

import copy
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from qkv.base.errors import ConfigError, DataError
from qkv.claims.claim import claim_names, find_claim
from qkv.claims.documents import BEGIN, END, FIGURES, PUBLISHED, replace_results, table_rows
from qkv.claims.experiment import Result
from qkv.claims.page import write_gallery, write_record
from qkv.claims.record import best_record, read_records, shown_verdict
from qkv.claims.verdict import FAILS, HOLDS, PARTLY, UNDECIDED, decide
from qkv.cli.app import app

DOCS = Path(__file__).parents[2] / "docs"
RIGHT = {
    "no positions": {"accuracy": [0.5, 0.51, 0.49], "change": [1e-7] * 3},
    "sinusoidal": {"accuracy": [1.0, 0.99, 1.0], "change": [1.0] * 3},
}
FACTS = {
    "date": "2026-11-17",
    "device": "CPU",
    "seconds": 61.0,
    "cpu_seconds": 59.0,
    "cells": 6,
    "cells from other code": 2,
    "package": "x",
    "text": "",
}


def record_of(name: str, size: str, figures: dict[str, Any], out: Path) -> None:
    named = find_claim(name)
    verdict = decide(figures, named.claim.parts, named.claim.controls)
    write_record(Result(named, size, [1, 2, 3], figures, verdict, FACTS), out / name / size)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder in which one claim was run at two sizes, and another one, which holds not."""
    wrong = {variant: {"loss": [1.0, 1.01, 0.99], "leak": [1.0, 1.0, 1.0]} for variant in find_claim("first-mask").claim.variants}
    wrong["mask in every layer"] = {"loss": [2.61, 2.62, 2.6], "leak": [0.0, 0.0, 0.0]}
    record_of("order", "quick", RIGHT, tmp_path)
    record_of("order", "cpu", RIGHT, tmp_path)
    record_of("first-mask", "cpu", wrong, tmp_path)
    return tmp_path


def test_the_gallery_filters_by_topic_and_verdict(runs: Path, browser: Any, tmp_path: Path) -> None:
    record_of("order", "gpu", RIGHT, runs)
    path, problems = write_gallery(read_records(runs), tmp_path / "site"), list[str]()
    for viewport, theme in (({"width": 1920, "height": 1080}, "light"), ({"width": 390, "height": 800}, "dark")):
        context = browser.new_context(viewport=viewport, color_scheme=theme, offline=True)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
        page.goto(path.as_uri())
        assert page.locator("article:visible").count() == 2
        assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"], "nothing sticks out"
        page.get_by_role("button", name="does not hold here").click()
        assert page.locator("article:visible").count() == 1
        assert page.locator("article:visible h2").inner_text() == find_claim("first-mask").claim.statement
        page.get_by_role("button", name="order and length").click()
        assert page.locator("article:visible").count() == 0
        page.reload()
        assert page.get_by_role("status").inner_text() == "0 of 2 claims", "the address keeps the choice"
        page.locator("button[data-key=verdict][data-value='']").click()
        article = page.locator("article:visible")
        assert "at size quick: holds (quick)" in article.inner_text()
        assert "2 of 6 cells come from other code" in article.inner_text()
        assert article.locator("svg circle:visible").count() == 6, "a dot for each seed"
        article.get_by_text("At size cpu: holds (3 of 5 seeds)").click()
        assert article.locator("svg circle:visible").count() == 12, "the other size unfolds"
        assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
        context.close()
    assert problems == []


def test_no_text_becomes_markup(runs: Path, tmp_path: Path) -> None:
    records = copy.deepcopy(read_records(runs))
    records["order"]["cpu"][0]["statement"] = "<script>alert(1)</script>"
    text = write_gallery(records, tmp_path / "site").read_text()
    assert "<script>alert" not in text and "&lt;script&gt;alert" in text


def test_documentation_gets_both_sizes_and_keeps_what_stands_around(runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "docs" / "claims.md"
    page.parent.mkdir()
    page.write_text(f"before\n{BEGIN}\nstale\n{END}\nafter\n")
    replace_results(read_records(runs), page)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "stale" not in text
    assert "| [order](#order) |" in text and "quick" not in text.split("### ")[0]
    assert (page.parent / "pictures" / "claims" / "order.svg").read_text().startswith("<svg")
    assert json.loads((page.parent / "figures" / "claims" / "order.json").read_text())["figures"] == RIGHT

    record_of("order", "gpu", RIGHT, runs)
    replace_results(read_records(runs), page)
    both = page.read_text()
    assert "](#order) |" in both and "](#order-at-gpu-size) |" in both and both.count("\n### order") == 2
    assert (page.parent / "pictures" / "claims" / "order-gpu.svg").is_file()
    shutil.rmtree(runs / "order" / "cpu")  # as where a machine has run the GPU size alone
    replace_results(read_records(runs), page)
    assert page.read_text() == both, "the other size stays, and a quick run replaces none"
    shutil.rmtree(runs / "order")
    replace_results(read_records(runs), page)
    assert page.read_text() == both, "a claim that was run elsewhere stays"
    page.write_text("no marks")
    with pytest.raises(ConfigError, match="has no lines"):
        replace_results(read_records(runs), page)


@pytest.mark.parametrize("path", sorted((DOCS / FIGURES).glob("*.json")), ids=lambda path: path.stem)
def test_documented_verdicts_are_what_the_rules_say_of_the_figures(path: Path) -> None:
    kept = json.loads(path.read_text())
    claim = find_claim(kept["name"]).claim
    verdict = decide(kept["figures"], claim.parts, claim.controls)
    section = re.search(rf"^### {path.stem.removesuffix('-gpu')}{' at GPU size' if kept['size'] == 'gpu' else ''}$(.*?)^### ",
                        (DOCS / "claims.md").read_text() + "\n### ", re.MULTILINE | re.DOTALL)  # fmt: skip
    assert section is not None
    assert f" **{verdict.verdict}" in section[1] and verdict.reason in section[1], (
        "run the claim again, or qkv claims table --into"
    )
    for finding in (*verdict.parts, *verdict.controls):
        assert f"{finding.says}: **{finding.outcome}**" in section[1]


def test_every_section_has_figures_that_its_verdict_can_be_judged_by() -> None:
    sections = re.findall(r"^### (.*)$", (DOCS / "claims.md").read_text().partition("<!-- verdicts -->")[2], re.MULTILINE)
    assert sorted(name.replace(" at GPU size", "-gpu") for name in sections) == sorted(
        path.stem for path in (DOCS / FIGURES).glob("*.json")
    )


def test_the_package_has_the_verdicts_of_the_page() -> None:
    rows = {row.name: row for row in table_rows(DOCS / "claims.md") if row.size == "cpu"}
    published = json.loads(PUBLISHED.read_text())
    assert published == {name: f"{row.verdict}, {row.date}, {row.cost}" for name, row in rows.items()}, (
        "qkv claims table --publish"
    )
    assert sorted(published) == claim_names()


def test_the_list_shows_what_was_published(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["claims", "--out", str(tmp_path)], env={"COLUMNS": "200"}).output
    assert f"0 of {len(claim_names())} were run here" in shown and shown.count(", published") == len(claim_names())
    read = CliRunner().invoke(app, ["claims", "show", "order"]).output
    assert find_claim("order").claim.prediction in read and "sinusoidal: at least 0.9)" in read


def test_the_list_shows_verdicts_of_what_was_run(runs: Path) -> None:
    shown = " ".join(CliRunner().invoke(app, ["claims", "--out", str(runs)], env={"COLUMNS": "200"}).output.split())
    assert find_claim("order").claim.statement in shown
    assert "were run here" in shown and "does not hold here" in shown and "2026-11-17" in shown


def test_the_list_has_the_users_own_claims_too(runs: Path) -> None:
    shutil.copytree(runs / "order", runs / "mine")
    record = runs / "mine" / "cpu" / "claim.json"
    record.write_text(record.read_text().replace('"name": "order"', '"name": "mine"'))
    shutil.rmtree(runs / "mine" / "quick")
    shown = CliRunner().invoke(app, ["claims", "--out", str(runs)], env={"COLUMNS": "200"}).output
    order_and_length = shown.partition("\n\n")[0].splitlines()
    assert order_and_length[0] == "order and length" and sum(line.startswith("mine ") for line in order_and_length) == 1


def test_a_verdict_says_what_it_hides() -> None:
    parts = [{"outcome": outcome} for outcome in (FAILS, FAILS, UNDECIDED)]
    record = {"verdict": UNDECIDED, "parts": parts, "controls": [], "preliminary": ""}
    assert shown_verdict(record) == "undecided (2 of 3 parts do not hold)"
    assert shown_verdict({**record, "parts": parts[1:]}) == "undecided (1 of 2 parts does not hold)"
    assert shown_verdict({**record, "parts": parts[:2], "verdict": FAILS}) == "does not hold here"
    assert shown_verdict({**record, "parts": [{"outcome": HOLDS}, *parts[:2]], "verdict": PARTLY}) == (
        "holds partly (1 of 3 parts hold)"
    )


def test_a_larger_size_with_some_of_the_seeds_hides_no_full_verdict() -> None:
    def shown(**preliminary: str) -> str:
        return best_record({size: ({"size": size, "preliminary": why}, "") for size, why in preliminary.items()})[0]["size"]

    assert shown(cpu="", gpu="") == "gpu"
    assert shown(cpu="", gpu="3 of 5 seeds", quick="quick") == "cpu"
    assert shown(cpu="3 of 5 seeds", gpu="3 of 5 seeds", quick="quick") == "gpu"


def test_a_damaged_record_is_named_before_anything_is_computed(runs: Path) -> None:
    (runs / "order" / "cpu" / "claim.json").write_text("{")
    for command in (["claims", "--out", str(runs)], ["claims", "run", "order", "--out", str(runs)]):
        result = CliRunner().invoke(app, command)
        assert isinstance(result.exception, DataError) and "claim.json: damaged" in str(result.exception)


@pytest.mark.parametrize(
    ("options", "message"),
    [([], "or --all"), (["order", "--all"], "or --all"), (["order", "path", "--size", "gpu"], "has no size gpu")],
)
def test_wrong_choices_of_claims_are_refused(options: list[str], message: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["claims", "run", *options, "--out", str(tmp_path / "out")])
    assert isinstance(result.exception, ConfigError) and message in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_a_record_is_plain_json_with_all_that_a_reader_needs(runs: Path) -> None:
    record = json.loads((runs / "order" / "cpu" / "claim.json").read_text())
    assert record["verdict"] == "holds" and record["preliminary"] == "3 of 5 seeds"
    assert record["command"] == "qkv claims run order"
    assert record["figures"] == RIGHT

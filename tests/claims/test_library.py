"""The claims of the library: each is complete, and its variants can be measured, with next to no text and updates."""

import json
from pathlib import Path
from typing import Any

import pytest

from qkv.claims.claim import Cell, Claim, claim_names, find_claim
from qkv.claims.experiment import Result
from qkv.claims.pictures import render, stack
from qkv.claims.verdict import decide

# Settings that say how much is read and learned -> next to nothing.
SMALL = {
    "steps": 2, "updates": 2, "bert steps": 2, "elmo steps": 2, "rival_steps": 2, "tuning": 2, "tunings": 1, "epochs": 1,
    "pairs": 400, "sentences": 1200, "documents": 150, "texts": 60, "examples": 20, "tests": 50, "held out": 50,
}  # fmt: skip
# Some divide the number of updates, or need words that are rare, but not too rare.
LARGER: dict[str, dict[str, Any]] = {
    "averaging": {"steps": 60}, "big-batches": {"updates": 8}, "chinese": {"steps": 8, "characters": 128},
    "induction": {"steps": 60}, "rare-words": {"documents": 1000}, "sharing": {"rows": 1},
}  # fmt: skip


@pytest.mark.parametrize("name", claim_names())
def test_a_claim_is_complete_and_its_file_short(name: str) -> None:
    named = find_claim(name)
    assert named.claim.statement.endswith(".")
    assert len(named.file.read_text().splitlines()) <= 140
    for variant in named.claim.variants:
        assert json.dumps(named.claim.settings("quick", variant))


def different_variants(claim: Claim) -> list[str]:
    """Return variants that differ from each other in more than numbers, which the same code reads."""
    kinds = {}
    for variant, settings in claim.variants.items():
        kind = {key: str(value) if isinstance(value, str | bool | dict) else "" for key, value in settings.items()}
        kinds.setdefault(json.dumps(kind, sort_keys=True), variant)
    return [*kinds.values()][: 1 if claim.timed else None]


@pytest.mark.parametrize("name", claim_names())
def test_its_variants_can_be_measured(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim, figures = find_claim(name).claim, {}
    for constant in {"REPEATS", "PERMUTATIONS"} & set(claim.measure.__globals__):
        monkeypatch.setitem(claim.measure.__globals__, constant, 2)
    for variant in different_variants(claim):
        settings = claim.settings("quick", variant)
        small = {key: value for key, value in {**SMALL, **LARGER.get(name, {})}.items() if settings.get(key, 0) != 1}
        settings |= {key: value for key, value in small.items() if key in settings}
        figures[variant] = claim.measure(Cell(variant, 1, settings, "cpu", tmp_path))
        assert set(claim.units) <= set(figures[variant]), variant
    first = next(iter(figures.values()))
    for rule in claim.rules:
        assert rule.asks and all(
            isinstance(figures[variant][rule.figure], int | float) for variant in rule.variants() & set(figures)
        )
    rows = {variant: {name: [value] * 3 for name, value in (figures.get(variant) or first).items()} for variant in claim.variants}
    result = Result(find_claim(name), "quick", [1, 2, 3], rows, decide(rows, claim.parts, claim.controls, claim.further))
    assert render(stack(*(panel.draw(result) for panel in claim.picture))).startswith("<svg")

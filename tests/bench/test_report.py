"""What is told of a benchmark: medians and spread, the best peer, what failed and what is not there."""

import json
from pathlib import Path

from qkv.bench.measure import Measurement
from qkv.bench.report import SpeedReport
from qkv.bench.systems import System

FACTS = {
    "command": "qkv bench train --peers",
    "machine": "a machine",
    "torch": "2.13",
    "date": "2026-11-15",
    "seed": 1,
    "rounds": 3,
}


def measured(name: str, precision: str, rates: list[float], peer: bool = False, error: str = "") -> Measurement:
    found = Measurement(System(name, "", {"precision": precision}, peer=peer), rates={"": rates} if rates else {}, error=error)
    found.memory = {"": 3 << 29} if rates else {}
    return found


def report(*found: Measurement, missing: tuple[System, ...] = ()) -> SpeedReport:
    return SpeedReport("Training", "tokens/s", "float32", FACTS, [""], list(found), list(missing))


def whole() -> SpeedReport:
    return report(
        measured("qkv", "float32", [2900.4, 3000, 3300]),
        measured("qkv", "bf16", [90.0, 80.04, 70.0]),
        measured("Quick", "float32", [1500, 1000, 2000], peer=True),
        measured("Quicker", "bf16", [9000, 9000, 9000], peer=True),
        measured("Broken", "float32", [], peer=True, error="ValueError: no"),
        missing=(System("Absent", "", {"precision": "float32"}, peer=True, package="absent"),),
    )


def test_markdown() -> None:
    lines = whole().markdown().splitlines()
    assert lines[:5] == ["```", FACTS["command"], "```", "", "a machine, torch 2.13, 2026-11-15, seed 1."]
    assert lines[-7:] == [
        "| system | tokens/s | x best peer | peak memory |",
        "| --- | --- | --- | --- |",
        "| qkv, float32 | 3,000 (2,900 to 3,300) | 2.00 x | 1.50 GiB |",
        "| qkv, bf16 | 80.0 (70.0 to 90.0) | 0.05 x | 1.50 GiB |",
        "| Quick, float32 | 1,500 (1,000 to 2,000) | 1.00 x | 1.50 GiB |",
        "| Quicker, bf16 | 9,000 (9,000 to 9,000) | 6.00 x | 1.50 GiB |",
        "| Broken, float32 | failed |  |  |",
    ]


def test_notes_name_the_best_peer_what_failed_and_what_is_missing() -> None:
    assert whole().notes()[1:] == [
        "1 x is the fastest peer in float32: Quick, float32.",
        "Broken, float32: ValueError: no",
        "Absent: not installed: pip install absent",
    ]


def test_without_peers_there_is_no_ratio() -> None:
    assert list(report(measured("qkv", "float32", [1, 2])).columns()) == ["system", "tokens/s", "peak memory"]


def test_several_cases_stand_below_each_other() -> None:
    system = Measurement(System("qkv", "", {"precision": "float32"}), rates={"greedy": [10.0], "beam 5": [5.0]})
    found = SpeedReport("Decoding", "sentences/s", "float32", FACTS, ["greedy", "beam 5"], [system], [])
    assert found.columns() == {
        "": ["greedy", "beam 5"],
        "system": ["qkv, float32"] * 2,
        "sentences/s": ["10.0 (10.0 to 10.0)", "5.0 (5.0 to 5.0)"],
    }


def test_the_folder(tmp_path: Path) -> None:
    found = whole()
    found.found[0].losses = [3.0, 2.0, 1.0]
    found.write(tmp_path / "out")
    figures = json.loads((tmp_path / "out" / "results.json").read_text())
    assert figures["date"] == "2026-11-15" and figures["systems"][0]["rates"] == {"": [2900.4, 3000, 3300]}
    assert figures["not_installed"] == [{"name": "Absent", "remedy": "pip install absent"}]
    assert "loss at the end" in (tmp_path / "out" / "table.md").read_text()
    for name in ("speed.svg", "loss.svg"):
        assert "</svg>" in (tmp_path / "out" / name).read_text()

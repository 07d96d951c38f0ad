"""Experiments: cells are computed once, resume, and depend on what decides them; claims run end to end; the page shows them."""

import dataclasses
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from qkv.base.errors import ConfigError, DataError
from qkv.claims import experiment
from qkv.claims.claim import Claim, NamedClaim, code_digest, find_claim
from qkv.claims.experiment import RunOptions, run_claim, run_claims
from qkv.claims.page import write_record
from qkv.claims.record import make_record, read_records
from qkv.claims.verdict import FAILS, HOLDS

TOY = '''
"""A toy."""
import time
from pathlib import Path
from qkv.base.seeds import rng_at
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.pictures import strip
from qkv.claims.verdict import Higher

def measure(cell: Cell) -> Measured:
    with Path({log!r}).open("a") as file:
        file.write(f"{{cell.variant}} {{cell.seed}}\\n")
    time.sleep(cell["seconds"])
    return {{"x": cell["effect"] + cell.seed + 0.01 * rng_at(cell.seed, cell.variant).random()}}

CLAIM = Claim(
    topic="words", statement="A is higher <than> B.", source="folklore", measured="x", prediction="by 1", explanation="so",
    formula="a > b", changes="nothing", variants={{"a": {{"effect": {effect}}}, "b": {{"effect": 0.0}}}},
    sizes={{"cpu": {{"seconds": 0.0}}, "quick": {{"seconds": {seconds}}}}}, measure=measure, units={{"x": "x"}},
    parts=(Higher("a is higher", "x", "a", "b", by=1.0),), picture=[strip("x")], seeds=3,
)
'''


@pytest.fixture
def toy(tmp_path: Path) -> Any:
    """A claim in a user's own file, and the log of the cells that were computed."""

    def write(effect: float = 2.0, seconds: float = 0.0) -> Path:
        path = tmp_path / "toy.py"
        path.write_text(TOY.format(log=str(tmp_path / "log"), effect=effect, seconds=seconds))
        return path

    return write


def run(path: Path, out: Path, **options: Any) -> experiment.Result:
    return run_claim(str(path), out, RunOptions(**{"workers": 1, **options}), lambda line: None)


def computed(tmp_path: Path) -> int:
    return len((tmp_path / "log").read_text().splitlines())


def test_cells_are_computed_once_and_anew_when_something_that_decides_them_changes(toy: Any, tmp_path: Path) -> None:
    path, out = toy(), tmp_path / "out"
    assert run(path, out).verdict.verdict == HOLDS
    assert computed(tmp_path) == 6
    run(path, out)
    assert computed(tmp_path) == 6
    run(path, out, seeds=5)
    assert computed(tmp_path) == 10  # two more seeds of two variants
    run(path, out, fresh=True)
    assert computed(tmp_path) == 16
    path.write_text(path.read_text().replace('"so"', '"in other words"').replace("by=1.0", "by=9.0"))
    assert run(path, out).verdict.verdict == FAILS  # words and rules are judged anew, on the same cells
    assert computed(tmp_path) == 16
    path.write_text(path.read_text().replace("0.01 *", "0.02 *"))
    run(path, out)
    assert computed(tmp_path) == 22


def test_a_changed_setting_computes_the_cells_that_it_decides(toy: Any, tmp_path: Path) -> None:
    path, out = toy(), tmp_path / "out"
    run(path, out)
    path.write_text(path.read_text().replace('"quick": {"seconds": 0.0}', '"quick": {"seconds": 0.001}'))
    run(path, out)
    assert computed(tmp_path) == 6, "another size has its own cells"
    path.write_text(path.read_text().replace('"b": {"effect": 0.0}', '"b": {"effect": 0.5}'))
    run(path, out)
    assert computed(tmp_path) == 9, "one variant has changed"


def test_several_claims_share_the_workers(toy: Any, tmp_path: Path) -> None:
    path, out, said = toy(seconds=0.01), tmp_path / "out", list[str]()
    timed = path.with_name("timed.py")
    timed.write_text(path.read_text().replace("seeds=3", "seeds=3, timed=True"))
    lower = path.with_name("lower.py")
    lower.write_text(path.read_text().replace('{"a": {"effect": 2.0}', '{"a": {"effect": -2.0}'))
    names = [str(timed), str(path), str(lower)]
    results = {one.named.name: one for one in run_claims(names, out, RunOptions(size="quick", workers=2), said.append)}
    assert [*results][-1] == "timed", "what measures time runs alone, and last"
    assert {name: one.verdict.verdict for name, one in results.items()} == {"toy": HOLDS, "lower": FAILS, "timed": HOLDS}
    assert sum("/12  " in line for line in said) == 12 and sum("/6  " in line for line in said) == 6
    assert not [*out.glob("*/.*partial")], "folders for cells are deleted"
    assert [one.figures for one in run_claims(names[1:2], out, RunOptions(size="quick"), said.append)] == [results["toy"].figures]
    assert said[-1] == "toy: 6 of 6 cells were computed before"


def test_nothing_is_computed_if_one_of_several_claims_is_refused(toy: Any, tmp_path: Path) -> None:
    path = toy()
    with pytest.raises(ConfigError, match="no size gpu"):
        list(run_claims([str(path), "order"], tmp_path / "out", RunOptions(size="gpu")))
    with pytest.raises(ConfigError, match="did you mean order"):
        list(run_claims([str(path), "ordre"], tmp_path / "out", RunOptions()))
    assert not (tmp_path / "log").exists()


def test_workers_change_no_figure(toy: Any, tmp_path: Path) -> None:
    path = toy()
    assert run(path, tmp_path / "one").figures == run(path, tmp_path / "two", workers=2).figures


@pytest.mark.needs_fork
def test_a_killed_run_goes_on(toy: Any, tmp_path: Path) -> None:
    path, out = toy(seconds=0.3), tmp_path / "out"
    command = [sys.executable, "-m", "qkv", "claims", "run", str(path), "--quick", "--workers", "1", "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    cells = out / "toy" / experiment.CELLS
    while len([*cells.glob("[!.]*.json")]) < 2:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = len([*cells.glob("[!.]*.json")])
    begun = computed(tmp_path)
    result = run(path, out, size="quick")
    assert computed(tmp_path) == begun + 6 - kept
    assert result.figures == run(path, tmp_path / "other", size="quick").figures
    assert not [*(out / "toy").glob(".*partial")], "what the killed process left is deleted"


def test_a_damaged_cell_is_named(toy: Any, tmp_path: Path) -> None:
    path, out = toy(), tmp_path / "out"
    run(path, out)
    cell = next((out / "toy" / experiment.CELLS).glob("*.json"))
    cell.write_text("{")
    with pytest.raises(DataError, match=cell.name):
        run(path, out)


def test_a_users_own_claim_has_a_command_that_works_and_a_name_of_its_own(toy: Any, tmp_path: Path) -> None:
    path = toy()
    assert make_record(run(path, tmp_path / "out"), ["--seeds", "3"])["command"] == f"qkv claims run {path} --seeds 3"
    with pytest.raises(ConfigError, match="give the file another name"):
        run(path.rename(tmp_path / "order.py"), tmp_path / "out")


def test_a_figure_that_is_no_number_is_refused(toy: Any, tmp_path: Path) -> None:
    path = toy()
    path.write_text(path.read_text().replace('{"x": cell["effect"]', '{"x": float("nan") * cell["effect"]'))
    with pytest.raises(DataError, match="toy, a, seed 1: the figure x is nan"):
        run(path, tmp_path / "out")


def test_a_file_that_is_no_python_is_named_with_the_line(toy: Any, tmp_path: Path) -> None:
    path = toy()
    path.write_text(path.read_text().replace("topic=", "topic: "))
    with pytest.raises(ConfigError, match=r"toy\.py, line 17"):
        run(path, tmp_path / "out")


def test_words_rules_and_pictures_do_not_count_as_code() -> None:
    text = TOY.format(log="log", effect=1, seconds=0)
    same = text.replace('"by 1"', '"by 2"').replace('strip("x")', 'strip("x", log=True)').replace("A toy.", "Toy.")
    assert code_digest(same) == code_digest(text) != code_digest(text.replace("0.01", "0.02"))
    assert code_digest(text.replace('"seconds": 0.0', '"seconds": 1.0')) == code_digest(text), "settings are in the key of a cell"
    assert code_digest(text.replace("import rng_at", "import seed_at as rng_at")) != code_digest(text)
    assert code_digest(text.replace("import Higher", "import Higher, Same")) == code_digest(text)


def test_other_versions_of_python_find_the_same_cells() -> None:
    """The digest was computed by Python 3.11, 3.12 and 3.13, whose syntax trees differ in empty fields."""
    assert code_digest("def measure(cell):\n    return {'x': cell['a'] + 1}\n") == "3556a09c38e50462"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("import time", "import tyme", r"toy\.py, line 3: ModuleNotFoundError: No module named 'tyme'"),
        ("CLAIM = Claim(", "CLAIM = Clame(", r"toy\.py, line 16: NameError"),
        ('topic="words"', 'topic="birds"', r"toy\.py: topic 'birds' is not known"),
        ('strip("x")', 'strip("y")', r"toy\.py: the picture shows y, which is no figure in units and no variant"),
        ('[strip("x")]', 'strip("x")', r"toy\.py: picture must be a list of panels"),
    ],
)
def test_mistakes_in_a_users_own_claim_get_one_line(old: str, new: str, message: str, toy: Any, tmp_path: Path) -> None:
    path = toy()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ConfigError, match=message):
        run(path, tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ordre", {}, "did you mean order"),
        ("king", {}, "did you mean king-queen"),
        ("nonsense", {}, "see qkv claims"),
        ("missing.py", {}, "no such file"),
        ("order", {"text": Path("some.txt")}, "does not read text"),
        ("order", {"on": "moon"}, "choose local or ray"),
        ("future-mask", {"on": "ray"}, "measures time"),
        ("order", {"size": "gpu"}, "has no size gpu"),
    ],
)
def test_mistakes_get_one_line(name: str, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        run_claim(name, tmp_path, RunOptions(**options))


@pytest.fixture
def in_place_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the engine find another claim under a name."""

    def put(name: str, claim: Claim) -> None:
        named = find_claim(name)
        monkeypatch.setattr(experiment, "find_claim", lambda _: NamedClaim(name, named.file, claim, "changed"))

    return put


@pytest.mark.parametrize("name", ["convolution-window", "order", "padding"])
def test_claims_run_end_to_end(name: str, tmp_path: Path) -> None:
    result = run_claim(name, tmp_path, RunOptions(size="quick", workers=1), lambda line: None)
    record = write_record(result, tmp_path / name / "quick")
    assert record["verdict"] == HOLDS and record["preliminary"] == "quick"
    assert {"claim.json", "table.md", "picture.svg", "page.html"} == {path.name for path in (tmp_path / name / "quick").iterdir()}
    assert read_records(tmp_path)[name]["quick"][0] == json.loads(json.dumps(record))


def test_a_claim_whose_effect_is_switched_off_does_not_hold(tmp_path: Path, in_place_of: Any) -> None:
    claim = find_claim("order").claim
    in_place_of("order", dataclasses.replace(claim, variants=dict.fromkeys(claim.variants, claim.variants["sinusoidal"])))
    result = run_claim("order", tmp_path, RunOptions(size="quick", workers=1), lambda line: None)
    assert result.figures["no positions"] == result.figures["sinusoidal"], "the same settings and seeds give the same figures"
    assert result.verdict.verdict == FAILS and all(one.outcome == HOLDS for one in result.verdict.controls)


def test_an_exact_claim_holds_and_does_not_where_its_effect_is_switched_off(tmp_path: Path, in_place_of: Any) -> None:
    claim = find_claim("padding").claim
    unmasked = {name: {**settings, "no mask": True} for name, settings in claim.variants.items()}
    for variants, verdict in ((claim.variants, HOLDS), (unmasked, FAILS)):
        in_place_of("padding", dataclasses.replace(claim, variants=variants))
        options = RunOptions(size="quick", workers=1)
        assert run_claim("padding", tmp_path / verdict, options, lambda line: None).verdict.verdict == verdict

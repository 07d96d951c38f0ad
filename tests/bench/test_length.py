"""qkv bench length: exponents are those of the curves, and what does not fit into memory ends its own curve only."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from qkv.base.errors import ConfigError
from qkv.bench import benchmarks, length
from qkv.bench.length import PASSES, SYSTEMS, LengthCurve, exponent, long_half, measure_curves, restarting_worker
from qkv.bench.length_report import LengthReport
from qkv.bench.plots import growth
from qkv.bench.systems import System
from qkv.bench.worker import BenchmarkJob
from qkv.bench.workers import length as length_worker
from qkv.bench.workers.length import ENCODERS, EncoderPasses
from qkv.bench.workload import EncoderSize, write_length_job
from qkv.cli.bench import bench_app
from qkv.parts.context import AttentionContext
from qkv.parts.masks import DenseMask

TINY = EncoderSize("bert", 32, 128, 2, 1, 32, vocab=50)
FACTS = {
    "command": "qkv bench length", "machine": "a machine", "torch": "2.13", "date": "2026-11-15", "seed": 1, "rounds": 2,
    "device": "cpu", "precision": "float32",
}  # fmt: skip
# A system that needs neither torch nor qkv.
FAKE = """
import os, signal

class Fake:
    version = "fake 1.0"
    def measure(self, encoder, length, training):
        if length > 2 and encoder == "full, open":
            os.kill(os.getpid(), signal.SIGKILL)
        if length > 1 and encoder == "full" and training:
            raise ValueError("no such\\n kernel")
        return {"seconds": length * 1e-3, "memory": os.getpid(), "weights": 1, "recorded": False}

make = lambda job: Fake()
"""
TIMED = {"recorded": False}


def quiet(what: str) -> None:
    pass


@pytest.fixture(autouse=True)
def _one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def passes(tmp_path: Path) -> Iterator[EncoderPasses]:
    write_length_job(tmp_path, size=TINY, device="cpu", seed=1, rows=2)
    resource = pytest.importorskip("resource", reason="Windows has no limits of memory")
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    yield length_worker.make(BenchmarkJob(tmp_path, {"precision": "float32"}))
    resource.setrlimit(resource.RLIMIT_DATA, limits)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_the_fit_finds_the_power_where_constant_costs_are_over(power: float) -> None:
    plain = {n: 3e-6 * n**power for n in (512, 1024, 2048, 4096, 8192)}
    assert math.isclose(exponent(plain) or 0, power)
    bent = {n: value if n >= 2048 else 1.0 for n, value in plain.items()}
    assert math.isclose(exponent(bent) or 0, power), "only the longer half counts"


def test_only_times_taken_alike_are_fitted() -> None:
    curve = LengthCurve("RNN", "forward pass")
    for n, seconds, recorded in ((1, 0.1, True), (2, 0.2, True), (4, 2.0, False), (8, 4.0, False), (16, 8.0, False)):
        curve.add(n, {"seconds": seconds, "memory": n << 20, "weights": 1, "recorded": recorded})
    assert curve.comparable == [4, 8, 16]
    lines = LengthReport(TINY, 1, FACTS, [1, 2, 4, 8, 16], [curve]).markdown().splitlines()
    assert "| forward pass, ms | RNN | 100 | 200 | 2,000 | 4,000 | 8,000 | 1.00 |" in lines


def test_one_point_has_no_exponent() -> None:
    assert exponent({512: 1.0}) is None and exponent({}) is None
    assert exponent({512: 0.0, 1024: 2.0}) is None, "a logarithm of nothing"


@pytest.mark.parametrize(("lengths", "half"), [([4, 1, 2, 8], [4, 8]), ([1, 2, 4, 8, 16], [4, 8, 16]), ([1, 2], [1, 2])])
def test_the_longer_half(lengths: list[int], half: list[int]) -> None:
    assert long_half(lengths) == half


@pytest.mark.parametrize("name", ENCODERS)
def test_every_encoder_gives_a_state_for_each_word(passes: EncoderPasses, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, Any]] = []

    def watched(made: length_worker.MeasuredEncoder, rows: Any) -> None:
        seen.append((made, made.encode(rows)))
        EncoderPasses._training_step(passes, made, rows)

    monkeypatch.setattr(passes, "_timed", lambda run: (1.0, False))
    monkeypatch.setattr(passes, "_training_step", watched)
    answer = passes.measure(name, 40, training=True)
    made, states = seen[-1]
    assert states.shape == (2, 40, 32) and made.model.training
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in made.layers.parameters() if weight.dim() > 1)
    assert answer["weights"] == sum(weight.numel() for weight in made.layers.parameters())


def test_settings_are_those_of_a_recipe_that_says_no_more() -> None:
    told = length_worker.attention_settings()
    assert told.startswith(
        "window: radius 128; BigBird: radius 64, global_tokens 128, random_blocks 3, block_size "
        "64; Linformer: projected_length 128"
    )


def test_open_attention_is_the_same_attention() -> None:
    torch.manual_seed(1)
    opened = length_worker.OpenAttention(16, 2)
    fused = length_worker.SelfAttention(16, 2)
    fused.load_state_dict(opened.state_dict())
    x = torch.randn(2, 9, 16)
    context = AttentionContext(DenseMask(None))
    assert torch.allclose(opened(x, context), fused(x, context), atol=1e-6)


@pytest.mark.parametrize(("first", "counted"), [(9.0, []), (0.03, [4]), (0.001, [10])])
def test_a_first_pass_counts_only_where_it_is_long(
    passes: EncoderPasses, monkeypatch: pytest.MonkeyPatch, first: float, counted: list[int]
) -> None:
    asked: list[int] = []

    def clocked(run: Any, times: int) -> float:
        asked.append(times)
        return first if len(asked) == 1 else 5.0

    monkeypatch.setattr(passes, "_clocked", clocked)
    assert passes._timed(lambda: None) == (5.0 if counted else first, False)
    assert asked == [1, *counted]


def test_memory_is_told_once(passes: EncoderPasses) -> None:
    first, second, other = (passes.measure("RNN", 8, training) for training in (False, False, True))
    # A small pass may fit into memory that the process has anyway.
    assert first["memory"] >= 0 and other["memory"] >= 0 and list(second) == ["seconds", "recorded"]
    curve = LengthCurve("RNN", "forward pass")
    curve.add(8, first)
    curve.add(8, second)
    assert curve.memory == {8: first["memory"]} and curve.weights == {8: first["weights"]} and len(curve.seconds[8]) == 2


def test_memory_is_that_of_the_pass(passes: EncoderPasses) -> None:
    needed = [passes.measure("full, open", n, training=False)["memory"] for n in (1024, 256)]
    scores = [2 * TINY.heads * n**2 * 4 for n in (1024, 256)]
    assert 2 * scores[0] < needed[0] < 4 * scores[0], "the scores and what softmax makes of them"
    assert needed[1] < needed[0] / 4, "what another pass had is given back"


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("can't allocate memory: 1 TB")])
def test_out_of_memory_is_an_answer(passes: EncoderPasses, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fails(*args: object) -> None:
        raise error

    monkeypatch.setitem(ENCODERS, "RNN", fails)  # type: ignore[arg-type]
    assert passes.measure("RNN", 8, training=False) == {"ended": "out of memory"}
    monkeypatch.setitem(ENCODERS, "RNN", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        passes.measure("RNN", 8, training=False)


@pytest.mark.needs_linux
def test_more_than_is_free_fails_here_and_the_system_kills_nobody(passes: EncoderPasses, monkeypatch: pytest.MonkeyPatch) -> None:
    told = length_worker._kilobytes
    monkeypatch.setattr(length_worker, "_kilobytes", lambda path, name: 100_000 if name == "MemAvailable" else told(path, name))
    assert passes.measure("full, open", 4096, training=False) == {"ended": "out of memory"}
    assert passes.measure("full, open", 8, training=False)["seconds"] > 0


@pytest.mark.needs_fork
def test_a_curve_ends_where_memory_does_and_the_others_go_on() -> None:
    asked = []

    def ask(encoder: str, length: int, training: bool) -> dict[str, Any]:
        asked.append((encoder, length))
        full = encoder == "full" and length >= 2
        return {"ended": "out of memory"} if full else {"seconds": float(length), "memory": 5, "weights": 7, **TIMED}

    curves = [LengthCurve("full", "forward pass"), LengthCurve("RNN", "forward pass")]
    measure_curves(curves, [1, 2, 4], 2, ask, quiet)
    assert curves[0].seconds == {1: [1.0, 1.0]} and curves[0].ended == (2, "out of memory")
    assert curves[1].seconds == {1: [1.0] * 2, 2: [2.0] * 2, 4: [4.0] * 2} and curves[1].ended is None
    assert asked.count(("full", 2)) == 1 and ("full", 4) not in asked


def test_what_fits_in_one_round_only_does_not_count() -> None:
    curve = LengthCurve("full", "forward pass")
    curve.add(8, {"seconds": 1.0, "memory": 5, "weights": 7, **TIMED})
    curve.add(8, {"ended": "out of memory"})
    assert not curve.seconds and not curve.memory and not curve.goes_to(8) and curve.goes_to(4)


def test_another_worker_takes_the_place_of_one_that_ended(tmp_path: Path) -> None:
    write_length_job(tmp_path, size=TINY, device="cpu", seed=1, rows=1)
    (tmp_path / "fake.py").write_text(FAKE)
    curves = [LengthCurve(system, kind) for system in ("full, open", "full", "RNN") for kind in PASSES]
    with restarting_worker(System("fake", str(tmp_path / "fake.py"), {"precision": "float32"}), tmp_path) as ask:
        measure_curves(curves, [1, 2, 4], 1, ask, quiet)
    ended = {(c.system, c.kind): c.ended for c in curves if c.ended}
    assert ended == {
        ("full, open", "forward pass"): (4, "out of memory"),
        ("full, open", "training step"): (4, "out of memory"),
        ("full", "training step"): (2, "ValueError: no such kernel"),
    }
    assert list(curves[-1].seconds) == [1, 2, 4]
    assert len({number for c in curves for number in c.memory.values()}) == 3, "the third of four processes had no answer"


def made_report() -> LengthReport:
    lengths = [512, 1024, 2048]
    curves = []
    for system, power in (("full", 2), ("Linformer", 1), ("full, open", 2)):
        for kind in PASSES:
            curve = LengthCurve(system, kind)
            for n in lengths:
                curve.add(n, {"seconds": (n / 512) ** power * 0.02, "memory": (n << 20) // 8, "weights": 3_000_000, **TIMED})
            curves.append(curve)
    curves[-1].add(2048, {"ended": "out of memory"})
    curves[0].add(2048, {"ended": "ValueError: no"})
    return LengthReport(TINY, 1, FACTS, lengths, curves)


def test_the_table_tells_what_ended_and_how_it_grows() -> None:
    lines = made_report().markdown().splitlines()
    assert "| forward pass, ms | full | 20.0 | 80.0 | failed | 2.00 |" in lines
    assert "| forward pass, ms | Linformer | 20.0 | 40.0 | 80.0 | 1.00 |" in lines
    assert "| training step, ms | full, open | 20.0 | 80.0 | out of memory | 2.00 |" in lines
    assert "| training step, MiB | full | 64.0 | 128 | 256 | 1.00 |" in lines
    assert "full, forward pass, 2,048: ValueError: no" in lines
    assert any("1,024 to 2,048 if all were measured" in line for line in lines)


def test_ratios_are_those_at_the_longest_length_that_both_reached() -> None:
    assert [note for note in made_report().notes() if "beside" in note] == [
        "full, beside Linformer: forward pass at 1,024: 2.00 x the time, 1.00 x the memory; "
        "training step at 2,048: 4.00 x the time, 1.00 x the memory.",
        "full, open, beside Linformer: forward pass at 2,048: 4.00 x the time, 1.00 x the memory; "
        "training step at 1,024: 2.00 x the time, 1.00 x the memory.",
    ]


def test_what_is_too_small_to_be_measured_is_not_drawn(tmp_path: Path) -> None:
    lines = [("full", {32: 0.0, 64: 1.0}, "1.0"), ("RNN", {32: 0.1, 64: 0.0}, ""), ("window", {32: 0.0, 64: 0.0}, "")]
    growth("of", {"forward pass, MiB": lines, "training step, MiB": lines[2:]}, tmp_path / "growth.svg")
    drawn = (tmp_path / "growth.svg").read_text(encoding="utf-8")
    assert "<!-- full" in drawn and "<!-- RNN -->" in drawn and "window" not in drawn and "training step" not in drawn
    growth("of", {"forward pass, MiB": lines[2:]}, tmp_path / "nothing.svg")
    assert (tmp_path / "nothing.svg").exists()


def test_the_command(tmp_path: Path) -> None:
    words = "length --lengths 64,32 --width 32 --heads 2 --layers 1 --rounds 1 --device cpu --only rnn --only window --out"
    result = CliRunner().invoke(bench_app, [*words.split(), str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert {path.name for path in tmp_path.iterdir()} == {"table.md", "results.json", "length.svg"}
    figures = json.loads((tmp_path / "results.json").read_text())
    assert {(c["system"], c["kind"]) for c in figures["curves"]} == {(s, k) for s in ("RNN", "window") for k in PASSES}
    for curve in figures["curves"]:
        assert curve["ended"] is None and list(curve["seconds"]) == ["32", "64"] == list(curve["memory"]), curve
        assert all(rounds[0] > 0 for rounds in curve["seconds"].values())
    assert figures["seed"] == 1 and figures["torch"] and figures["machine"] and figures["date"]
    assert "</svg>" in (tmp_path / "length.svg").read_text() and "one row" in (tmp_path / "table.md").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--lengths", "512,x"], "--lengths 512,x: expected numbers above 0"),
        (["--lengths", "0"], "--lengths 0: expected numbers above 0"),
        (["--width", "30", "--heads", "4"], "--width 30 does not split into 4 heads"),
        (["--width", "33", "--heads", "3"], "--width 33 is odd"),
        (["--only", "full", "--only", "nosuch"], "--only nosuch: no such system; there are RNN"),
        (["--device", "abacus"], "device 'abacus' is not known"),
    ],
)
def test_mistakes(words: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        CliRunner().invoke(bench_app, ["length", *words], catch_exceptions=False)


def test_some_systems_only() -> None:
    assert length.choose_encoders(("rnn", "Full")) == ["RNN", "full", "full, open"]
    assert length.choose_encoders(()) == list(SYSTEMS)


def test_lengths_double() -> None:
    assert {"cpu": [512, 1024, 2048, 4096, 8192], "cuda": [2**i for i in range(10, 17)]} == benchmarks.LENGTHS_OF_TEXTS

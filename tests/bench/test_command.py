"""qkv bench, for real but tiny."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from qkv.base.errors import ConfigError
from qkv.bench import benchmarks, systems
from qkv.bench.systems import Selection, decoding_systems, generation_systems, pretraining_systems, training_systems
from qkv.cli.bench import bench_app


def qkv_bench(*words: object) -> str:
    result = CliRunner().invoke(bench_app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


@pytest.fixture(autouse=True)
def _one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = training_systems(torch.device("cpu"), peers=False).systems
    fewer = Selection([system for system in chosen if system.precision == "float32" or system.options.get("bare")])
    monkeypatch.setattr(benchmarks, "training_systems", lambda device, peers: fewer)  # each one takes seconds to start
    qkv_bench("train", "--size", "tiny", "--rounds", 1, "--updates", 12, "--device", "cpu", "--out", tmp_path)
    figures = json.loads((tmp_path / "results.json").read_text())
    systems = {f"{s['name']}, {s['options']['precision']}": s for s in figures["systems"]}
    assert all(not s["error"] and s["rates"][""][0] > 0 and s["memory"][""] > 1 << 26 for s in systems.values())
    losses = systems["qkv, float32"]["losses"]
    assert len(losses) == 12 and losses[-1] < losses[0]
    assert {path.name for path in tmp_path.iterdir()} == {"table.md", "results.json", "speed.svg", "loss.svg"}


def test_decode(tmp_path: Path) -> None:
    options = ["--size", "tiny", "--rounds", 1, "--beam", "1,2", "--batch", 4, "--device", "cpu", "--out", tmp_path]
    printed = qkv_bench("decode", *options)
    assert "greedy, batch 4" in printed and "beam 2, batch 4" in printed
    figures = json.loads((tmp_path / "results.json").read_text())
    assert all(not s["error"] and set(s["rates"]) == {"greedy, batch 4", "beam 2, batch 4"} for s in figures["systems"])


@pytest.mark.parametrize("words", [["train", "--size", "huge"], ["decode", "--beam", "two"], ["decode", "--batch", "0"]])
def test_mistakes(words: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"--(size huge|beam two|batch 0)"):
        qkv_bench(*words)


def test_peers_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(systems, "PEER_ENVIRONMENTS", tmp_path)
    missing = {s.name: s.remedy for s in training_systems(torch.device("cpu"), peers=True).missing}
    assert {"eole", "OpenNMT-py", "Joey NMT"} <= set(missing) and missing["eole"] == "make bench-peers"


def test_peers_need_a_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert (systems.peers_folder() / "marian.py").exists()
    monkeypatch.setattr(systems, "HERE", tmp_path / "lib" / "qkv" / "bench")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"--peers: benchmarks/systems is not in .*; the package has no peers' code"):
        training_systems(torch.device("cpu"), peers=True)
    assert training_systems(torch.device("cpu"), peers=False).systems
    (tmp_path / "benchmarks" / "systems").mkdir(parents=True)
    assert systems.peers_folder() == tmp_path / "benchmarks" / "systems"


def test_every_system_has_its_file() -> None:
    for selection in (
        training_systems(torch.device("cpu"), True),
        decoding_systems(torch.device("cpu"), True),
        generation_systems(torch.device("cpu"), True),
        pretraining_systems(torch.device("cpu"), True, "bert"),
    ):
        for system in (*selection.systems, *selection.missing):
            assert Path(system.command(Path("job"))[5]).is_file(), system


def test_the_package_has_no_peers_code() -> None:
    assert not [path for path in systems.HERE.rglob("*.py") if "import transformers" in path.read_text()]


def test_some_systems_only() -> None:
    chosen = training_systems(torch.device("cpu"), peers=True)
    labels = [s.label for some in vars(chosen.only(("torch.nn", "qkv, float32"))).values() for s in some]
    assert labels and all("torch.nn" in label or label == "qkv, float32" for label in labels)
    assert chosen.only(()) is chosen
    with pytest.raises(ConfigError, match="--only nosuch: no such system; there are qkv"):
        chosen.only(("nosuch",))

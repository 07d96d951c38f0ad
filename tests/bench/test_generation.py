"""qkv bench generate: every system goes on with the same prompts, by as many words."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from bench_peers import peer
from qkv.base.errors import ConfigError
from qkv.bench import systems
from qkv.bench.systems import generation_systems
from qkv.bench.worker import BenchmarkJob
from qkv.bench.workers import generation
from qkv.bench.workload import FIRST, GPTS, documents, write_job
from qkv.cli.bench import bench_app
from qkv.data.tokens import TokenPairs, token_texts

PROMPT, NEW = 6, 5


@pytest.fixture
def job(tmp_path: Path) -> BenchmarkJob:
    prompts = token_texts(documents(4, PROMPT + 2, GPTS["tiny-gpt"], seed=1).tolist())
    facts = {"size": GPTS["tiny-gpt"], "device": "cpu", "seed": 1, "max_positions": PROMPT + NEW, "first": FIRST}
    write_job(tmp_path, TokenPairs(prompts, prompts), [], kind="decode", **facts)
    return BenchmarkJob(tmp_path, {"precision": "float32"})


def test_ours_adds_words_to_each_prompt(job: BenchmarkJob) -> None:
    grad = torch.is_grad_enabled()
    try:
        system = generation.make(job)
        one, all_at_once = (system.translate(job.source, 1, NEW, batch) for batch in (1, 4))
    finally:
        torch.set_grad_enabled(grad)
    assert one == all_at_once and len(one) == 4
    assert all(NEW - 1 <= len(words) <= NEW and min(words) >= FIRST for words in one)


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed here")
def test_theirs_adds_as_many(job: BenchmarkJob) -> None:
    found = peer("huggingface").make(job).translate(job.source, 1, NEW, 2)
    assert [len(words) for words in found] == [NEW] * 4


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = ["generate", "--size", "tiny-gpt", "--batch", "2", "--rounds", "1", "--only", "qkv, float32", "--device", "cpu"]
    result = CliRunner().invoke(bench_app, [*words, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    (system,) = json.loads((tmp_path / "results.json").read_text())["systems"]
    assert not system["error"] and system["rates"]["batch 2"][0] > 0


def test_a_size_that_is_no_gpts() -> None:
    with pytest.raises(ConfigError, match="--size bert-base is not known; choose tiny-gpt, gpt-mini, gpt2-small"):
        CliRunner().invoke(bench_app, ["generate", "--size", "bert-base"], catch_exceptions=False)


def test_systems_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systems, "auto_precision", lambda device: "bf16")
    chosen = generation_systems(torch.device("cuda"), peers=True)
    labels = [s.label for s in (*chosen.systems, *chosen.missing)]
    assert labels[:2] == ["qkv, float32", "qkv, bf16"] and [label.endswith("compiled, bf16") for label in labels[2:]] == [
        False,
        True,
    ]

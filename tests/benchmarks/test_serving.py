"""The benchmark of a service counts right, wrong and refused answers."""

import asyncio
import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "serving"))

from service_runs import Running, texts_of, write_translator

from qkv.inference.load import load_translator
from qkv.serving.registry import load_models


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("serving")


def test_clients_and_rates(script: ModuleType, tmp_path: Path) -> None:
    run = write_translator(tmp_path / "en-la")
    texts = texts_of(12)
    right = dict(zip(texts, load_translator(run, "cpu").translate(texts), strict=True))
    with Running(load_models([str(run)], "cpu"), queue=1) as running:
        clients = script.Clients(running.port, os.getpgrp(), right)
        single = asyncio.run(clients.together(1, 1.0))
        assert set(single.statuses) == {"200"} and single.wrong == 0 and single.memory
        crowded = asyncio.run(clients.at_rate(400, 0.2))
        assert sum(crowded.statuses.values()) == 80 and set(crowded.statuses) == {"200", "429"} and crowded.wrong == 0
        clients.expected = dict.fromkeys(texts, "other")
        assert (seen := asyncio.run(clients.together(1, 1.0))).wrong == len(seen.times) > 0
    summaries = {name: seen.summary() for name, seen in (("one after the other", single), ("together", crowded))}
    assert summaries["together"]["p50 ms"] <= summaries["together"]["p99 ms"] and summaries["together"]["statuses"]["429"] > 0
    table = script._table({"clients": 4, "cores": 2, "times as fast": 1.0, **summaries})
    assert "429: " in table and "| together |" in table

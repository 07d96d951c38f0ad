"""Requests made up from the service's own description: none is a fault of the service, and every answer is as described."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from schemathesis import GenerationMode

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from service_runs import WORDS, Running
from serving_probes import UNREACHED, Operation, generate, modes, operations

from qkv.serving.registry import ModelRegistry

ASKED = {  # each endpoint, with the models that it is asked for: those of a kind take the same way
    "/translate": ["en-la"], "/translate_file": [None], "/detect": [None], "/fill": ["bert", "t5"],
    "/predict": ["classes", "tags", "answers"],
    "/look": ["en-la", "bert", "gpt"], "/neighbours": ["words"], "/map": ["words"], "/v1/embeddings": ["bert"],
    "/v1/completions": ["gpt", "t5"],
}  # fmt: skip
TOLD = [
    "/download_file/{name}",
    "/languages",
    "/frontend/settings",
    "/models",
    "/v1/models",
    "/v1/models/{name}",
    "/healthz",
    "/readyz",
    "/metrics",
]
EVERY = [Operation("POST", path, model) for path, models in ASKED.items() for model in models]
EVERY += [Operation("GET", path, None) for path in TOLD]
CASES = [(one, mode) for one in EVERY for mode in modes(one)]
EXAMPLES = 20


@pytest.fixture(scope="module")
def limited(models: ModelRegistry) -> Iterator[Running]:
    with Running(models, new_tokens=24) as running:
        yield running


@pytest.mark.parametrize(("operation", "mode"), CASES, ids=[f"{one.path} {one.model} {mode.value}" for one, mode in CASES])
def test_every_answer_is_as_described(limited: Running, operation: Operation, mode: GenerationMode) -> None:
    statuses = generate(limited.url, operation, mode, EXAMPLES, words=WORDS)
    assert statuses[200] or mode is GenerationMode.NEGATIVE or operation.path in UNREACHED, (
        f"no valid request reached the model: {statuses}"
    )


def test_nothing_is_left_out(running: Running) -> None:
    assert {(one.method, one.path) for one in EVERY} == {(one.method, one.path) for one in operations(running.client)}

"""Requests made up from the service's own description: none is a fault of the service, and every answer is as described."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from schemathesis import GenerationMode

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from service_runs import WORDS, Running
from serving_probes import ADDED, ADMIN_KEY, Known, Operation, generate, modes, operations
from supervised import supervised

from qkv.serving.authentication import digest
from qkv.serving.registry import ModelRegistry
from qkv.serving.service_config import ServiceConfig
from qkv.serving.settings import ApiKey

ASKED = {  # each endpoint, with the models that it is asked for: those of a kind take the same way
    "/translate": ["en-la"], "/translate_file": [None], "/detect": [None], "/fill": ["bert", "t5"],
    "/predict": ["classes", "tags", "answers"],
    "/look": ["en-la", "bert", "gpt"], "/neighbours": ["words"], "/map": ["words"], "/v1/embeddings": ["bert"],
    "/arithmetic": ["en-la", "bert", "gpt"], "/change": ["en-la", "bert", "gpt"], "/patch": ["en-la", "bert", "gpt"],
    "/layers": ["en-la", "bert", "gpt"], "/steps": ["en-la", "gpt"], "/attribute": ["en-la", "classes", "gpt"],
    "/through_training": ["en-la"], "/heads": ["bert"],
    "/analogy": ["words"], "/projector": ["words"], "/neighbours_through_training": ["words"],
    "/v1/completions": ["gpt", "t5"], "/admin/models": [None], "/admin/reload": [None],
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
    "/admin/models",
]
EVERY = [Operation("POST", path, model) for path, models in ASKED.items() for model in models]
EVERY += [*(Operation("GET", path, None) for path in TOLD), Operation("DELETE", "/admin/models/{name}", None)]
CASES = [(one, mode) for one in EVERY for mode in modes(one)]
EXAMPLES = 20


@pytest.fixture(scope="module")
def limited(models: ModelRegistry, folders: list[str]) -> Iterator[Running]:
    served = {Path(folder).name: folder for folder in folders}
    config = ServiceConfig(models={**served, ADDED[0]: folders[0]}, model_root=str(Path(folders[0]).parent))
    key = ApiKey(name="probes", digest=digest(ADMIN_KEY))
    with supervised(config) as link, Running(models, link, new_tokens=24, admin_keys=(key,)) as running:
        yield running


@pytest.mark.parametrize(("operation", "mode"), CASES, ids=[f"{one.path} {one.model} {mode.value}" for one, mode in CASES])
def test_every_answer_is_as_described(limited: Running, operation: Operation, mode: GenerationMode) -> None:
    statuses = generate(limited.url, operation, mode, EXAMPLES, known=Known(WORDS, ["en-la", "t5"]))
    assert statuses[200] or mode is GenerationMode.NEGATIVE, f"no valid request reached the model: {statuses}"


def test_nothing_is_left_out(limited: Running) -> None:
    assert {(one.method, one.path) for one in EVERY} == {(one.method, one.path) for one in operations(limited.client)}

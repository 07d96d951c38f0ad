"""Requests made up from the service's own description: none is a fault of the service, and every answer is as described."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from service_runs import Running

CHECKS = [
    schemathesis.checks.not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
    response_headers_conformance,
]  # fmt: skip
ASKED = [
    "/translate",
    "/translate_file",
    "/detect",
    "/fill",
    "/predict",
    "/look",
    "/neighbours",
    "/map",
    "/v1/embeddings",
    "/v1/completions",
]
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
EVERY = [*(("POST", path) for path in ASKED), *(("GET", path) for path in TOLD)]
QUICKLY = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)


@pytest.fixture(scope="module")
def described(running: Running) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_url(f"{running.url}/openapi.json")


CASES = [(*one, GenerationMode.POSITIVE) for one in EVERY] + [("POST", path, GenerationMode.NEGATIVE) for path in ASKED]


@pytest.mark.parametrize(("method", "path", "mode"), CASES, ids=[f"{path} {mode.value}" for _, path, mode in CASES])
def test_every_answer_is_as_described(described: schemathesis.BaseSchema, method: str, path: str, mode: GenerationMode) -> None:
    operation = described[path][method]

    @QUICKLY
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=CHECKS)

    check()


def test_nothing_is_left_out(running: Running) -> None:
    told = running.client.get("/openapi.json").json()["paths"]
    assert sorted(EVERY) == sorted((method.upper(), path) for path, methods in told.items() for method in methods)

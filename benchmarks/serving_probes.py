"""Raw HTTP and requests made up from the service's own description, against a served model of every kind.

    python benchmarks/serving_probes.py RUN... [--examples 200] [--mutations 5000] [--seed 1] [--out FOLDER]

RUN are folders that `qkv serve` takes: give a translator, an encoder, a fine-tuned one, a GPT, a T5, word vectors, and whatever
else is served, so that every endpoint is reached; requests to /admin add and remove those that lie in the folder of the first.
First come the raw requests of raw_probes.py, then random changes of them. Then schemathesis makes requests up for each endpoint
and each model that can answer it, both valid ones and invalid ones. The script fails if an answer has a status of 500 or more or
is not as described, if a connection ends otherwise than it must, or if valid requests never reach an endpoint.
"""

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from raw_probes import faults, mutated, probes, send_mutated, send_probe
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from serving_latency import service

from qkv.serving.authentication import digest
from qkv.vectors.word_vectors import TENSORS, WordVectors

CHECKS = [
    schemathesis.checks.not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
    response_headers_conformance,
]  # fmt: skip
ABILITIES = {  # that a model needs, by the path
    **{f"/{name}": name for name in ("translate", "fill", "predict", "look", "neighbours", "map")},
    **{f"/{name}": name for name in ("arithmetic", "change", "patch", "layers", "steps", "attribute", "through_training")},
    **{f"/{name}": name for name in ("heads", "analogy", "projector", "neighbours_through_training")},
    "/v1/embeddings": "embed", "/v1/completions": "complete",
}  # fmt: skip
SENSIBLE = {  # texts that most models can read, where those that are made up would hardly ever do
    ("/layers", "text"): ["good [MASK]", "good dogs"],
}
PATCHED = (
    "red",
    "old",
    "dogs",
    "cats",
    "house",
    "street",
    "a",
    "e",
    "i",
    "n",
)  # words for /patch: some pairs have as many tokens
UPLOAD, DOWNLOAD = "/translate_file", "/download_file/{name}"
SETTINGS = ("logs=none", "new_tokens=24")
ADDED = ("added-1", "added-2")  # names of models that requests to /admin add and remove
CHANGES = 10  # examples for each endpoint of /admin at most: a change of a service takes seconds
SECONDS = 120.0  # in which an answer must come
ADMIN_KEY = "an administrator's key for this run alone"


class Operation(NamedTuple):
    """An endpoint, and the model that requests to it name."""

    method: str
    path: str
    model: str | None


class Known(NamedTuple):
    """What requests may name so that they reach something."""

    words: Sequence[str] = ()  # that have vectors
    folders: Sequence[str] = ()  # of runs, below the root of models


NOTHING = Known()


def operations(client: httpx.Client) -> list[Operation]:
    """Return every endpoint with every model that can answer it."""
    models, paths = client.get("/models").json(), client.get("/openapi.json").json()["paths"]
    found = []
    for path, methods in paths.items():
        able = [one["id"] for one in models if ABILITIES.get(path) in one["can"]] if path in ABILITIES else [None]
        found += [Operation(method.upper(), path, name) for method in methods for name in able]
    return found


def description(client: httpx.Client, operation: Operation, known: Known) -> dict[str, Any]:
    """Return the service's description, where requests name the operation's model, and what else there is."""
    described = client.get("/openapi.json").json()
    codes = client.get("/languages").json()
    languages = {"source": [one["code"] for one in codes], "target": [code for one in codes for code in one["targets"]]}
    for name, schema in described["components"]["schemas"].items():
        fields = schema.get("properties", {})
        if not name.endswith("Request"):
            continue
        if operation.model is not None and "model" in fields:
            fields["model"] = {"type": "string", "enum": [operation.model]}
            schema["required"] = [*{*schema.get("required", ()), "model"}]
        for side in ("source", "target"):
            if name == "TranslateRequest" and languages[side]:
                fields[side] = {"type": "string", "enum": sorted({*languages[side]})}
        if name == "NeighboursRequest" and known.words:
            fields["word"] = {"type": "string", "enum": [*known.words, "never"]}
        for field, words in zip(("first", "second", "third"), known.words, strict=False):
            if name == "AnalogyRequest":
                fields[field] = {"type": "string", "enum": [words, "never"]}
        if name in ("ProjectorRequest", "FollowWordsRequest") and known.words:
            words_field = fields["words"].get("anyOf", [fields["words"]])[0]
            words_field["items"] = {"type": "string", "enum": [*known.words, "never"]}
        if name == "PatchRequest" and operation.path == "/patch":
            fields |= {field: {"type": "string", "enum": [text]} for field, text in patched(client, operation.model).items()}
        for path, field in SENSIBLE:
            if operation.path == path and field in fields:
                fields[field] = {"type": "string", "enum": SENSIBLE[path, field]}
        if name == "AddModelRequest":
            fields["name"] = {"type": "string", "enum": list(ADDED)}
            fields["folder"] = {"type": "string", "enum": [*known.folders, "never"]}
    upload = described["paths"].get(UPLOAD, {}).get("post", {}).get("requestBody", {}).get("content", {})
    for schema in (one["schema"] for one in upload.values()):
        schema["properties"] = {**schema["properties"], "file": {"type": "string", "enum": ["red bird\n", "old tree\n\nsun\n"]}}
        schema["properties"] |= {name: {"type": "string", "enum": options} for name, options in languages.items() if options}
    served = [one["id"] for one in client.get("/models").json()]
    paths = [("/v1/models/{name}", "get", served), ("/admin/models/{name}", "delete", ADDED)]
    if operation.path == DOWNLOAD:
        answer = client.post(UPLOAD, files={"file": ("a.txt", b"red bird\n")}).json()
        paths.append((DOWNLOAD, "get", [answer["translatedFileUrl"].rpartition("/")[2], "never"]))
    for path, method, names in paths:
        for parameter in described["paths"].get(path, {}).get(method, {}).get("parameters", []):
            parameter["schema"] = {"type": "string", "enum": list(names)}
    return described


def patched(client: httpx.Client, model: str | None) -> dict[str, str]:
    """Return two texts that /patch takes: they have as many tokens, and an encoder's have a [MASK]."""
    pairs = [
        {"text": one + end, "other": two + end} for one, two in itertools.combinations(PATCHED, 2) for end in ("", " [MASK]")
    ]
    return next((pair for pair in pairs if client.post("/patch", json={"model": model, **pair}).status_code == 200), pairs[0])


def generate(
    url: str, operation: Operation, mode: GenerationMode, examples: int, number: int = 0, known: Known = NOTHING
) -> Counter[int]:
    """Send requests that are made up for an operation, check each answer, and return how often each status came.

    `number` is a seed, 0 for the same requests each time.
    """
    with httpx.Client(base_url=url, timeout=SECONDS) as client:
        schema = schemathesis.openapi.from_dict(description(client, operation, known))
    statuses: Counter[int] = Counter()
    headers = {"Authorization": f"Bearer {ADMIN_KEY}"} if operation.path.startswith("/admin") else {}
    quickly = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=number == 0,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )

    @quickly
    @given(case=schema[operation.path][operation.method].as_strategy(generation_mode=mode))
    def check(case: schemathesis.Case) -> None:
        form = {}
        if operation.path == UPLOAD and mode is GenerationMode.POSITIVE:  # a schema cannot give a file its name
            form = {name: (None, str(value)) for name, value in case.body.items() if value is not None}
            form = {"files": {**form, "file": ("a.txt", case.body["file"])}}
        answer = case.call(base_url=url, headers=headers, timeout=SECONDS, **form)
        statuses[answer.status_code] += 1
        case.validate_response(answer, checks=CHECKS, headers=headers)

    (check if number == 0 else seed(number)(check))()
    return statuses


def modes(operation: Operation) -> Iterator[GenerationMode]:
    """Yield the kinds of requests that can be made up: an endpoint without a body has no invalid ones."""
    yield GenerationMode.POSITIVE
    if operation.method == "POST" and operation.path != "/admin/reload":
        yield GenerationMode.NEGATIVE


def send_raw(port: int, mutations: int, number: int, wrong: list[str]) -> list[str]:
    """Send raw requests and random changes of them; return rows of the table."""
    total = 0
    for probe in probes():
        total += 1
        if fault := faults(probe, send_probe(probe, port)):
            wrong.append(fault)
    rows = [f"| raw HTTP | | {total} | {len(wrong)} not as wanted |"]
    for data in itertools.islice(mutated(number), mutations):
        if any(status >= 500 for status in send_mutated(data, port)):
            wrong.append(f"5xx for {data!r}")
    return [*rows, f"| raw HTTP with random changes | | {mutations:,} | |"]


def send_generated(url: str, examples: int, number: int, known: Known, wrong: list[str]) -> Iterator[str]:
    """Send requests that are made up for every endpoint; yield rows of the table."""
    with httpx.Client(base_url=url, timeout=SECONDS) as client:
        found = operations(client)
    for operation, mode in [(one, mode) for one in found for mode in modes(one)]:
        most = CHANGES if operation.path.startswith("/admin") else examples
        try:
            statuses = generate(url, operation, mode, min(examples, most), number, known)
        except (AssertionError, BaseExceptionGroup, requests.RequestException) as error:
            wrong.append(f"{operation}, {mode.value}: {error}")
            continue
        if mode is GenerationMode.POSITIVE and not statuses[200]:
            wrong.append(f"{operation}: no valid request was answered with 200")
        shown = ", ".join(f"{status}: {count:,}" for status, count in sorted(statuses.items()))
        name = f"{operation.method} {operation.path}, {'valid' if mode is GenerationMode.POSITIVE else 'invalid'}"
        yield f"| {name} | {operation.model or ''} | {sum(statuses.values()):,} | {shown} |"


def main() -> None:
    """Serve the runs, send everything, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--mutations", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()))
    given_options = parser.parse_args()
    started, wrong = time.perf_counter(), list[str]()
    runs, number, beside = given_options.runs, given_options.seed, given_options.runs[0].resolve().parent
    words = [word for run in runs if (run / TENSORS).exists() for word in WordVectors.load(run).words[:20]]
    known = Known(words, [run.name for run in runs if run.resolve().parent == beside])
    rows = ["| endpoint | model | requests | statuses |", "|---|---|---:|---|"]
    with tempfile.NamedTemporaryFile("w") as keys:
        keys.write(f"probes {digest(ADMIN_KEY)}\n")
        keys.flush()
        options = ("--admin-keys", keys.name, "--model-root", str(beside))
        with service(runs, Path(__file__).parents[1], *SETTINGS, options=options) as port:
            rows += send_raw(port, given_options.mutations, number, wrong)
            rows += send_generated(f"http://127.0.0.1:{port}", given_options.examples, number, known, wrong)
    table = "\n".join(rows) + f"\n\n{len(wrong)} faults, {time.perf_counter() - started:.0f} s\n"
    given_options.out.mkdir(parents=True, exist_ok=True)
    (given_options.out / "serving_probes.md").write_text(table)
    (given_options.out / "serving_probes.json").write_text(json.dumps({"faults": wrong}, indent=2) + "\n")
    print(table + "\n".join(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

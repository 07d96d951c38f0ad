"""Bodies that nobody should send: each is refused in words that repeat nothing of it, and the service goes on."""

import json
import socket
from typing import Any

import httpx
import pytest
from pydantic import ValidationError
from service_runs import Running, code_of

from qkv.serving.registry import ModelRegistry
from qkv.serving.request_models import (
    CompletionRequest,
    EmbeddingsRequest,
    LookRequest,
    MapRequest,
    PredictRequest,
    RequestBody,
    TranslateRequest,
)

PATHS = ["/translate", "/detect", "/fill", "/predict", "/look", "/neighbours", "/map", "/v1/embeddings", "/v1/completions"]
DEEP = 100_000
BODIES: dict[str, bytes] = {
    "empty": b"",
    "not JSON": b"{'q': 1}",
    "half": b'{"q": "su',
    "not an object": b'["q"]',
    "nothing": b"null",
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "a deep field": b'{"q": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep objects": b'{"q":' * DEEP + b"1" + b"}" * DEEP,
    "not UTF-8": b'{"q": "\xff\xfe"}',
    "UTF-16": '{"q": "sun"}'.encode("utf-16"),
    "half a surrogate pair": b'{"q": "\\ud800", "text": "\\udc00", "word": "\\ud800", "prompt": "\\ud800", "model": "\\ud800"}',
    "half a pair as a key": b'{"\\ud800": 1}',
    "a surrogate in UTF-8": b'{"q": "\xed\xa0\x80"}',
    "bare control characters": b'{"q": "\x00\x01\x1f"}',
    "a huge number": b'{"q": ' + b"9" * 100_000 + b"}",
    "not numbers": b'{"q": NaN, "top": Infinity}',
    "wrong types": b'{"q": 1, "text": [], "texts": {}, "word": null, "words": 3, "model": true, "input": 1.5, "prompt": {}}',
    "a key twice": b'{"q": 1, "q": 2}',
    "a BOM": b"\xef\xbb\xbf{}",
}


@pytest.mark.parametrize(
    "given",
    [
        (CompletionRequest, {"model": "a", "prompt": [[1]] * 999 + ["a"] * 999}),
        (EmbeddingsRequest, {"model": "a", "input": [-1] * 999}),
        (TranslateRequest, {"q": [1] * 999, "glossary": {"a": [1] * 999}}),
        (PredictRequest, {"texts": [1] * 999}),
        (LookRequest, {"text": "a", "heads": ["a"] * 999}),
        (MapRequest, {"words": [1] * 999}),
    ],
    ids=lambda given: given[0].__name__,
)
def test_lists_are_read_up_to_their_first_mistake(given: tuple[type[RequestBody], dict[str, Any]]) -> None:
    model, body = given
    with pytest.raises(ValidationError) as refused:
        model.model_validate(body, strict=True)
    assert refused.value.error_count() < 10


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_what_cannot_be_read_is_refused(running: Running, body: bytes) -> None:
    for path in PATHS:
        answer = running.client.post(path, content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 400 and code_of(answer) == "invalid_request", (path, answer.text)
        assert len(answer.text) < 500


FORMS = {
    "fields": b"&".join(b"a%d=1" % i for i in range(5000)),
    "bytes": b"q=%ff%fe%00&%ff=1",
    "no field": b"=&=&&",
    "empty": b"",
}


@pytest.mark.parametrize("body", FORMS.values(), ids=FORMS)
def test_forms_that_cannot_be_read(running: Running, body: bytes) -> None:
    answer = running.client.post("/translate", content=body, headers={"content-type": "application/x-www-form-urlencoded"})
    assert answer.status_code == 400


ODD = [
    "\x00\x01\x7f",
    "\ufeff\u200b\u2028\u202e",
    "\U0010ffff\ue000",
    "\r\n\t\v\f",
    "<s></s>[MASK]<pad>",
    "𝒳👩‍👩‍👧‍👦é\u0301",
    "'; --",
    "a" * 5000,
    " ",
]


@pytest.mark.parametrize("text", ODD, ids=[str(number) for number in range(len(ODD))])
def test_odd_texts_are_texts(running: Running, text: str) -> None:
    """Control characters and the names of tokens are nothing special."""
    asked = {
        "/translate": {"q": text, "alternatives": 1},
        "/detect": {"q": text},
        "/fill": {"text": f"{text} [MASK]"},
        "/predict": {"model": "classes", "texts": [text, [text, text]]},
        "/look": {"text": text},
        "/neighbours": {"word": text},
        "/map": {"words": [text, "sun"]},
        "/v1/embeddings": {"model": "bert", "input": text},
        "/v1/completions": {"model": "gpt", "prompt": text, "max_tokens": 2, "stop": ["\x00"]},
    }
    for path, body in asked.items():
        answer = running.post(path, **body)
        assert answer.status_code in (200, 400), (path, answer.text)
        assert answer.status_code == 200 or code_of(answer) in ("unsuitable", "text_too_long", "languages"), (path, answer.text)
    assert running.post("/predict", model="tags", texts=[text]).status_code in (200, 400)
    assert running.post("/predict", model="answers", texts=[[text, text]]).status_code in (200, 400)


def test_bodies_that_are_too_large(models: ModelRegistry) -> None:
    with Running(models, body_bytes=2000) as running:
        for size, status in {1900: 200, 2100: 413, 30_000: 413}.items():
            text = json.dumps({"q": "sun"}).encode().ljust(size)
            answer = running.client.post("/translate", content=text, headers={"content-type": "application/json"})
            assert answer.status_code == status
        assert code_of(answer) == "body_too_large"
        chunks = running.client.post("/translate", content=iter([b" " * 1000] * 4), headers={"content-type": "application/json"})
        assert chunks.status_code == 413
        with socket.create_connection(("127.0.0.1", running.port), timeout=20) as connection:
            connection.sendall(
                b"POST /fill HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n{"
            )
            assert b" 413 " in connection.recv(1000)
        assert running.said("/translate", q="sun")


RAW = [
    b"\x16\x03\x01\x02\x00\x01\x00",
    b"GET\r\n\r\n",
    b"POST /translate HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 1_000_000,
    b"POST /fill HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
]


@pytest.mark.parametrize("data", RAW, ids=[str(number) for number in range(len(RAW))])
def test_what_is_not_http(running: Running, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", running.port), timeout=20) as connection:
        connection.sendall(data)
        told = connection.recv(1000)
    assert told.startswith(b"HTTP/1.1 4"), told
    assert running.client.get("/healthz").status_code == 200


@pytest.mark.parametrize("path", ["/translate", "/v1/completions", "/healthz", "/", "/docs"])
@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "TRACE", "OPTIONS"])
def test_other_methods(running: Running, path: str, method: str) -> None:
    answer = httpx.request(method, running.url + path)
    assert answer.status_code == 405 and answer.headers["allow"]

"""Clients that disconnect: their items are not computed, streams stop, and slots become free."""

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from service_runs import Running, write_gpt

from qkv.inference.text_generator import load_text_generator
from qkv.serving import admission
from qkv.serving.batching import BatchItem, RunningItems
from qkv.serving.handlers import GenerationHandler, TranslationHandler
from qkv.serving.registry import TRANSLATE, ModelRegistry, ServedModel
from workbench import wait_until


class HeldHandler(TranslationHandler):
    """A translator that waits until it is let go."""

    def __init__(self, handler: TranslationHandler):
        super().__init__(handler.translator)
        self.go, self.batches = threading.Event(), []  # type: ignore[var-annotated]

    def begin(self, items: Sequence[BatchItem], piece: int) -> RunningItems:
        self.batches.append(len(items))
        assert self.go.wait(20)
        return super().begin(items, piece)


@pytest.fixture
def held(models: ModelRegistry) -> Iterator[tuple[Running, HeldHandler]]:
    holding = HeldHandler(models.find("en-la", TRANSLATE).handler)
    with Running(ModelRegistry([ServedModel("en-la", holding)]), queue=3, wait=0) as running:
        yield running, holding
        holding.go.set()


def sent(port: int, path: str, body: dict[str, Any]) -> socket.socket:
    """A connection on which a request has been sent."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    connection.sendall(head.encode() + data)
    return connection


def test_who_hangs_up_frees_the_place(held: tuple[Running, HeldHandler]) -> None:
    running, handler = held
    worker = running.service.workers["en-la"]
    connections = [sent(running.port, "/translate", {"q": ["sun"] * 5})]
    wait_until(lambda: handler.batches)
    connections += [sent(running.port, "/translate", {"q": ["rain"] * 7}) for _ in range(2)]
    wait_until(lambda: worker.active == 3)
    assert running.refused("/translate", q="tree") == (429, "busy")
    for connection in connections[1:]:
        connection.close()
    wait_until(lambda: worker.active == 1)
    handler.go.set()
    assert running.said("/translate", q="tree")
    assert b"200 OK" in connections[0].recv(1000)
    connections[0].close()
    assert handler.batches == [5, 1]


def test_the_queue_is_bounded_and_recovers(held: tuple[Running, HeldHandler]) -> None:
    running, handler = held
    connections = [sent(running.port, "/translate", {"q": "sun"}) for _ in range(3)]
    wait_until(lambda: running.service.workers["en-la"].active == 3)
    for _ in range(5):
        answer = running.post("/translate", q="sun")
        assert answer.status_code == 429 and answer.headers["retry-after"] == "1"
    handler.go.set()
    for connection in connections:
        assert b"200 OK" in connection.recv(1000)
        connection.close()
    assert running.said("/translate", q="sun")
    assert 'qkv_refused_total{model="en-la",reason="busy"} 5' in running.client.get("/metrics").text


def test_a_stream_stops_when_nobody_listens(tmp_path: Path) -> None:
    generator = load_text_generator(write_gpt(tmp_path / "gpt", max_positions=100_000), "cpu")
    handler = GenerationHandler(generator)
    with Running(ModelRegistry([ServedModel("gpt", handler)]), new_tokens=90_000) as running:
        worker = running.service.workers["gpt"]
        ask = {"model": "gpt", "prompt": "The quick", "max_tokens": 90_000, "stream": True, "seed": 1}
        with sent(running.port, "/v1/completions", ask) as connection:
            told = b""
            while told.count(b"data: ") < 3:
                told += connection.recv(1000)
            assert b"text/event-stream" in told and b"x-accel-buffering: no" in told and worker.active == 1
        wait_until(lambda: worker.active == 0 and not worker.schedule.lanes)
        counted = running.service.metrics.registry.get_sample_value("qkv_generated_tokens_total", {"model": "gpt"})
        assert counted and counted > 2, "tokens that were passed on count without a result"
        assert running.said("/v1/completions", model="gpt", prompt="a", max_tokens=2)


def test_what_would_take_far_too_long_is_refused_once_the_speed_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "KNOWN", 0.01)
    handler = GenerationHandler(load_text_generator(write_gpt(tmp_path / "gpt", max_positions=100_000), "cpu"))
    with Running(ModelRegistry([ServedModel("gpt", handler)]), new_tokens=90_000, time_limit=0.3) as running:
        ask = {"model": "gpt", "prompt": "The quick", "seed": 1}
        assert running.said("/v1/completions", **ask, max_tokens=200)
        for stream in (False, True):
            assert running.refused("/v1/completions", **ask, max_tokens=90_000, stream=stream) == (422, "time_limit")
        wait_until(lambda: running.service.workers["gpt"].active == 0)
        assert 'qkv_refused_total{model="gpt",reason="time_limit"} 2' in running.client.get("/metrics").text


def test_who_hangs_up_while_sending_is_no_fault_of_ours(models: ModelRegistry, caplog: pytest.LogCaptureFixture) -> None:
    with Running(models) as running:
        with socket.create_connection(("127.0.0.1", running.port)) as connection:
            connection.sendall(b"POST /fill HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{")
            wait_until(lambda: running.server.server_state.tasks)
        wait_until(lambda: 'qkv_requests_total{path="/fill",status="499"} 1' in running.client.get("/metrics").text)
    assert not caplog.records


def read_all(connection: socket.socket) -> bytes:
    told = b""
    while part := connection.recv(65536):
        told += part
    return told


def test_the_slow_are_not_waited_for(models: ModelRegistry) -> None:
    """Slow-loris: half of the headers, half of a body, a body that nobody reads, nothing at all."""
    half_body = b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
    unread = b"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n"
    second = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nGET /healthz HTTP/1.1\r\nHo"
    with Running(models, body_seconds=0.3) as running:
        begun = [b"", b"POST /translate HT", b"POST /translate HTTP/1.1\r\nHost: a\r\nX-", half_body, unread, second]
        connections = [socket.create_connection(("127.0.0.1", running.port), timeout=20) for _ in begun]
        for connection, data in zip(connections, begun, strict=True):
            connection.sendall(data)
        wait_until(lambda: len(running.server.server_state.connections) >= 1)
        told = []
        for connection in connections:
            try:
                told.append(read_all(connection))
            except ConnectionResetError:
                told.append(b"")
            connection.close()
        assert b"408" in told[3] and b"body_too_slow" in told[3]
        wait_until(lambda: not running.server.server_state.connections)
        assert running.said("/translate", q="sun")


def test_who_does_not_take_the_answer_is_left(models: ModelRegistry) -> None:
    starting = Running(models, body_seconds=0.3, texts=2000)
    starting.listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # or the system would keep all of the answer
    with starting as running:
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", running.port))
            body = json.dumps({"model": "bert", "input": ["fox"] * 2000}).encode()
            head = b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            connection.sendall(head % len(body) + body)
            connections = running.server.server_state.connections
            wait_until(lambda: connections)
            wait_until(lambda: not connections)
        assert running.said("/translate", q="sun")

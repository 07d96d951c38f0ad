"""Raw requests that no good client sends: never a 5xx, one answer for each request, and a connection that ends where it must."""

import logging
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from raw_probes import CHUNKED, HEALTH, HOST, Probe, ResponseReader, faults, get, probes, send_probe
from service_runs import Running

from qkv.serving.registry import ModelRegistry
from workbench import wait_until

PROBES = list(probes())
LARGE = next(probe for probe in PROBES if probe.statuses == [431])
BEGUN = {
    "half of a request line": b"GET /heal",
    "half of the headers": b"GET /healthz HTTP/1.1\r\n" + HOST + b"X-",
    "half of the second request": HEALTH + b"GET /hea",
    "half of a chunk": get(more=b"Transfer-Encoding: chunked\r\n") + b"5\r\nhe",
}


@pytest.fixture(scope="module")
def strict(models: ModelRegistry) -> Iterator[Running]:
    with Running(models, hosts=("localhost", "127.0.0.1", "::1"), logs="requests") as running:
        yield running


@pytest.mark.parametrize("probe", PROBES, ids=[probe.name for probe in PROBES])
def test_probes(strict: Running, caplog: pytest.LogCaptureFixture, probe: Probe) -> None:
    caplog.set_level(logging.INFO, "qkv.serving")
    assert not faults(probe, send_probe(probe, strict.port))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    logged = [record.getMessage() for record in caplog.records if record.name == "qkv.serving"]
    assert max(map(len, logged), default=0) < 200, "the log repeats what a client sends"


def test_refusals_are_counted_and_places_given_back(strict: Running) -> None:
    assert not faults(LARGE, send_probe(LARGE, strict.port))
    assert 'qkv_requests_total{path="other",status="431"}' in strict.client.get("/metrics").text
    strict.client.close()
    wait_until(lambda: not strict.server.server_state.connections)
    limits = strict.server.config.http.limits
    assert not any(counts for counts in limits.counts.values())


def test_a_body_that_breaks_after_the_answer(strict: Running) -> None:
    """The answer is whole, and the connection ends."""
    with socket.create_connection(("127.0.0.1", strict.port), timeout=20) as connection:
        reader = ResponseReader(connection)
        connection.sendall(get(b"/nothing", CHUNKED) + b"1\r\na\r\n")
        assert reader.next() == 404
        connection.sendall(b"not a chunk\r\n")
        assert reader.next() is None


def test_what_is_begun_and_not_ended(models: ModelRegistry) -> None:
    with Running(models, body_seconds=0.2) as running:
        for name, data in BEGUN.items():
            answers = [200] if b"\r\n\r\n" in data else []
            assert not faults(Probe(name, [data], answers), send_probe(Probe(name, [data], [*answers, 0]), running.port)), name


def test_reserved_connections_do_not_wait_long(models: ModelRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds all connections cannot hold those for health checks too."""
    monkeypatch.setattr("qkv.serving.protocol.RESERVED_SECONDS", 0.1)
    monkeypatch.setattr("qkv.serving.connections.RESERVED_PER_ADDRESS", 2)
    with Running(models, connections_per_address=1) as running:
        running.said("/translate", q="sun")
        silent = Probe("silence", [b"GET /hea"], [0])
        assert [send_probe(silent, running.port).statuses for _ in range(3)] == [[]] * 3
        answer = send_probe(Probe("a health check", [HEALTH], [200]), running.port)
        assert answer.statuses == [200] and not answer.open

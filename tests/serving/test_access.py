"""Access: API keys, rate limits, host names, origins; and what the log says about it."""

import contextlib
import logging
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
from service_runs import Running, code_of

import qkv.serving.shared_limits
from qkv.base.config import parse
from qkv.base.errors import ConfigError
from qkv.serving import connections
from qkv.serving.addresses import network_of
from qkv.serving.authentication import Authenticator, digest, new_key, read_keys
from qkv.serving.connections import ConnectionLimits, Place
from qkv.serving.errors import RequestError
from qkv.serving.logs import TextFormatter
from qkv.serving.registry import ModelRegistry
from qkv.serving.settings import ApiKey, ServiceSettings
from qkv.serving.shared_limits import SharedLimits
from workbench import wait_until

KEY = new_key()


def key(**options: Any) -> ApiKey:
    return ApiKey(name="anna", digest=digest(KEY), **options)


class Access:
    """An authenticator and limits, used as the service uses them."""

    def __init__(self, keys: tuple[ApiKey, ...] = (), rate: int | None = None, rows: int = 100):
        self.authenticator, self.limits = Authenticator(keys, rate), SharedLimits(rows=rows)

    def admit(self, given: str | None, address: str = "") -> str:
        caller = self.authenticator.identify(given, address)
        self.limits.count(caller)
        return caller.name


def test_keys(models: ModelRegistry) -> None:
    with Running(models, keys=(ApiKey(name="other", digest=digest("other")), key())) as running:
        ask = {"model": "bert", "input": "fox"}
        assert running.refused("/v1/embeddings", **ask) == (401, "invalid_api_key")
        for given, status in {f"Bearer {KEY}": 200, f"Bearer {KEY}x": 401, f"Basic {KEY}": 401, "Bearer": 401}.items():
            answer = running.client.post("/v1/embeddings", json=ask, headers={"authorization": given})
            assert answer.status_code == status, given
        assert running.post("/translate", q="sun", api_key=KEY).status_code == 200
        assert running.client.post("/translate", data={"q": "sun", "api_key": KEY}).status_code == 200
        assert running.refused("/translate", q="sun", api_key="wrong") == (401, "invalid_api_key")
        assert running.client.get("/healthz").status_code == 200 and running.client.get("/metrics").status_code == 401
        assert running.client.get("/frontend/settings").json()["keyRequired"]


def test_a_key_is_asked_for_before_a_body_is_read(models: ModelRegistry) -> None:
    with Running(models, keys=(key(),)) as running:
        assert code_of(running.client.post("/fill", content=b"\xff not JSON")) == "invalid_api_key"


def test_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(qkv.serving.shared_limits.time, "monotonic", lambda: now)
    access = Access(keys=(key(rate=2), ApiKey(name="other", digest=digest("other"))), rate=60)
    assert [access.admit(KEY) for _ in range(2)] == ["anna", "anna"]
    with pytest.raises(RequestError, match="2 requests a minute") as refused:
        access.admit(KEY)
    assert refused.value.status == 429 and refused.value.retry_after == 30
    assert [access.admit("other") for _ in range(60)] == ["other"] * 60
    now += 9.5
    with pytest.raises(RequestError) as again:
        access.admit(KEY)
    assert again.value.retry_after == 21, "whoever comes back after that must be let in"
    now += 20.5
    assert access.admit(KEY) == "anna"
    with pytest.raises(RequestError):
        access.admit(KEY)


def test_rates_of_addresses() -> None:
    access = Access(rate=1, rows=3)
    for number in range(10):
        access.admit(None, f"10.0.0.{number}")
    with pytest.raises(RequestError):
        access.admit(None, "10.0.0.9")
    access.admit(None, "10.0.0.0")  # unused for the longest, and forgotten


def test_files_of_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# who may\nanna {digest('a')} 30\n\nbob {digest('b')}\n")
    assert [(one.name, one.rate) for one in read_keys(file)] == [("anna", 30), ("bob", None)]
    for wrong, told in {"anna secret": "line 1", "a b c d": "line 1", "": "no key"}.items():
        file.write_text(wrong)
        with pytest.raises(ConfigError, match=told):
            read_keys(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_keys(tmp_path / "none")


def test_other_names_and_pages_are_refused(models: ModelRegistry) -> None:
    with Running(models, hosts=("localhost", "127.0.0.1"), origins=("https://friend.org",)) as running:

        def status(origin: str | None = None, host: str = "127.0.0.1:1") -> int:
            headers = {"host": host, **({"origin": origin} if origin else {})}
            return running.client.post("/translate", json={"q": "sun"}, headers=headers).status_code

        assert status() == 200 and status(host="localhost") == 200 and status(host="LOCALHOST:80") == 200
        assert status(host="evil.org") == 421 and status(host="127.0.0.1.evil.org:80") == 421
        assert status("http://127.0.0.1:1") == 200 and status("https://friend.org") == 200
        assert status("http://evil.org") == 403 and status("null") == 403
        allowed = running.client.post("/translate", json={"q": "sun"}, headers={"origin": "https://friend.org"})
        assert allowed.headers["access-control-allow-origin"] == "https://friend.org"
        assert allowed.headers["access-control-expose-headers"] == "Retry-After"


def test_cors_is_off_unless_told(running: Running) -> None:
    asked = {"origin": "https://friend.org", "access-control-request-method": "POST"}
    answer = running.client.options("/translate", headers=asked)
    assert answer.status_code == 405 and "access-control-allow-origin" not in answer.headers


def test_headers_for_browsers(running: Running) -> None:
    for answer in (running.client.get("/"), running.client.get("/nothing"), running.post("/translate", q="sun")):
        assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["x-frame-options"] == "DENY"
        assert "unsafe" not in answer.headers["content-security-policy"] and "server" not in answer.headers


@pytest.mark.parametrize("logs", ["requests", "texts"])
def test_logs_are_without_texts_unless_asked_for(models: ModelRegistry, caplog: pytest.LogCaptureFixture, logs: str) -> None:
    caplog.set_level(logging.INFO, "qkv.serving")
    with Running(models, logs=logs) as running:
        running.said("/translate", q="sun rain tree", api_key="hidden")
        running.client.get("/secret-path-of-mine?sun")
        running.refused("/translate", q="sun", rain="tree")
    assert "POST /translate 200" in caplog.text and "GET other 404" in caplog.text
    assert ("sun rain tree" in caplog.text) == (logs == "texts")
    assert "hidden" not in caplog.text and "secret-path" not in caplog.text
    for record in caplog.records:
        record.request_id = "a1"
    lines = [TextFormatter().format(record) for record in caplog.records if " other 404 " in record.getMessage()]
    assert lines and not any("  " in line for line in lines), "also where neither caller nor model is known"


def test_who_asks_too_often_is_written_down(models: ModelRegistry, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "qkv.serving")
    with Running(models, logs="requests", keys=(key(rate=1),)) as running:
        for status in (200, 429):
            assert running.post("/translate", q="sun", api_key=KEY).status_code == status
    (refused,) = [line for line in caplog.messages if "/translate 429" in line]
    assert "who=anna" in refused


def test_too_many_connections(models: ModelRegistry) -> None:
    """Whoever comes too late gets 429; health checks get through."""
    with Running(models, connections=2) as running, contextlib.ExitStack() as open_ones:
        running.said("/translate", q="sun")
        clients = [open_ones.enter_context(httpx.Client(base_url=running.url)) for _ in range(4)]
        assert clients[0].get("/models").status_code == 200
        for client in clients[1:]:
            refused = client.post("/translate", json={"q": "sun"})
            assert refused.status_code == 429 and code_of(refused) == "too_many_connections" and refused.headers["retry-after"]
            assert refused.headers["connection"] == "close"
            for path in ("/healthz", "/readyz"):
                answer = client.get(path)
                assert answer.status_code == 200 and answer.headers["connection"] == "close"
        running.said("/translate", q="sun")
        clients[0].close()
        wait_until(lambda: clients[1].get("/models").status_code == 200)


def test_one_address_cannot_take_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "RESERVED", 3)
    monkeypatch.setattr(connections, "RESERVED_PER_ADDRESS", 2)
    limits = ConnectionLimits(ServiceSettings(connections=4, connections_per_address=3, proxies=("10.0.0.9",)), SharedLimits())
    greedy = [limits.take("10.0.0.1") for _ in range(6)]
    assert greedy == [Place.ORDINARY] * 3 + [Place.RESERVED] * 2 + [Place.NONE]
    assert [limits.take("10.0.0.2") for _ in range(3)] == [Place.ORDINARY, Place.RESERVED, Place.NONE]
    for place in greedy:
        limits.free("10.0.0.1", place)
    assert limits.take("10.0.0.3") is Place.ORDINARY
    assert limits.shared.held(f"connections to {Place.ORDINARY}") == 2
    assert [limits.take("10.0.0.9") for _ in range(2)] == [Place.ORDINARY] * 2
    limits.free("10.0.0.3", Place.ORDINARY)
    limits.free("10.0.0.2", Place.ORDINARY)
    assert [limits.take("10.0.0.9") for _ in range(2)] == [Place.ORDINARY] * 2, "all of them, for a trusted proxy"


def test_networks_of_addresses() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:0:0:2") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1") != network_of("10.0.0.2")
    assert network_of("fe80::1%eth0") == "fe80::/64" and network_of("") == ""


def test_addresses_of_one_network_share_a_rate() -> None:
    limits, authenticator = SharedLimits(), Authenticator((), rate=1)
    first, second, other = (authenticator.identify(None, f"2001:db8:0:{end}") for end in ("7::1", "7::2", "8::1"))
    assert (first.name, second.name) == ("2001:db8:0:7::1", "2001:db8:0:7::2"), "the log has the whole address"
    assert first.bucket == second.bucket != other.bucket
    limits.count(first)
    with pytest.raises(RequestError, match="requests a minute"):
        limits.count(second)
    limits.count(other)


def test_answers_do_not_wait_for_acknowledgements(running: Running) -> None:
    """Without TCP_NODELAY every request on a kept connection takes 40 ms."""
    assert running.client.get("/healthz").status_code == 200
    (served, *_) = running.server.server_state.connections
    assert served.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_origins_and_names_are_checked() -> None:
    settings = ServiceSettings(origins=("https://A.org:443", "http://[::1]:8000", "*"), hosts=("A.org", "[::1]", "::2"))
    assert settings.origins == ("https://a.org", "http://[::1]:8000", "*") and settings.hosts == ("a.org", "::1", "::2")
    for origin in ("a.org", "https://a.org/", "https//a.org", "https://a.org,https://b.org", "null", "", "https://ü.org", "**"):
        with pytest.raises(ConfigError, match="scheme://host"):
            parse(ServiceSettings, {"origins": [origin]}, "--set")
    for name in ("https://a.org", "a.org:80", "a:80", "a b", "", "*", "ü.org"):
        with pytest.raises(ConfigError, match="a name or an address alone"):
            parse(ServiceSettings, {"hosts": [name]}, "--set")


def test_a_trusted_proxy_is_an_address_or_a_network() -> None:
    assert ServiceSettings(proxies=("10.1.2.3/8", "::1")).proxies == ("10.0.0.0/8", "::1/128")
    assert ServiceSettings(proxies=("::ffff:10.1.2.3", "::ffff:10.0.0.0/104")).proxies == ("10.1.2.3/32", "10.0.0.0/8")
    for wrong in ("*", "nginx", "10.0.0.0/99", ""):
        with pytest.raises(ValueError, match="an address or a network"):
            ServiceSettings(proxies=(wrong,))


def test_a_proxy_of_ipv4_is_trusted_on_a_socket_of_ipv6(models: ModelRegistry, caplog: pytest.LogCaptureFixture) -> None:
    """There its address is ::ffff:127.0.0.1."""
    caplog.set_level(logging.INFO, "qkv.serving")
    try:
        running = Running(models, host="::", logs="requests", proxies=("127.0.0.0/8",))
    except (ConfigError, OSError):
        pytest.skip("this system has no IPv6")
    with running:
        for header in ({}, {"x-forwarded-for": "192.0.2.7"}):
            assert running.client.post("/translate", json={"q": "sun"}, headers=header).status_code == 200
        assert running.service.limits.held(f"connections to {Place.ORDINARY} of 127.0.0.1") == 1
    callers = [line.partition("who=")[2].split()[0] for line in caplog.messages if "/translate" in line]
    assert callers == ["127.0.0.1", "192.0.2.7"]

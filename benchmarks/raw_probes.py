"""Raw requests that a careless or hostile client may send, each with the statuses that it must get and the connection's end."""

import contextlib
import json
import random
import socket
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

HOST = b"Host: localhost\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"
BODY = json.dumps({"q": "sun"}).encode()
JSON = b"Content-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
INSERTED = [
    b"\r\n", b"\n", b"\r", b"\x00", b":", b" ", b"\t", b"\xff", b"%00", b"chunked", b"0\r\n\r\n", b"HTTP/1.1", HOST, CHUNKED,
    b"Content-Length: 5\r\n", b"Expect: 100-continue\r\n", b"Connection: close\r\n", b"Connection: upgrade\r\nUpgrade: h2c\r\n",
]  # fmt: skip
ANY = -1  # an expected status: whatever is below 500


class Probe(NamedTuple):
    """Data to send on a new connection, and the result."""

    name: str
    pieces: Sequence[bytes]
    statuses: Sequence[int]  # of all responses, in order
    open: bool = False  # whether the connection must answer another request afterwards


def get(path: bytes = b"/healthz", more: bytes = b"", method: bytes = b"GET", version: bytes = b"HTTP/1.1") -> bytes:
    """Return a request without a body."""
    return method + b" " + path + b" " + version + b"\r\n" + HOST + more + b"\r\n"


def post(more: bytes, body: bytes = BODY, version: bytes = b"HTTP/1.1") -> bytes:
    """Return a request for a translation with these headers."""
    return b"POST /translate " + version + b"\r\n" + HOST + JSON + more + b"\r\n" + body


def sized(body: bytes = BODY, more: bytes = b"") -> bytes:
    """Return a request for a translation with its Content-Length."""
    return post(b"Content-Length: %d\r\n" % len(body) + more, body)


def chunks(*parts: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    """Return a body in chunks."""
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + end


def probes() -> Iterator[Probe]:
    """Yield all of them."""
    yield from _request_lines()
    yield from _hosts()
    yield from _headers()
    yield from _lengths()
    yield from _chunks()
    yield from _sequences()
    yield from _answered()


def _request_lines() -> Iterator[Probe]:
    refused = {
        "nothing but empty lines": b"\r\n\r\n",
        "one word": b"GET\r\n\r\n",
        "no version": b"GET /healthz\r\n\r\n",
        "two spaces": b"GET  /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
        "a tab": b"GET\t/healthz HTTP/1.1\r\n" + HOST + b"\r\n",
        "a space in the path": get(b"/health z"),
        "a lower-case version": get(version=b"http/1.1"),
        "a version of the future": get(version=b"HTTP/9.9"),
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 40 + b"\r\n\r\n",
        "a NUL in the path": get(b"/health\x00z"),
        "a NUL in the method": get(method=b"G\x00T"),
        "letters beyond ASCII in the path": get("/gesundheitsprüfung".encode()),
        "a bare CR": b"GET /healthz HTTP/1.1\rHost: localhost\r\n\r\n",
    }
    for name, data in refused.items():
        yield Probe(name, [data], [400])
    yield Probe("a path of 40,000 characters", [get(b"/" + b"a" * 40_000)], [431])
    answered = {
        "a path of 20,000 characters": (get(b"/" + b"a" * 20_000), 404),
        "a method of 20,000 characters": (get(method=b"A" * 20_000), 405),
        "a lower-case method": (get(method=b"get"), 405),
        "an encoded NUL": (get(b"/%00"), 404),
        "an encoded NUL in a file's name": (get(b"/page/%00.css"), 404),
        "a file's name of 5,000 characters": (get(b"/page/" + b"a" * 5_000), 404),
        "encoded line ends": (get(b"/%0d%0aX-Evil:%201"), 404),
        "a folder above": (get(b"/page/../../../../../etc/passwd"), 404),
        "an encoded folder above": (get(b"/page/%2e%2e%2f%2e%2e%2fserver.py"), 404),
        "a backslash": (get(b"/page/..\\..\\server.py"), 404),
        "an absolute URI": (get(b"http://localhost/healthz"), ANY),
        "an absolute URI of another host": (get(b"http://evil.org/translate"), ANY),
        "two slashes": (get(b"//evil.org/healthz"), 404),
        "a percent sign without digits": (get(b"/%zz%"), 404),
        "a fragment": (get(b"/healthz#fragment"), 404),
        "a query that is not UTF-8": (get(b"/healthz?%ff=%00&&=&a"), 200),
        "an asterisk": (get(b"*", method=b"OPTIONS"), ANY),
        "CONNECT": (get(b"evil.org:443", method=b"CONNECT"), ANY),
        "TRACE": (get(method=b"TRACE"), 405),
        "a later minor version": (get(version=b"HTTP/1.7"), 200),
    }
    for name, (data, status) in answered.items():
        yield Probe(name, [data], [status], open=True)


def _hosts() -> Iterator[Probe]:
    def asked(host: bytes) -> list[bytes]:
        return [b"GET /healthz HTTP/1.1\r\n" + host + b"\r\n"]

    yield Probe("no Host", asked(b""), [400])
    yield Probe("two Hosts", asked(HOST + b"Host: evil.org\r\n"), [400])
    yield Probe("the same Host twice", asked(HOST * 2), [400])
    yield Probe("a Host in two lines", asked(b"Host: localhost\r\n @evil.org\r\n"), [400], open=True)
    wrong = (
        b"localhost:80@evil.org", b"evil@localhost", b"localhost evil.org", b"localhost,evil.org", b"localhost/evil", b"[::1",
        b"localhost:80:80", b"localhost:x", b"localhost:-1", b"localhost#evil", b"http://localhost", b"localh\xf6st", b"*",
    )  # fmt: skip
    for host in wrong:
        yield Probe(f"Host: {host.decode('latin-1')}", asked(b"Host: " + host + b"\r\n"), [400], open=True)
    for host in (b"evil.org", b"localhost.evil.org", b"127.0.0.1.nip.io:80", b""):
        yield Probe(f"Host: {host.decode()}", asked(b"Host: " + host + b"\r\n"), [421], open=True)
    for host in (b"LOCALHOST:80", b"127.0.0.1", b"[::1]:8000", b"localhost:"):
        yield Probe(f"Host: {host.decode()}", asked(b"Host: " + host + b"\r\n"), [200], open=True)


def _headers() -> Iterator[Probe]:
    refused = {
        "a space before the colon": b"X : 1\r\n",
        "no colon": b"evil\r\n",
        "no name": b": evil\r\n",
        "a NUL in a value": b"X: a\x00b\r\n",
        "a bare CR in a value": b"X: a\rb\r\n",
        "a line feed in a name": b"X\n: 1\r\n",
        "a name beyond ASCII": "Größe: 1\r\n".encode(),
    }
    for name, header in refused.items():
        yield Probe(name, [get(more=header)], [400])
    yield Probe("a fold before the first header", [b"GET /healthz HTTP/1.1\r\n X: 1\r\n" + HOST + b"\r\n"], [400])
    yield Probe("headers of 40,000 bytes in one piece", [get(more=b"X: " + b"a" * 40_000 + b"\r\n")], [431])
    yield Probe("headers of 200,000 bytes in one piece", [get(more=b"X: " + b"a" * 200_000 + b"\r\n")], [431])
    yield Probe("a fold of 40,000 spaces", [get(more=b"X: a\r\n" + b" " * 40_000 + b"b\r\n")], [431])
    yield Probe("headers of 100,000 bytes in pieces", [HEALTH[:-2], *[b"X: " + b"a" * 9_995 + b"\r\n"] * 10, b"\r\n"], [431])
    yield Probe("headers without an end", [HEALTH[:-2] + b"X: " + b"a" * 1_000_000], [431])
    yield Probe("1,000 headers", [get(more=b"X: 1\r\n" * 1000)], [431])
    answered = {
        "a folded value": b"X: a\r\n b\r\n\tc\r\n",
        "control characters in a value": b"X: a\x01\x7fb\r\n",
        "letters beyond ASCII in a value": b"Cookie: \xff\xfe=\x80\r\n",
        "an odd Connection": b"Connection: , ,x;y=,\r\n",
        "an upgrade to a WebSocket": b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n",
        "an upgrade to HTTP/2": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
        "an odd Authorization": b"Authorization: Bearer \xff\xfe\r\n",
        "another Expect": b"Expect: the-unexpected\r\n",
    }
    for name, header in answered.items():
        yield Probe(name, [get(more=header)], [200], open=True)
    yield Probe("line feeds alone", [HEALTH.replace(b"\r\n", b"\n")], [200], open=True)
    ranges = b",".join([b"0-1"] * 2000)
    yield Probe("2,000 ranges", [get(b"/page/docs.css", b"Range: bytes=" + ranges + b"\r\n")], [ANY], open=True)
    yield Probe("an odd range", [get(b"/page/docs.css", b"Range: bytes=9-1,a-,-\r\n")], [ANY], open=True)
    yield Probe("an odd date", [get(b"/page/docs.css", b"If-Modified-Since: never\r\n")], [200], open=True)


def _lengths() -> Iterator[Probe]:
    size, smuggled = b"Content-Length: %d\r\n" % len(BODY), b"0\r\n\r\n" + HEALTH
    yield Probe("Content-Length and Transfer-Encoding", [post(size + CHUNKED, chunks(BODY) + HEALTH)], [400])
    yield Probe("Transfer-Encoding and Content-Length", [post(CHUNKED + b"Content-Length: 4\r\n", smuggled)], [400])
    yield Probe("both on GET", [get(more=b"Content-Length: 5\r\n" + CHUNKED) + smuggled], [400])
    yield Probe("chunks in HTTP/1.0", [post(CHUNKED, chunks(BODY), b"HTTP/1.0")], [400])
    for value in (b"gzip", b"gzip, chunked", b"chunked, chunked", b"xchunked", b"chunked;q=1", b"identity", b"\x0bchunked"):
        yield Probe(f"Transfer-Encoding: {value!r}", [post(b"Transfer-Encoding: " + value + b"\r\n", smuggled)], [400])
    yield Probe("Transfer-Encoding twice", [post(CHUNKED * 2, smuggled)], [400])
    yield Probe("Transfer-Encoding : chunked", [post(b"Transfer-Encoding : chunked\r\n", smuggled)], [400])
    for value in (b"-1", b"+12", b"1 2", b"0x0c", b"12.0", b"12,13", b"", b"1" * 21, b"\xb9"):
        yield Probe(f"Content-Length: {value!r}", [post(b"Content-Length: " + value + b"\r\n")], [400])
    yield Probe("two lengths", [post(size + b"Content-Length: 4\r\n")], [400])
    yield Probe("the same length twice", [post(size * 2)], [200], open=True)
    yield Probe("a folded length", [post(b"Content-Length:\r\n %d\r\n" % len(BODY))], [200], open=True)
    yield Probe("a huge length", [post(b"Content-Length: 99999999999999999999\r\n")], [413])
    yield Probe("more than announced", [sized() + b"evil\r\n\r\n"], [200, 400])
    yield Probe("no length", [post(b"", b"")], [400], open=True)


def _chunks() -> Iterator[Probe]:
    for name, body in {
        "a size that is no number": b"zz\r\n" + BODY + b"\r\n0\r\n\r\n",
        "a negative size": b"-5\r\nhello\r\n0\r\n\r\n",
        "a size with 0x": b"0x5\r\nhello\r\n0\r\n\r\n",
        "an empty size": b"\r\nhello\r\n0\r\n\r\n",
        "a size of 30 digits": b"F" * 30 + b"\r\nhello\r\n0\r\n\r\n",
        "no line end after a chunk": b"5\r\nhelloworld\r\n0\r\n\r\n",
        "a line feed after a size": b"5\nhello\r\n0\r\n\r\n",
        "a line feed in an extension": b"5;a\nb\r\nhello\r\n0\r\n\r\n",
        "a trailer without a colon": chunks(BODY, end=b"0\r\nevil\r\n\r\n"),
        "30,000 chunks of a byte": chunks(*[b" "] * 30_000),
    }.items():
        yield Probe(f"chunks: {name}", [post(CHUNKED, body)], [400])
    for name, body in {
        "one byte each": chunks(*(bytes([byte]) for byte in BODY)),
        "extensions": b"%x;a=b;c\r\n%b\r\n0;d\r\n\r\n" % (len(BODY), BODY),
        "trailers": chunks(BODY, end=b"0\r\nContent-Length: 7\r\nHost: evil.org\r\n\r\n"),
        "an extension of 10,000 bytes": b"%x;%b\r\n%b\r\n0\r\n\r\n" % (len(BODY), b"a" * 10_000, BODY),
    }.items():
        yield Probe(f"chunks: {name}", [post(CHUNKED, body)], [200], open=True)
    yield Probe("an unread chunked body", [get(more=CHUNKED) + chunks(b"hello")], [200], open=True)


def _sequences() -> Iterator[Probe]:
    yield Probe("three requests at once", [HEALTH * 3], [200] * 3, open=True)
    yield Probe("a body, then another request", [sized() + HEALTH], [200, 200], open=True)
    yield Probe("chunks, then another request", [post(CHUNKED, chunks(BODY)) + HEALTH], [200, 200], open=True)
    yield Probe("100 requests at once", [HEALTH * 100], [200] * 100, open=True)
    yield Probe("a request, then nonsense", [HEALTH + b"evil\r\n\r\n"], [200, 400])
    yield Probe("a request, then an ambiguous one", [sized() + post(b"Content-Length: 9\r\n" + CHUNKED)], [200, 400])
    yield Probe("a request that closes, then another", [get(more=b"Connection: close\r\n") + HEALTH], [200])
    yield Probe("a refused body, then another request", [sized(b"{}") + HEALTH], [400, 200], open=True)
    yield Probe(
        "GET with a body, then another request", [get(more=b"Content-Length: 5\r\n") + b"hello" + HEALTH], [200, 200], True
    )
    yield Probe("an unknown path with a body", [sized().replace(b"/translate", b"/nothing") + HEALTH], [404, 200], open=True)
    yield Probe("HEAD, then GET", [get(method=b"HEAD") + HEALTH], [200, 200], open=True)
    yield Probe("byte by byte", [bytes([byte]) for byte in HEALTH], [200], open=True)
    yield Probe("Expect: 100-continue", [sized(more=b"Expect: 100-continue\r\n")], [100, 200], open=True)
    too_large = b"Content-Length: 999999999\r\nExpect: 100-continue\r\n"
    yield Probe("Expect: 100-continue before a huge body", [post(too_large, b"")], [413])
    yield Probe("HTTP/1.0", [get(version=b"HTTP/1.0")], [200])
    yield Probe("HTTP/1.0 that keeps alive", [get(more=b"Connection: keep-alive\r\n", version=b"HTTP/1.0")], [200])


def _answered() -> Iterator[Probe]:
    for path in (b"/healthz", b"/readyz", b"/", b"/docs", b"/models", b"/page/docs.css"):
        yield Probe(f"HEAD {path.decode()}", [get(path, method=b"HEAD")], [200], open=True)
    yield Probe("HEAD of what is posted", [get(b"/translate", method=b"HEAD")], [405], open=True)
    for media_type in (b"multipart/form-data; boundary=x", b"text/plain", b"application/json\x80", b""):
        data = sized().replace(b"application/json", media_type)
        yield Probe(f"Content-Type: {media_type!r}", [data], [415], open=True)
    yield Probe("a compressed body", [sized(b"\x1f\x8b\x08\x00", b"Content-Encoding: gzip\r\n")], [400], open=True)
    yield Probe("a body of NULs", [sized(b"\x00" * 100)], [400], open=True)


def mutated(seed: int) -> Iterator[bytes]:
    """Yield probes with random changes, without end: parts left out, repeated and replaced, and what matters to HTTP put in."""
    rng = random.Random(seed)
    known = [data for probe in probes() if len(data := b"".join(probe.pieces)) < 3000]
    while True:
        data = bytearray(rng.choice(known) + (rng.choice(known) if rng.random() < 0.3 else b""))
        for _ in range(rng.randint(1, 4)):
            place, end = rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)
            change = rng.choice([b"", bytes([rng.randrange(256)]), rng.choice(INSERTED), bytes(data[place:end][:200])])
            data[place : place + rng.choice([0, 0, 1, 8])] = change
        yield bytes(data)


def send_mutated(data: bytes, port: int) -> list[int]:
    """Send data on a new connection, end it, and return the statuses of all responses."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        reader = ResponseReader(connection)
        with contextlib.suppress(OSError):  # the service may have closed it
            connection.sendall(data)
            connection.sendall(b"\r\n\r\n")  # which is not HTTP, and ends a request that has not
            connection.settimeout(0.05)
        statuses = []
        with contextlib.suppress(TimeoutError, ValueError, IndexError):  # the last two: after a response to HEAD, without a body
            while (status := reader.next()) is not None:
                statuses.append(status)
        return statuses


class Outcome(NamedTuple):
    """What came back for a probe."""

    statuses: list[int]
    open: bool  # whether the connection answered one more request
    seconds: float


def send_probe(probe: Probe, port: int, timeout: float = 20.0) -> Outcome:
    """Send a probe on a new connection, read the responses that it must get, and see whether the connection is still open."""
    started = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(ConnectionError):  # it may be refused before all is sent
            for piece in probe.pieces:
                connection.sendall(piece)
        reader = ResponseReader(connection)
        head = probe.pieces[0].startswith(b"HEAD ")
        statuses = [found for number in range(len(probe.statuses)) if (found := reader.next(head and number == 0))]
        with contextlib.suppress(ConnectionError):
            connection.sendall(HEALTH)
        last = reader.next()
        return Outcome(statuses + [last] * (last not in (None, 200)), last == 200, time.perf_counter() - started)


class ResponseReader:
    """Reads responses from a connection, one after another."""

    def __init__(self, connection: socket.socket):
        self.connection, self.data = connection, b""

    def next(self, head: bool = False) -> int | None:
        """Return the status of the next response, None at the end of the connection; `head`: it has no body."""
        while b"\r\n\r\n" not in self.data:
            if not self._read():
                return None
        start, _, self.data = self.data.partition(b"\r\n\r\n")
        status = int(start.split(b" ")[1])
        headers = dict(line.lower().split(b": ", 1) for line in start.split(b"\r\n")[1:] if b": " in line)
        if headers.get(b"transfer-encoding") == b"chunked" and not head:
            while b"0\r\n\r\n" not in self.data and self._read():
                pass
            self.data = self.data.partition(b"0\r\n\r\n")[2]
            return status
        size = 0 if head or status < 200 else int(headers.get(b"content-length", b"0"))
        while len(self.data) < size and self._read():
            pass
        self.data = self.data[size:]
        return status

    def _read(self) -> bool:
        try:
            data = self.connection.recv(65536)
        except ConnectionError:
            return False
        self.data += data
        return bool(data)


def faults(probe: Probe, outcome: Outcome) -> str:
    """Return what is wrong with an outcome; nothing where it is right."""
    statuses = outcome.statuses
    right = len(statuses) == len(probe.statuses) and all(
        found < 500 if wanted == ANY else found == wanted for found, wanted in zip(statuses, probe.statuses, strict=True)
    )
    if right and outcome.open == probe.open:
        return ""
    wanted = f"{list(probe.statuses)}, then {'open' if probe.open else 'closed'}"
    return f"{probe.name}: got {statuses}, then {'open' if outcome.open else 'closed'}; wanted {wanted}"

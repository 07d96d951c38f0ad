"""An S3 server on this machine (moto's, in a process of its own) behind a proxy that can be slow, busy, or cut answers off."""

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

BUCKET = "corpora"
BUSY, CUT, RESET, SLOW, FORBIDDEN = "busy", "cut", "reset", "slow", "forbidden"
FORBIDDEN_BODY = b'<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>'
BUSY_BODY = b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>'


class ObjectStore:
    """The proxy in front of the server: `faults` happen to the next requests, `always` to all; `requests` are those it saw."""

    def __init__(self, server: int):
        self.server = server
        self.faults: deque[str] = deque()
        self.always = ""
        self.only = ""  # method that faults happen to, where given
        self.requests: list[tuple[str, str]] = []  # method, path
        self.proxy = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": self}))
        self.proxy.daemon_threads = True
        Thread(target=self.proxy.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.proxy.server_port}"

    def reset(self) -> None:
        self.faults.clear()
        self.always = self.only = ""
        self.requests.clear()

    def next_fault(self, method: str) -> str:
        if self.only and method != self.only:
            return ""
        return self.faults.popleft() if self.faults else self.always


class _Handler(BaseHTTPRequestHandler):
    """Forwards a request, or spoils it."""

    store: ObjectStore
    protocol_version = "HTTP/1.1"

    def forward(self) -> None:
        body = self._body()
        self.store.requests.append((self.command, self.path))
        fault = self.store.next_fault(self.command)
        if fault == RESET:
            self.close_connection = True
            return
        if fault in (BUSY, FORBIDDEN):
            self._send(503 if fault == BUSY else 403, [], BUSY_BODY if fault == BUSY else FORBIDDEN_BODY)
            return
        if fault == SLOW:
            time.sleep(1)
        connection = http.client.HTTPConnection("127.0.0.1", self.store.server)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "transfer-encoding"}
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        kept = [(n, v) for n, v in answer.getheaders() if n.lower() not in ("content-length", "transfer-encoding", "connection")]
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        self._send(answer.status, [*kept, ("Content-Length", length or "0")], content, cut=fault == CUT)

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def _send(self, status: int, headers: list[tuple[str, str]], content: bytes, cut: bool = False) -> None:
        self.send_response(status)
        if not headers:
            headers = [("Content-Length", str(len(content)))]
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if cut else content)
        self.close_connection = self.close_connection or cut

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def running_store() -> Iterator[ObjectStore]:
    """Start the server and the proxy, with one empty bucket."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as server:
        try:
            _wait_for(port, server)
            _ask(port, "PUT", f"/{BUCKET}")
            yield ObjectStore(port)
        finally:
            server.kill()


def _wait_for(port: int, server: "subprocess.Popen[bytes]") -> None:
    for _ in range(600):
        if server.poll() is not None:
            pytest.skip("moto's server does not start here")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.1):
            return
        time.sleep(0.1)
    raise TimeoutError("moto's server does not answer")


def _ask(port: int, method: str, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    signed = "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request"
    connection.request(method, path, headers={"Authorization": signed, "x-amz-acl": "public-read"})
    assert connection.getresponse().status < 300
    connection.close()


def environment(store: ObjectStore) -> dict[str, str]:
    """Return the variables with which clients reach the store."""
    return {
        "AWS_ENDPOINT_URL": store.address,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }

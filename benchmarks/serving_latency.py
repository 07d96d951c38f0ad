"""Latency of single requests on a connection that stays open, and on new ones, beside a checkout of an older version.

    python benchmarks/serving_latency.py RUN [--before CHECKOUT] [--requests 200]

RUN is a folder that `qkv serve` takes. Each service runs in a process of its own on this machine; one client asks for /healthz,
one request after another. `--before` is a checkout of another version, which is measured in the same way, in turn with this one.
"""

import argparse
import contextlib
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
ROUNDS = 3


def read_response(connection: socket.socket) -> bytes:
    """Read one response with a Content-Length."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    found = re.search(rb"content-length: (\d+)", head.lower())
    while found and len(body) < int(found[1]):
        body += _some(connection)
    return head + b"\r\n\r\n" + body


def _some(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise SystemExit("the service closed the connection")
    return data


def keep_alive_times(port: int, requests: int, request: bytes = REQUEST) -> list[float]:
    """Return the seconds of each of some requests on one connection; the client waits for no answer to its packets."""
    times = []
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(requests):
            started = time.perf_counter()
            connection.sendall(request)
            read_response(connection)
            times.append(time.perf_counter() - started)
    return times


def new_connection_times(port: int, requests: int, request: bytes = REQUEST) -> list[float]:
    """Return the seconds of each of some requests, each on a connection of its own."""
    times = []
    for _ in range(requests):
        started = time.perf_counter()
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(request)
            read_response(connection)
        times.append(time.perf_counter() - started)
    return times


def summary(times: list[float]) -> dict[str, float]:
    """Return the median and the 99th percentile, in ms."""
    cuts = statistics.quantiles(times, n=100)
    return {"p50 ms": round(1000 * cuts[49], 2), "p99 ms": round(1000 * cuts[98], 2)}


@contextlib.contextmanager
def service(
    runs: Sequence[Path], checkout: Path, *settings: str, device: str = "cpu", options: Sequence[str] = ()
) -> Iterator[int]:
    """Serve runs with the code of a checkout; yield the port."""
    command = [sys.executable, "-m", "qkv", "serve", *map(str, runs), "--port", "0", "--device", device, *options]
    command += [part for setting in settings for part in ("--set", setting)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(checkout / "src"), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"listens on http://\S+:(\d+)", line):
                # Nobody would notice a service that waits because its messages are not read.
                threading.Thread(target=sys.stderr.writelines, args=(process.stderr,), daemon=True).start()
                yield int(found[1])
                return
        raise SystemExit("the service did not start")
    finally:
        process.terminate()
        process.wait(timeout=60)


def main() -> None:
    """Measure each version ROUNDS times, in turn, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--requests", type=int, default=200)
    given = parser.parse_args()
    checkouts = {"now": Path(__file__).parents[1], **({"before": given.before} if given.before else {})}
    kept: dict[str, list[float]] = {name: [] for name in checkouts}
    new: dict[str, list[float]] = {name: [] for name in checkouts}
    for _ in range(ROUNDS):
        for name, checkout in checkouts.items():
            with service([given.run.resolve()], checkout.resolve(), "logs=none") as port:
                keep_alive_times(port, 20)  # warm up
                kept[name] += keep_alive_times(port, given.requests)
                new[name] += new_connection_times(port, given.requests)
    result = {name: {"keep-alive": summary(kept[name]), "new connections": summary(new[name])} for name in checkouts}
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()

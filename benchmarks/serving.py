"""Load test of a served translator: correct answers, throughput, latency, overload and memory.

    python benchmarks/serving.py RUN FILE --out FOLDER [--clients 64] [--seconds 60] [--slow 16] [--overload 30] [--soak 600]

FILE has a text a line, or pairs, of which the first column is used. The service runs in a process of its own on this machine;
clients use the loopback. The phases: one request after another, without batching; then many clients at once, each of which
sends a request as soon as it is answered, every answer compared with that of `qkv translate`; then the same clients beside slow
ones, half of which take seconds to send a request and half to read an answer; then requests at twice the measured rate, with a
short queue; then the same clients again, to see that the service has recovered; then a soak. Writes FOLDER/serving.json and
FOLDER/serving.md. Memory grows at first, while oneDNN sees new numbers of rows, and must be flat after.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from qkv.base.hardware import cpu_cores
from qkv.inference.load import load_translator
from qkv.text.files import read_lines

QUEUE = 128  # of the overloaded service
HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
EVERY = 1.0  # seconds between two samples of the memory
SLOW_SECONDS, SLOW_PIECES = 4.0, 40  # in which a slow client sends a request or reads an answer, and in how many pieces


@dataclass
class PhaseResult:
    """The results of one phase."""

    seconds: float = 0.0
    times: list[float] = field(default_factory=list)  # seconds of the answered requests
    statuses: Counter[str] = field(default_factory=Counter)
    wrong: int = 0  # answers that differ from `qkv translate`
    memory: list[int] = field(default_factory=list)  # of the service in kB, sampled every second

    def summary(self) -> dict[str, Any]:
        """Return the numbers for the report."""
        cuts = statistics.quantiles(self.times, n=100) if len(self.times) > 1 else [0.0] * 99
        return {
            "requests": sum(self.statuses.values()),
            "statuses": dict(self.statuses),
            "wrong": self.wrong,
            "answered a second": round(len(self.times) / self.seconds, 1),
            **{f"p{p} ms": round(1000 * cuts[p - 1], 1) for p in (50, 95, 99)},
            "memory MB": [round(kb / 1024) for kb in _spaced(self.memory, 11)],
        }


def _spaced(values: list[int], many: int) -> list[int]:
    """Return `many` evenly spaced values, or all of them if there are fewer."""
    return values if len(values) <= many else [values[i * (len(values) - 1) // (many - 1)] for i in range(many)]


class Client:
    """A keep-alive connection for one request at a time."""

    def __init__(self, port: int):
        self.port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None
        self.closing = False  # whether the server closes the connection after its last answer

    async def translate(self, text: str) -> tuple[int, str]:
        """Return the status and the translation, which is empty for an error."""
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        assert self.reader is not None
        body = json.dumps({"q": text}).encode()
        self.writer.write(HEAD % len(body) + body)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = re.search(r"content-length: (\d+)", head)
        self.closing = "connection: close" in head
        answer = json.loads(await self.reader.readexactly(int(length[1]) if length else 0))
        return int(head.split()[1]), answer.get("translatedText", "")

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


class SlowClient(Client):
    """A client that opens a connection for each request, and sends it or reads its answer in small pieces."""

    def __init__(self, port: int, sends_slowly: bool):
        super().__init__(port)
        self.sends_slowly = sends_slowly

    async def translate(self, text: str) -> tuple[int, str]:
        """Return the status and the translation."""
        loop, body = asyncio.get_running_loop(), json.dumps({"q": text}).encode()
        request = (HEAD % len(body)).replace(b"Host:", b"Connection: close\r\nHost:") + body
        with socket.socket() as connection:
            connection.setblocking(False)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the least there is: answers wait in the service
            await loop.sock_connect(connection, ("127.0.0.1", self.port))
            size = -(-len(request) // SLOW_PIECES) if self.sends_slowly else len(request)
            for start in range(0, len(request), size):
                await loop.sock_sendall(connection, request[start : start + size])
                await asyncio.sleep(SLOW_SECONDS / SLOW_PIECES if self.sends_slowly else 0)
            answer, size = b"", 1 << 16 if self.sends_slowly else 32
            while piece := await loop.sock_recv(connection, size):
                answer += piece
                await asyncio.sleep(0 if self.sends_slowly else SLOW_SECONDS / SLOW_PIECES)
        head, _, content = answer.partition(b"\r\n\r\n")
        if not content:
            raise ConnectionResetError
        return int(head.split()[1]), json.loads(content).get("translatedText", "")


class Clients:
    """Clients that request translations of texts in turn, and compare them with the expected ones."""

    def __init__(self, port: int, pid: int, expected: dict[str, str]):
        self.port, self.pid, self.expected = port, pid, expected  # pid: of the supervisor
        self.texts, self.turn = list(expected), count()

    async def request(self, client: Client, result: PhaseResult) -> None:
        text = self.texts[next(self.turn) % len(self.texts)]
        started = time.perf_counter()
        try:
            status, found = await client.translate(text)
        except (OSError, asyncio.IncompleteReadError) as error:
            result.statuses[type(error).__name__] += 1
            client.close()
            client.writer = None
            return
        result.statuses[str(status)] += 1
        if status == 200:
            result.times.append(time.perf_counter() - started)
            result.wrong += found != self.expected[text]

    async def together(self, clients: int, seconds: float) -> PhaseResult:
        """Run a number of clients, each of which sends a request as soon as it is answered."""
        ends = time.perf_counter() + seconds

        async def one(result: PhaseResult) -> None:
            client = Client(self.port)
            while time.perf_counter() < ends:
                await self.request(client, result)
            client.close()

        return await self._watched(lambda result: asyncio.gather(*(one(result) for _ in range(clients))))

    async def beside_slow(self, clients: int, slow: int, seconds: float) -> tuple[PhaseResult, PhaseResult]:
        """Run clients beside slow ones; return the results of both."""
        ends, result = time.perf_counter() + seconds, PhaseResult()

        async def one(number: int) -> None:
            while time.perf_counter() < ends:
                await self.request(SlowClient(self.port, sends_slowly=number % 2 == 0), result)

        others = asyncio.gather(*(one(number) for number in range(slow)))
        beside = await self.together(clients, seconds)
        await others
        result.seconds = time.perf_counter() - ends + seconds
        return beside, result

    async def at_rate(self, rate: float, seconds: float) -> PhaseResult:
        """Send requests at a rate, whether or not earlier ones are answered; each uses a connection of its own meanwhile."""
        free: list[Client] = []

        async def one(result: PhaseResult) -> None:
            client = free.pop() if free else Client(self.port)
            await self.request(client, result)
            free.append(client)

        async def all_of_them(result: PhaseResult) -> None:
            started, tasks = time.perf_counter(), []
            for number in range(int(rate * seconds)):
                await asyncio.sleep(max(0.0, started + number / rate - time.perf_counter()))
                tasks.append(asyncio.create_task(one(result)))
            await asyncio.gather(*tasks)
            for client in free:
                client.close()

        return await self._watched(all_of_them)

    async def _watched(self, act: Callable[[PhaseResult], Awaitable[Any]]) -> PhaseResult:
        """Run a phase, and sample the memory of the service meanwhile."""
        result, started = PhaseResult(), time.perf_counter()
        watching = asyncio.create_task(self._watch(result))
        await act(result)
        result.seconds = time.perf_counter() - started
        watching.cancel()
        result.memory.append(resident(self.pid))
        return result

    async def _watch(self, result: PhaseResult) -> None:
        while True:
            result.memory.append(resident(self.pid))
            await asyncio.sleep(EVERY)


def processes_of(leader: int) -> list[int]:
    """Return the processes of a service, which are in the group that its supervisor leads."""
    found = []
    for each in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()):
        with contextlib.suppress(ProcessLookupError):
            found += [each] if os.getpgid(each) == leader else []
    return found


def resident(leader: int) -> int:
    """Return the memory of all processes of a service in kB; a page that several have in common counts once."""
    total = 0
    for each in processes_of(leader):
        with contextlib.suppress(OSError):  # it has just ended
            pss = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{each}/smaps_rollup").read_text(), re.MULTILINE)
            total += int(pss[1]) if pss else 0
    return total


@contextlib.contextmanager
def served(run: Path, expected: dict[str, str], log: Path, *settings: str) -> Iterator[Clients]:
    """Start a service in a process of its own; stop it by SIGTERM at the end, and require exit code 0."""
    options = [part for setting in settings for part in ("--set", setting)]
    command = [sys.executable, "-m", "qkv", "serve", str(run), "--port", "0", "--device", "cpu", *options]
    with log.open("w") as written:
        process = subprocess.Popen(command, stderr=written, start_new_session=True)
    try:
        yield Clients(_port(process, log), process.pid, expected)
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=60)
    if code:
        raise SystemExit(f"the service ended with {code}; see {log}")


def _port(process: "subprocess.Popen[bytes]", log: Path) -> int:
    """Wait until a service listens, and return its port."""
    while process.poll() is None:
        if found := re.search(r"listens on http://\S+:(\d+)", log.read_text()):
            return int(found[1])
        time.sleep(0.1)
    raise SystemExit(f"the service did not start:\n{log.read_text()}")


def main() -> None:
    """Run all phases."""
    given = _arguments()
    given.out.mkdir(parents=True, exist_ok=True)
    texts = list(dict.fromkeys(line.split("\t")[0].strip() for line in read_lines(given.file) if line))[: given.texts]
    expected = dict(zip(texts, load_translator(given.run, "cpu").translate(texts), strict=True))
    log, result = given.out / "service.log", {"cores": cpu_cores(), "clients": given.clients, "texts": len(texts)}
    with served(given.run, expected, log, "wait=0", "batch_tokens=1", "logs=none") as clients:
        result["one after the other"] = asyncio.run(clients.together(1, min(given.seconds, 20))).summary()
    with served(given.run, expected, log, "logs=none") as clients:
        asyncio.run(clients.together(given.clients, 1))  # warm up
        result["together"] = asyncio.run(clients.together(given.clients, given.seconds)).summary()
        beside, slow = asyncio.run(clients.beside_slow(given.clients, given.slow, given.seconds))
        result[f"beside {given.slow} slow clients"], result["client slow"] = beside.summary(), slow.summary()
    rate = result["together"]["answered a second"]
    with served(given.run, expected, log, f"queue={QUEUE}", "logs=none") as clients:
        result["twice the capacity"] = asyncio.run(clients.at_rate(2 * rate, given.overload)).summary()
        result["recovered"] = asyncio.run(clients.together(given.clients, min(given.seconds, 20))).summary()
        if given.soak:
            result["soak"] = asyncio.run(clients.together(given.clients, given.soak)).summary()
    result["times as fast"] = round(rate / result["one after the other"]["answered a second"], 2)
    (given.out / "serving.json").write_text(json.dumps(result, indent=2) + "\n")
    (given.out / "serving.md").write_text(_table(result))
    print(_table(result))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--slow", type=int, default=16)
    parser.add_argument("--overload", type=float, default=30)
    parser.add_argument("--soak", type=float, default=0)
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    return parser.parse_args()


def _table(result: dict[str, Any]) -> str:
    """Return the table of all phases in Markdown."""
    rows = [
        "| phase | answered a second | p50, p95, p99 ms | statuses | wrong | memory MB, from the first second to the last |",
        "|" + "---|" * 6,
    ]
    for name, summary in result.items():
        if isinstance(summary, dict):
            times = ", ".join(f"{summary[f'p{p} ms']:,}" for p in (50, 95, 99))
            statuses = ", ".join(f"{status}: {number:,}" for status, number in summary["statuses"].items())
            memory = ", ".join(map(str, summary["memory MB"]))
            rows.append(f"| {name} | {summary['answered a second']:,} | {times} | {statuses} | {summary['wrong']} | {memory} |")
    conclusion = f"{result['clients']} clients on {result['cores']} cores: {result['times as fast']} times one after the other"
    return "\n".join(rows) + f"\n\n{conclusion}\n"


if __name__ == "__main__":
    main()

"""A translator served to many at once: whether answers are right, how fast, and what happens beyond the capacity.

    python benchmarks/serving.py RUN FILE --out FOLDER [--clients 64] [--seconds 60] [--overload 30] [--soak 600]

FILE has a text a line, or pairs whose first column is used. The service runs in a process of its own on this machine and is
asked over the loopback. First one request after another, by a service that does not batch; then so many clients at once, each
asking as soon as it is answered, every answer compared with what `qkv translate` gives; then requests at twice the rate that was
reached, with a short queue; then the same clients again, to see that it has recovered; then a soak. Writes FOLDER/serving.json
and FOLDER/serving.md. Memory grows at first, while oneDNN meets new numbers of rows, and must be flat after that.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
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
from qkv.inference.translator import load
from qkv.text.files import read_lines

QUEUE = 128  # of the service that is asked for more than it can do
HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
EVERY = 1.0  # seconds between two looks at the memory


@dataclass
class Seen:
    """What came of the requests of one phase."""

    seconds: float = 0.0
    times: list[float] = field(default_factory=list)  # of those answered
    statuses: Counter[str] = field(default_factory=Counter)
    wrong: int = 0  # answers other than those of `qkv translate`
    memory: list[int] = field(default_factory=list)  # of the service, in kB, every second

    def told(self) -> dict[str, Any]:
        """The figures."""
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
    """So many of the values, from the first to the last; all of them where there are fewer."""
    return values if len(values) <= many else [values[i * (len(values) - 1) // (many - 1)] for i in range(many)]


class Client:
    """A connection that is kept open, and asked one thing at a time."""

    def __init__(self, port: int):
        self.port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def translate(self, text: str) -> tuple[int, str]:
        """The status and the translation, which is empty where there is none."""
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        assert self.reader is not None
        body = json.dumps({"q": text}).encode()
        self.writer.write(HEAD % len(body) + body)
        told = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = re.search(r"content-length: (\d+)", told)
        answer = json.loads(await self.reader.readexactly(int(length[1]) if length else 0))
        return int(told.split()[1]), answer.get("translatedText", "")

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


class Crowd:
    """Clients that ask for translations of texts in turn, and know the right ones."""

    def __init__(self, port: int, pid: int, right: dict[str, str]):
        self.port, self.pid, self.right = port, pid, right
        self.texts, self.turn = list(right), count()

    async def ask(self, client: Client, seen: Seen) -> None:
        text = self.texts[next(self.turn) % len(self.texts)]
        started = time.perf_counter()
        try:
            status, found = await client.translate(text)
        except (OSError, asyncio.IncompleteReadError) as error:
            seen.statuses[type(error).__name__] += 1
            client.close()
            client.writer = None
            return
        seen.statuses[str(status)] += 1
        if status == 200:
            seen.times.append(time.perf_counter() - started)
            seen.wrong += found != self.right[text]

    async def together(self, clients: int, seconds: float) -> Seen:
        """So many clients, each of which asks as soon as it is answered."""
        ends = time.perf_counter() + seconds

        async def one(seen: Seen) -> None:
            client = Client(self.port)
            while time.perf_counter() < ends:
                await self.ask(client, seen)
            client.close()

        return await self._watched(lambda seen: asyncio.gather(*(one(seen) for _ in range(clients))))

    async def at_rate(self, rate: float, seconds: float) -> Seen:
        """So many requests a second, whether or not earlier ones are answered; a connection is used by one at a time."""
        free: list[Client] = []

        async def one(seen: Seen) -> None:
            client = free.pop() if free else Client(self.port)
            await self.ask(client, seen)
            free.append(client)

        async def all_of_them(seen: Seen) -> None:
            started, tasks = time.perf_counter(), []
            for number in range(int(rate * seconds)):
                await asyncio.sleep(max(0.0, started + number / rate - time.perf_counter()))
                tasks.append(asyncio.create_task(one(seen)))
            await asyncio.gather(*tasks)
            for client in free:
                client.close()

        return await self._watched(all_of_them)

    async def _watched(self, act: Callable[[Seen], Awaitable[Any]]) -> Seen:
        """What came of something, with the memory of the service meanwhile."""
        seen, started = Seen(), time.perf_counter()
        watching = asyncio.create_task(self._watch(seen))
        await act(seen)
        seen.seconds = time.perf_counter() - started
        watching.cancel()
        seen.memory.append(resident(self.pid))
        return seen

    async def _watch(self, seen: Seen) -> None:
        while True:
            seen.memory.append(resident(self.pid))
            await asyncio.sleep(EVERY)


def resident(pid: int) -> int:
    """Memory that a process holds, in kB."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) if found else 0


@contextlib.contextmanager
def served(run: Path, right: dict[str, str], log: Path, *settings: str) -> Iterator[Crowd]:
    """A service in a process of its own, stopped by SIGTERM at the end, which must be a good one."""
    options = [part for setting in settings for part in ("--set", setting)]
    command = [sys.executable, "-m", "qkv", "serve", str(run), "--port", "0", "--device", "cpu", *options]
    with log.open("w") as written:
        process = subprocess.Popen(command, stderr=written)
    try:
        yield Crowd(_port(process, log), process.pid, right)
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=60)
    if code:
        raise SystemExit(f"the service ended with {code}; see {log}")


def _port(process: "subprocess.Popen[bytes]", log: Path) -> int:
    """The port on which a service listens, once it does."""
    while process.poll() is None:
        if found := re.search(r"listens on http://\S+:(\d+)", log.read_text()):
            return int(found[1])
        time.sleep(0.1)
    raise SystemExit(f"the service did not start:\n{log.read_text()}")


def main() -> None:
    """All phases, one after the other."""
    given = _arguments()
    given.out.mkdir(parents=True, exist_ok=True)
    texts = list(dict.fromkeys(line.split("\t")[0].strip() for line in read_lines(given.file) if line))[: given.texts]
    right = dict(zip(texts, load(given.run, "cpu").translate(texts), strict=True))
    log, result = given.out / "service.log", {"cores": cpu_cores(), "clients": given.clients, "texts": len(texts)}
    with served(given.run, right, log, "wait=0", "batch_tokens=1", "logs=none") as crowd:
        result["one after the other"] = asyncio.run(crowd.together(1, min(given.seconds, 20))).told()
    with served(given.run, right, log, "logs=none") as crowd:
        asyncio.run(crowd.together(given.clients, 1))  # warm up
        result["together"] = asyncio.run(crowd.together(given.clients, given.seconds)).told()
    rate = result["together"]["answered a second"]
    with served(given.run, right, log, f"queue={QUEUE}", "logs=none") as crowd:
        result["twice the capacity"] = asyncio.run(crowd.at_rate(2 * rate, given.overload)).told()
        result["recovered"] = asyncio.run(crowd.together(given.clients, min(given.seconds, 20))).told()
        if given.soak:
            result["soak"] = asyncio.run(crowd.together(given.clients, given.soak)).told()
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
    parser.add_argument("--overload", type=float, default=30)
    parser.add_argument("--soak", type=float, default=0)
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    return parser.parse_args()


def _table(result: dict[str, Any]) -> str:
    """The figures for people."""
    rows = [
        "| phase | answered a second | p50, p95, p99 ms | statuses | wrong | memory MB, from the first second to the last |",
        "|" + "---|" * 6,
    ]
    for name, told in result.items():
        if isinstance(told, dict):
            times = ", ".join(f"{told[f'p{p} ms']:,}" for p in (50, 95, 99))
            statuses = ", ".join(f"{status}: {number:,}" for status, number in told["statuses"].items())
            memory = ", ".join(map(str, told["memory MB"]))
            rows.append(f"| {name} | {told['answered a second']:,} | {times} | {statuses} | {told['wrong']} | {memory} |")
    summary = f"{result['clients']} clients on {result['cores']} cores: {result['times as fast']} times one after the other"
    return "\n".join(rows) + f"\n\n{summary}\n"


if __name__ == "__main__":
    main()

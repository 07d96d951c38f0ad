"""Faults of a service under load: what is lost, what is wrong, and how long until all is well again.

    python benchmarks/serving_faults.py RUN OTHER FILE --out FOLDER [--workers 4] [--clients 16] [--seconds 10]

RUN and OTHER are translators whose answers differ; FILE has a text a line, or pairs, of which the first column is used. The
service and its clients run on this machine. Each fault happens in the middle of a phase of `--seconds`, and every answer is
compared with those of `qkv translate`; "lost" are requests whose connection broke, "late" are answers of the old model to
requests that began after the change was reported done. Also measured: the memory of 1 and of `--workers` workers, in which a page
that several processes have counts once, and the cost of shared limits. Writes FOLDER/serving-faults.json and .md.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from qkv.inference.load import load_translator
from qkv.serving.authentication import Caller, digest, new_key
from qkv.serving.shared_limits import SharedLimits
from qkv.text.files import read_lines
from serving import Client, processes_of, resident

RUN, OTHER, BROKEN = "run", "other", "broken"  # folders below the root of models
Step = Callable[[], Awaitable[Any]]


class FaultedService:
    """A service of several workers in processes of its own, with clients that compare its answers."""

    def __init__(self, folder: Path, workers: int, expected: dict[str, dict[str, str]], log: Path):
        self.folder, self.expected, self.key, self.log = folder, expected, new_key(), log
        (folder / "admins").write_text(f"admin {digest(self.key)}\n")
        (folder / "serve.yaml").write_text(f"models: {{en: {RUN}}}\nmodel_root: .\nadmin_keys: admins\n")
        with log.open("wb", buffering=0) as written:
            command = ["serve", "--config", str(folder / "serve.yaml"), "--workers", str(workers), "--port", "0"]
            self.process = subprocess.Popen(
                [sys.executable, "-m", "qkv", *command, "--device", "cpu", "--log-format", "json"],
                stderr=written,
                start_new_session=True,
            )
        while (port := self._port()) is None:
            if self.process.poll() is not None:
                raise SystemExit(f"the service did not start; see {log}")
            time.sleep(0.02)
        self.port = port

    def _port(self) -> int | None:
        """Return the port once the service answers; the log may be unreadable, as it is on a full disk."""
        for each in processes_of(self.process.pid):
            with suppress(OSError):
                inodes = [str(link.readlink()) for link in Path(f"/proc/{each}/fd").iterdir()]
                for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
                    fields = line.split()
                    if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                        return int(fields[1].partition(":")[2], 16)
        return None

    async def phase(self, clients: int, seconds: float, fault: Step | None = None) -> dict[str, Any]:
        """Run clients for some seconds, with a fault in the middle; return what they saw."""
        seen, ends, changed = Counter[str](), time.monotonic() + seconds, [float("inf")]
        result: dict[str, Any] = {}

        async def one(number: int) -> None:
            client, texts = Client(self.port), list(self.expected[RUN])
            while time.monotonic() < ends:
                number += 7
                text, began = texts[number % len(texts)], time.monotonic()
                try:
                    status, found = await client.translate(text)
                except (OSError, asyncio.IncompleteReadError):
                    seen["lost"] += 1
                    client.close()
                    client = Client(self.port)
                    continue
                right = next((name for name, answers in self.expected.items() if answers[text] == found), "wrong")
                seen[right if status == 200 else str(status)] += 1
                if began > changed[0] and right == RUN and self.expected[OTHER][text] != found:
                    seen["late"] += 1
                if client.closing:
                    client.close()
                    client = Client(self.port)
            client.close()

        async def interfere() -> None:
            await asyncio.sleep(seconds / 3)
            if fault is not None:
                started = time.monotonic()
                result["what"] = await fault()
                result["seconds"] = round(time.monotonic() - started, 2)
                changed[0] = time.monotonic() if result["what"] == "200" else changed[0]

        await asyncio.gather(interfere(), *(one(number) for number in range(clients)))
        return {**result, "answers": dict(seen)}

    async def kill_worker(self) -> str:
        """Kill a process that is not the supervisor, and wait until the service is ready again."""
        before = set(processes_of(self.process.pid))
        os.kill(max(before), signal.SIGKILL)
        while len(set(processes_of(self.process.pid)) - before) < 1 or not await self.ready():
            await asyncio.sleep(0.01)
        return "another worker is ready"

    async def kill_template(self) -> str:
        """Kill the process that workers are forked from, and wait until the service has changed to a new one."""
        before = set(processes_of(self.process.pid)) - {self.process.pid}
        os.kill(min(before), signal.SIGKILL)  # it is older than its forks
        while before & set(processes_of(self.process.pid)):
            await asyncio.sleep(0.05)
        return "a new template, and new workers"

    async def ready(self) -> bool:
        """Return whether /readyz says so."""
        with suppress(OSError):
            return (await asyncio.to_thread(self.ask, "GET", "/readyz"))[0] == 200
        return False

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send a request as the administrator."""
        import http.client

        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        found = json.loads(answer.read())
        connection.close()
        return answer.status, found

    async def add(self, folder: str) -> str:
        """Serve another folder under the same name."""
        status, answer = await asyncio.to_thread(self.ask, "POST", "/admin/models", {"name": "en", "folder": folder})
        return f"{status} {answer.get('error', '')}".replace(str(self.folder), "").strip()

    async def hang_up(self) -> str:
        """Send SIGHUP, and wait until the models are those of the config file."""
        self.process.send_signal(signal.SIGHUP)
        while not (await asyncio.to_thread(self.ask, "GET", "/admin/models"))[1]["models"]["en"].endswith(f"/{RUN}"):
            await asyncio.sleep(0.05)
        return "the config file is read again"

    def faults(self) -> dict[str, Step | None]:
        """Return the faults, by name."""
        return {
            "nothing": None,
            "a worker is killed": self.kill_worker,
            "the template is killed": self.kill_template,
            "the replacement is broken": lambda: self.add(BROKEN),
            "the model is replaced": lambda: self.add(OTHER),
            "the model is replaced back on SIGHUP": self.hang_up,
        }

    def stop(self) -> int:
        """Stop by SIGTERM; return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=120)


async def main() -> None:
    """Run all phases."""
    given = _arguments()
    given.out.mkdir(parents=True, exist_ok=True)
    folder = given.out / "served"
    shutil.rmtree(folder, ignore_errors=True)
    for name, run in {RUN: given.run, OTHER: given.other, BROKEN: given.other}.items():
        shutil.copytree(run, folder / name, ignore=shutil.ignore_patterns("checkpoints"))
    weights = folder / BROKEN / "model.safetensors"
    os.truncate(weights, weights.stat().st_size // 2)
    texts = list(dict.fromkeys(line.split("\t")[0].strip() for line in read_lines(given.file) if line))[: given.texts]
    expected = {
        name: dict(zip(texts, load_translator(folder / name, "cpu").translate(texts), strict=True)) for name in (RUN, OTHER)
    }
    result: dict[str, Any] = {"cost of a rate limit in us": limit_cost()}
    for workers in sorted({1, given.workers}):
        service = FaultedService(folder, workers, expected, given.out / "service.log")
        await service.phase(given.clients, 3)
        result[f"MB of {workers} workers and the supervisor"] = round(resident(service.process.pid) / 1024)
        if workers == given.workers:
            for name, fault in service.faults().items():
                result[name] = await service.phase(given.clients, given.seconds, fault)
        result[f"exit code with {workers} workers"] = service.stop()
    full = FaultedService(folder, given.workers, expected, Path("/dev/full"))
    result["the disk of the log is full"] = await full.phase(given.clients, given.seconds)
    result["exit code with a full disk"] = full.stop()
    (given.out / "serving-faults.json").write_text(json.dumps(result, indent=2) + "\n")
    lines = [f"| {name} | {json.dumps(value).replace('|', ' ')} |" for name, value in result.items()]
    (given.out / "serving-faults.md").write_text("\n".join(["| what | result |", "|---|---|", *lines]) + "\n")
    print("\n".join(lines))


def limit_cost(times: int = 20_000) -> float:
    """Return the microseconds that the shared rate limit costs a request."""
    limits, caller = SharedLimits(16), Caller("anna", "key anna", 10**9)
    started = time.perf_counter()
    for _ in range(times):
        limits.count(caller)
    return round((time.perf_counter() - started) / times * 1e6, 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("other", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10)
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main())

"""Fairness and throughput of a service under load, beside a checkout of an older version.

    python benchmarks/serving_load.py --translator RUN --gpt RUN --encoder RUN --out FOLDER [--before CHECKOUT] [--seconds 20]

Every service runs in a process of its own, with the three runs; callers have addresses of their own (127.0.0.x). For each of
translation, embeddings and completions: the latency of a caller's short requests alone, then beside a caller who keeps eight of
the largest requests in flight. Then 64 callers, who begin within a second and ask again as soon as they are answered: completions
of 10 to 200 tokens (1:20), streamed, and translations of texts of 1 to 20 sentences; tokens a second and the time to the first
token, which one caller alone shows by completions of 10 tokens: the others are too few for a 99th percentile. At last the same
without a service, 64 prompts or texts at a time, which all stay in the batch to the end.
Writes FOLDER/serving-load.json and prints it as it comes.
"""

import argparse
import asyncio
import contextlib
import json
import random
import re
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serving_latency import service

from qkv.inference.load import load
from qkv.text.files import read_lines

IN_FLIGHT = 8  # requests of the caller who saturates the service
CLIENTS = 64
SHORT_TOKENS = 16  # of a short completion
Body = dict[str, Any]


class Connection:
    """A connection of a caller, which it opens again when it is closed."""

    def __init__(self, port: int, caller: int):
        self.port, self.caller = port, caller
        self.retry_after = 1.0  # seconds, of the last refusal
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def post(self, path: str, body: Body) -> tuple[int, bytes, float]:
        """Send a request; return the status, the body, and the seconds until its first bytes after the head."""
        if self.writer is None:
            address = f"127.0.{self.caller // 250}.{2 + self.caller % 250}"
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(address, 0))
        assert self.reader is not None
        data, started = json.dumps(body).encode(), time.perf_counter()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        self.writer.write(head.encode() + data)
        answer_head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = re.search(r"content-length: (\d+)", answer_head)
        retry = re.search(r"retry-after: (\d+)", answer_head)
        self.retry_after = float(retry[1]) if retry else 1.0
        if length:
            answer = await self.reader.readexactly(int(length[1]))
            first = time.perf_counter() - started
        else:
            answer, first = await self._read_chunks(started)
        if "connection: close" in answer_head:
            self.close()
        return int(answer_head.split()[1]), answer, first

    async def _read_chunks(self, started: float) -> tuple[bytes, float]:
        assert self.reader is not None
        pieces, first = [], 0.0
        while size := int(await self.reader.readline(), 16):
            pieces.append(await self.reader.readexactly(size))
            await self.reader.readexactly(2)
            first = first or time.perf_counter() - started
        await self.reader.readexactly(2)
        return b"".join(pieces), first

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


@dataclass
class Found:
    """What some requests took."""

    times: list[float] = field(default_factory=list)  # seconds until the whole answer
    first: list[float] = field(default_factory=list)  # seconds until the first token
    statuses: Counter[int] = field(default_factory=Counter)
    tokens: int = 0
    seconds: float = 0.0

    def summary(self) -> dict[str, Any]:
        """Return the figures for the report."""
        found: dict[str, Any] = {"statuses": dict(self.statuses), "answers a second": round(len(self.times) / self.seconds, 2)}
        for name, values in (("", self.times), ("first token ", self.first)):
            if len(values) > 1:
                cuts = statistics.quantiles(values, n=100)
                found |= {f"{name}p{p} ms": round(1000 * cuts[p - 1], 1) for p in (50, 99)}
        return found | ({"tokens a second": round(self.tokens / self.seconds)} if self.tokens else {})


async def ask_again(port: int, caller: int, path: str, bodies: Callable[[], Body], ends: float, found: Found) -> None:
    """Send one request after another until a moment."""
    connection = Connection(port, caller)
    with contextlib.closing(connection):  # a caller who is cancelled hangs up
        while time.perf_counter() < ends:
            body, started = bodies(), time.perf_counter()
            status, answer, first = await connection.post(path, body)
            found.statuses[status] += 1
            if status == 200:
                found.times.append(time.perf_counter() - started)
                found.first.append(first)
                found.tokens += _tokens(path, answer)
            elif status == 429:
                await asyncio.sleep(connection.retry_after)


def _tokens(path: str, answer: bytes) -> int:
    """Return the number of tokens that a completion says it has, or of words in a translation."""
    if path == "/v1/completions":
        return sum(map(int, re.findall(rb'"completion_tokens": ?(\d+)', answer)))
    return len(answer.split()) if path == "/translate" else 0


class Loads:
    """The requests of all phases."""

    def __init__(self, sentences: list[str]):
        self.random, self.sentences = random.Random(1), sentences
        self.short: dict[str, Callable[[], Body]] = {
            "/translate": lambda: {"q": self.sentence()},
            "/v1/embeddings": lambda: {"model": "encoder", "input": self.sentence()},
            "/v1/completions": lambda: self.completion(SHORT_TOKENS),
        }
        self.large: dict[str, Callable[[], Body]] = {
            "/translate": lambda: {"q": [self.sentence() for _ in range(250)], "alternatives": 10},
            "/v1/embeddings": lambda: {"model": "encoder", "input": [self.sentence() for _ in range(256)]},
            "/v1/completions": lambda: self.completion(250, 256),
        }

    def sentence(self) -> str:
        return self.random.choice(self.sentences)

    def completion(self, tokens: int, prompts: int = 1, **more: Any) -> Body:
        given = [self.sentence() for _ in range(prompts)]
        return {"model": "gpt", "prompt": given[0] if prompts == 1 else given, "max_tokens": tokens, "seed": 1, **more}

    def streamed_completion(self, tokens: int = 10) -> Body:
        return self.completion(tokens, stream=True, stream_options={"include_usage": True})

    def spread_completion(self) -> Body:
        return self.streamed_completion(round(10 * 20 ** self.random.random()))

    def spread_text(self) -> Body:
        return {"q": " ".join(self.sentence() for _ in range(round(20 ** self.random.random())))}


async def timed(seconds: float, act: Callable[[float, Found], Awaitable[Any]]) -> Found:
    """Run a phase of some seconds."""
    found, started = Found(), time.perf_counter()
    await act(started + seconds, found)
    found.seconds = time.perf_counter() - started
    return found


async def alone_and_beside(port: int, path: str, loads: Loads, seconds: float) -> dict[str, Any]:
    """Measure a caller's short requests alone, then beside one who saturates the service."""
    await timed(2, lambda ends, found: ask_again(port, 1, path, loads.short[path], ends, found))  # warm up
    alone = await timed(seconds, lambda ends, found: ask_again(port, 1, path, loads.short[path], ends, found))
    greedy = Found()
    far = time.perf_counter() + 10 * seconds
    hogs = [asyncio.create_task(ask_again(port, 0, path, loads.large[path], far, greedy)) for _ in range(IN_FLIGHT)]
    await asyncio.sleep(2)
    beside = await timed(seconds, lambda ends, found: ask_again(port, 1, path, loads.short[path], ends, found))
    for hog in hogs:
        hog.cancel()
    await asyncio.gather(*hogs, return_exceptions=True)
    result = {"alone": alone.summary(), "beside": beside.summary(), "saturating": dict(greedy.statuses)}
    with contextlib.suppress(KeyError):
        result["ratio p99"] = round(result["beside"]["p99 ms"] / result["alone"]["p99 ms"], 2)
        result["ratio p50"] = round(result["beside"]["p50 ms"] / result["alone"]["p50 ms"], 2)
    return result


async def many(
    port: int, path: str, bodies: Callable[[], Body], seconds: float, clients: int, short: Callable[[], Body] | None = None
) -> dict[str, Any]:
    """Measure one client alone, then many at once; `short` requests of the one show how long its first tokens take."""

    async def begin(number: int, count: int, ends: float, found: Found, asked: Callable[[], Body]) -> None:
        await asyncio.sleep(number / count)  # not all at the same moment
        await ask_again(port, 10 + number, path, asked, ends, found)

    async def run(count: int, ends: float, found: Found, asked: Callable[[], Body] = bodies) -> None:
        await asyncio.gather(*(begin(number, count, ends, found, asked) for number in range(count)))

    await timed(2, lambda ends, found: run(clients, ends, found))  # warm up
    result = {"one client": (await timed(seconds / 2, lambda ends, found: run(1, ends, found))).summary()}
    if short is not None:  # long ones are too few for a 99th percentile
        alone = await timed(seconds, lambda ends, found: run(1, ends, found, short))
        result["one client, short requests"] = alone.summary()
    result[f"{clients} clients"] = together = (await timed(seconds, lambda ends, found: run(clients, ends, found))).summary()
    if short is not None:
        names = [f"first token p{p} ms" for p in (50, 99)]
        before = result["one client, short requests"]
        result["times as long"] = {name: round(together[name] / before[name], 2) for name in names if name in before}
    return result


def measure(runs: list[str], checkout: Path, loads: Loads, given: argparse.Namespace) -> dict[str, Any]:
    """Run all phases against the code of a checkout."""
    seconds = given.seconds
    result: dict[str, Any] = {}
    acts: dict[str, Callable[[int], Awaitable[dict[str, Any]]]] = {
        **{
            path: lambda port, path=path: alone_and_beside(port, path, loads, seconds)
            for path in loads.short
            if given.encoder or path != "/v1/embeddings"
        },
        "completions, 1:20": lambda port: many(
            port, "/v1/completions", loads.spread_completion, seconds, CLIENTS, loads.streamed_completion
        ),
        "translations, 1:20": lambda port: many(port, "/translate", loads.spread_text, seconds, CLIENTS),
    }
    for name, act in acts.items():
        if not given.phase or any(phase in name for phase in given.phase):
            with service([Path(run) for run in runs], checkout.resolve(), "logs=none", device=given.device) as port:
                result[name] = asyncio.run(act(port))
            print(f"{checkout.name}: {name}: {json.dumps(result[name])}", flush=True)
    return result


def offline(loads: Loads, given: argparse.Namespace) -> dict[str, Any]:
    """Return the tokens, and words of translations, that are made in a second without a service, 64 inputs at a time."""
    generator, translator = load(given.gpt, given.device), load(given.translator, given.device)
    texts = [loads.sentence() for _ in range(CLIENTS)]
    acts: dict[str, Callable[[], int]] = {
        "completions, 1:20": lambda: sum(len(found[0].ids) for found in generator.generate(texts, 200, sampling=True)),
        "translations, 1:20": lambda: len(" ".join(translator.translate(texts)).split()),
    }
    result = {}
    for name, act in acts.items():
        if not given.phase or any(phase in name for phase in given.phase):
            act()  # warm up
            started, made = time.perf_counter(), 0
            while time.perf_counter() < started + given.seconds:
                made += act()
            result[name] = {"tokens a second": round(made / (time.perf_counter() - started))}
            print(f"offline: {name}: {json.dumps(result[name])}", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for role in ("translator", "gpt", "encoder"):
        parser.add_argument(f"--{role}", type=Path, required=role != "encoder", help="a run; without an encoder no embeddings")
    parser.add_argument("--sentences", type=Path, required=True, help="a sentence a line, or pairs")
    parser.add_argument("--before", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--phase", action="append", default=[], help="only phases with this in their name")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    sentences = [line.split("\t")[0].strip() for line in read_lines(given.sentences) if line][:1000]
    runs = [f"{role}={getattr(given, role).resolve()}" for role in ("translator", "gpt", "encoder") if getattr(given, role)]
    checkouts = {"now": Path(__file__).parents[1], **({"before": given.before} if given.before else {})}
    result = {name: measure(runs, checkout, Loads(sentences), given) for name, checkout in checkouts.items()}
    result["offline"] = offline(Loads(sentences), given)
    (given.out / "serving-load.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

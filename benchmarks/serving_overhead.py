"""What a service costs beside its model: processor time for each token, by thread, with a GPT that computes next to nothing.

    python benchmarks/serving_overhead.py --out FOLDER [--before CHECKOUT] [--seconds 20] [--callers 64]

Makes a GPT of one layer of width 32 with random weights. Offline generation continues 64 prompts by 200 tokens each; then 64
callers ask a service for streamed completions of 10 to 200 tokens (1:20), each again as soon as it is answered. The callers are
one process that reads the end of each answer alone, so that they cost little. Every version is measured in turn, several times,
and the median is written to FOLDER/serving-overhead.json. Linux only: the time of each thread comes from /proc.
"""

import argparse
import asyncio
import json
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from serving_latency import service

PROMPTS, TOKENS = 64, 200
WORDS = (
    "the", "of", "and", "to", "in", "a", "is", "that", "for", "it", "was", "on", "are", "as", "with", "his", "they", "at", "be",
    "this", "from", "have", "or", "by", "one", "had", "not", "but", "what", "all",
)  # fmt: skip
USED = re.compile(rb'"completion_tokens": ?(\d+)')
END = b"\r\n0\r\n\r\n"  # of an answer in chunks
WARM_UP = 3.0  # seconds

OFFLINE = """
import json, sys, time
from qkv.inference.load import load
generator, prompts = load(sys.argv[1], "cpu"), json.loads(sys.argv[2])
generator.generate(prompts, 20, sampling=True)
cpu, started = time.thread_time(), time.perf_counter()
made = sum(len(found[0].ids) for found in generator.generate(prompts, 200, sampling=True, min_length=200))
print(json.dumps([made, time.perf_counter() - started, time.thread_time() - cpu]))
"""


def write_gpt(folder: Path, lines: Sequence[str] = (), vocab: int = 340, **shape: int) -> Path:
    """Write the run of a GPT that has learned nothing, and hardly ever ends a text by itself.

    It has one layer of width 32, unless its `shape` is given. Its tokenizer is trained on `lines`, or on a few words.
    """
    import torch
    from torch import nn

    from qkv.base.config import dump_yaml
    from qkv.data.corpora import Tokenizers
    from qkv.folder.run import WEIGHTS, save_config, save_tokenizers
    from qkv.models.gpt import Gpt, GptConfig
    from qkv.parts.heads import ModelWithHeads
    from qkv.recipes import RECIPE, parse_recipe
    from qkv.text.tokenizer import TokenizerConfig, train_tokenizer
    from qkv.training.checkpoints import named_weights, save_weights

    rng = random.Random(1)
    lines = lines or [" ".join(rng.choices(WORDS, k=12)) for _ in range(200)]
    tokenizer = train_tokenizer(TokenizerConfig(kind="byte-bpe", vocab=vocab), lines)
    torch.manual_seed(3)
    c = GptConfig(**{"width": 32, "feedforward": 64, "heads": 2, "layers": 1, "max_positions": 256, **shape})
    model = ModelWithHeads(Gpt(c, len(tokenizer)), ())
    with torch.no_grad():
        embedding: nn.Embedding = model.encoder.embedding.token_embedding
        nn.init.normal_(embedding.weight, 0.0, 0.1)
        embedding.weight[tokenizer.eos] = 0
    values = {
        "data": {"text": "text.txt", "length": 32},
        "tokenizer": {},
        "model": c.model_dump(mode="json"),
        "objective": {"kind": "causal"},
        "training": {"steps": 1},
    }
    recipe, tokenizers = parse_recipe(values, "recipe"), Tokenizers(tokenizer, tokenizer)
    folder.mkdir(parents=True, exist_ok=True)
    folder.joinpath(RECIPE).write_text(dump_yaml(recipe), encoding="utf-8")
    save_tokenizers(folder, tokenizers)
    save_config(folder, recipe, tokenizers, [])
    save_weights(folder / WEIGHTS, named_weights(model))
    return folder


class Caller(asyncio.Protocol):
    """A caller who asks again as soon as it is answered, and reads no more of an answer than its end."""

    def __init__(self, load: "Load", seed: int):
        self.load, self.random, self.tail = load, random.Random(seed), b""
        self.asked = self.first = 0.0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        body = json.dumps(
            {
                "model": "gpt",
                "prompt": " ".join(self.random.choices(WORDS, k=self.random.randint(4, 12))),
                "max_tokens": self.load.tokens or round(10 * 20 ** self.random.random()),
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        ).encode()
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self.transport.write(head % len(body) + body)
        self.asked, self.first = time.perf_counter(), 0.0

    def data_received(self, data: bytes) -> None:
        if not self.first and (b"data:" in data):
            self.first = time.perf_counter()
        self.tail = (self.tail + data)[-600:]
        if self.tail.endswith(END):
            used = USED.search(self.tail)
            if used is None:
                raise SystemExit(f"an answer without its usage: {self.tail[-300:]!r}")
            self.load.add(int(used[1]), self.first - self.asked)
            self.tail = b""
            self.ask()

    def connection_lost(self, error: Exception | None) -> None:
        self.load.lost += 1


class Load:
    """Some callers of a service, and what they were answered."""

    def __init__(self, tokens: int = 0):
        self.tokens, self.made, self.lost = tokens, 0, 0  # `tokens` of each answer; 0: from 10 to 200
        self.first: list[float] = []

    def add(self, tokens: int, first: float) -> None:
        self.made += tokens
        self.first.append(first)

    async def run(self, port: int, callers: int, seconds: float) -> dict[str, Any]:
        """Return the figures of some seconds after a warm-up."""
        loop = asyncio.get_running_loop()
        transports = []
        for number in range(callers):
            transports.append((await loop.create_connection(lambda n=number: Caller(self, n), "127.0.0.1", port))[0])
        await asyncio.sleep(WARM_UP)
        self.made, self.first = 0, []
        before, own, started = thread_times(), time.process_time(), time.perf_counter()
        await asyncio.sleep(seconds)
        passed, own = time.perf_counter() - started, time.process_time() - own
        after = thread_times()
        lost = self.lost
        for transport in transports:
            transport.abort()
        names = ("event loop", "model", "prepare", "prepare")
        times = dict.fromkeys(names, 0.0) | {"callers": own}
        worker = max(after, key=lambda pid: sum(after[pid]) - sum(before.get(pid, ())))
        for index, (later, earlier) in enumerate(zip(after[worker], before[worker], strict=False)):
            times[names[min(index, len(names) - 1)]] += later - earlier
        return {
            "tokens a second": round(self.made / passed),
            "answers a second": round(len(self.first) / passed, 1),
            "us a token": {name: round(1e6 * spent / max(1, self.made), 1) for name, spent in times.items()},
            "ms a token of all": round(1000 * callers * passed / max(1, self.made), 2),
            "first token ms": {f"p{p}": round(1000 * _percentile(self.first, p), 1) for p in (50, 99)},
            **({"connections lost": lost} if lost else {}),
        }


def _percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1] if len(values) > 1 else 0.0


def thread_times() -> dict[int, list[float]]:
    """Return the seconds that each thread of each process below this one has run, in the order in which threads began."""
    parents = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(each.parent.name)] = int(each.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
    below, found = [os.getpid()], []
    while below:
        pid = below.pop()
        children = [child for child, parent in parents.items() if parent == pid]
        below += children
        found += children
    return {pid: own_thread_times(pid) for pid in found}


def own_thread_times(process: int | str = "self") -> list[float]:
    """Return the seconds that each thread of a process has run, in the order in which threads began."""
    tasks = sorted(Path(f"/proc/{process}/task").glob("*"), key=lambda task: int(task.name))
    return [int(task.joinpath("schedstat").read_text().split()[0]) / 1e9 for task in tasks]


def offline(run: Path, checkout: Path) -> dict[str, Any]:
    """Return the speed without a service."""
    rng = random.Random(1)
    prompts = [" ".join(rng.choices(WORDS, k=rng.randint(4, 12))) for _ in range(PROMPTS)]
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    command = [sys.executable, "-W", "ignore", "-c", OFFLINE, str(run), json.dumps(prompts)]
    made, passed, spent = json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)
    return {"tokens a second": round(made / passed), "us a token": {"model": round(1e6 * spent / made, 1)}}


def measure(run: Path, checkout: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Measure one version once."""
    with service([run], checkout, "logs=none", options=given.option) as port:
        alone = asyncio.run(Load(tokens=10).run(port, 1, given.seconds / 4))
        together = asyncio.run(Load().run(port, given.callers, given.seconds))
    return {"offline": offline(run, checkout), "alone": alone, f"{given.callers} callers": together}


def median(several: list[Any]) -> Any:
    """Return the medians of figures in equal places."""
    if isinstance(several[0], dict):
        return {name: median([each[name] for each in several if name in each]) for name in several[0]}
    return round(statistics.median(several), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--before", type=Path, help="a checkout of another version, measured in turn with this one")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--option", action="append", default=[], help="of `qkv serve`, such as --option=--workers=2")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    os.environ |= {"OMP_NUM_THREADS": "1"}
    run = write_gpt(given.out / "gpt").resolve()
    checkouts = {"now": Path(__file__).resolve().parents[1], **({"before": given.before.resolve()} if given.before else {})}
    found: dict[str, list[Any]] = {name: [] for name in checkouts}
    for _ in range(given.rounds):
        for name, checkout in checkouts.items():
            found[name].append(measure(run, checkout, given))
            print(f"{name}: {json.dumps(found[name][-1])}", flush=True)
    result = {name: median(several) for name, several in found.items()}
    given.out.joinpath("serving-overhead.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

"""A tiny corpus and recipe, and the qkv command in real processes that start at once.

Importing torch takes seconds, so one process imports everything and forks for each command. A forked command is a process like
any other: it has its own memory, can be killed, and leaves only files behind.
"""

import atexit
import functools
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

SOURCE = Path(__file__).parents[1] / "src"
WORDS = ["sun", "rain", "tree", "bird", "red", "old", "sings", "falls", "house", "river", "stone", "small"]
TARGETS = ["sol", "pluvia", "arbor", "avis", "ruber", "vetus", "cantat", "cadit", "domus", "flumen", "lapis", "parvus"]


def write_corpus(folder: Path, pairs: int = 300, seed: int = 1) -> None:
    """Write train.tsv, dev.tsv and test.tsv: sentences of twelve words, translated word by word and reversed."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in {"train": pairs, "dev": 12, "test": 12}.items():
        lines: dict[str, None] = {}
        while len(lines) < count:
            chosen = [rng.randrange(len(WORDS)) for _ in range(rng.randint(2, 6))]
            lines[f"{' '.join(WORDS[i] for i in chosen)}\t{' '.join(TARGETS[i] for i in reversed(chosen))}\n"] = None
        (folder / f"{name}.tsv").write_text("".join(lines))


def recipe_values(folder: Path) -> dict[str, Any]:
    """Return a recipe that trains in a second."""
    return {
        "data": {name: str(folder / f"{name}.tsv") for name in ("train", "dev", "test")},
        "tokenizer": {"shared": {"kind": "bpe", "vocab": 60}},
        "model": {"width": 16, "feedforward": 32, "heads": 2, "encoder_layers": 1, "decoder_layers": 1},
        "training": {
            "steps": 60, "batch_tokens": 200, "row_width": 64, "learning_rate": 0.01, "warmup": 10, "save_every": 10,
            "validate_every": 20, "log_every": 1, "keep": 3, "precision": "float32", "device": "cpu",
        },
        "decoding": {"beam": 2, "max_extra": 10},
        "metrics": ["chrf"],
        "score_dev": 4,
    }  # fmt: skip


def write_recipe(folder: Path, **changes: dict[str, Any]) -> Path:
    """Write a corpus and its recipe to a folder; `changes` update the recipe's sections."""
    if not (folder / "train.tsv").exists():
        write_corpus(folder)
    values = recipe_values(folder)
    for section, new in changes.items():
        values[section] = {**values[section], **new} if isinstance(new, dict) else new
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@dataclass
class CommandResult:
    """Exit code and output of a finished command."""

    code: int  # as the shell would see it; below zero, the signal that killed it
    out: str
    err: str

    def complaint(self) -> str:
        """Return the error message, after checking its form: one line on stderr, exit code 2, no traceback."""
        lines = [line for line in self.err.splitlines() if line.startswith("qkv: ")]
        assert self.code == 2, (self.code, self.err)
        assert "Traceback" not in self.err, self.err
        assert len(lines) == 1 and self.err.rstrip("\n").endswith(lines[0]), self.err
        return lines[0]


class RunningCommand:
    """A command that is still running."""

    def __init__(self, server: "Commands", pid: int, folder: Path):
        self.server, self.pid, self.folder = server, pid, folder

    def signal(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def result(self) -> CommandResult:
        """Wait for the command to end, and return its result."""
        status = self.server.ask({"wait": self.pid})
        out, err = ((self.folder / name).read_text("utf-8", errors="replace") for name in ("out", "err"))
        return CommandResult(os.waitstatus_to_exitcode(status), out, err)


class Commands:
    """Starts `qkv` commands by forking a process that has imported everything."""

    def __init__(self, folder: Path):
        self.folder, self.count = folder, 0
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(folder / "cache"),
            text=True,
            start_new_session=True,
        )

    def ask(self, what: dict[str, Any]) -> int:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def start(self, *args: object, first: str = "", stdin: bytes = b"", **env: str) -> RunningCommand:
        """Start a command; `first` is Python to run in its process before it."""
        self.count += 1
        folder = self.folder / f"command-{self.count}"
        folder.mkdir()
        for name in ("in", "out", "err"):
            (folder / name).write_bytes(stdin if name == "in" else b"")
        job = {"args": [str(a) for a in args], "folder": str(folder), "first": first, "env": env}
        return RunningCommand(self, self.ask(job), folder)

    def run(self, *args: object, first: str = "", stdin: bytes = b"", **env: str) -> CommandResult:
        return self.start(*args, first=first, stdin=stdin, **env).result()

    def close(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def environment(cache: Path) -> dict[str, str]:
    """Return the environment of a command: this source, one core, its own cache."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR")}
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    return {**inherited, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "QKV_CACHE": str(cache)}


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Return as soon as the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.002)


@functools.cache
def commands_in(folder: Path) -> Commands:
    """Return the process to fork; one per folder."""
    commands = Commands(folder)
    atexit.register(commands.close)
    return commands


def step_reached(run: Path) -> int:
    """Return the last step in the run's log."""
    path = run / "metrics.jsonl"
    lines = path.read_bytes().splitlines() if path.exists() else []
    steps = [re.match(rb'{"step": (\d+)', line) for line in lines]
    return max((int(found[1]) for found in steps if found), default=0)


def metrics_without_times(run: Path) -> list[dict[str, Any]]:
    """Read metrics.jsonl without the values that depend on the clock."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("seconds", "tokens_per_second")} for line in lines]


def weights(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


@dataclass(frozen=True)
class UninterruptedRun:
    """The files and metrics of a run that was never interrupted."""

    recipe: Path
    run: Path
    cache: Path
    weights: bytes
    metrics: list[dict[str, Any]]
    seconds_before: float  # the first update
    seconds_after: float  # the last one

    def equals(self, run: Path) -> bool:
        """Return whether another run has the same weights bit for bit; its metrics must be the same too."""
        assert metrics_without_times(run) == self.metrics
        return weights(run) == self.weights


def _serve() -> None:
    """Run the process that is forked: read a line of JSON, print a number."""
    import torch._dynamo  # noqa: F401  (an optimiser imports it)

    import qkv.cli.app
    import qkv.jobs.run_report
    import qkv.jobs.train  # noqa: F401

    for line in sys.stdin:
        job = json.loads(line)
        if "wait" in job:
            print(os.waitpid(job["wait"], 0)[1], flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            _become(job)
        print(pid, flush=True)


def _become(job: dict[str, Any]) -> None:
    """Run the command in a process that was just forked, and exit."""
    import traceback

    from qkv.cli import main

    folder = Path(job["folder"])
    for number, name in enumerate(("in", "out", "err")):
        os.dup2(os.open(folder / name, os.O_WRONLY if number else os.O_RDONLY), number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a process started in the background ignores it
    os.environ.update(job["env"])
    sys.argv = ["qkv", *job["args"]]
    code: Any = 0
    try:
        exec(job["first"], {})
        main()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve()

"""Compare the speed of two checkouts of qkv: their workers of one benchmark take turns, a few updates or sentences each.

    python benchmarks/two_checkouts.py OLD NEW --rounds 24 -- pretrain --size bert-mini --only "as it comes, bf16"

Arguments after `--` are those of `qkv bench`; of several systems the first is measured. Each checkout prepares the job by its
own code and runs in a process of its own, with the same Python. The comparison is made twice, the second time with the other
checkout first, since the place of a process in memory changes its speed by a few per cent.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# Runs `qkv bench` until it starts its first worker, and keeps the worker's job folder and its command instead.
PREPARE = """
import json, pathlib, runpy, shutil, subprocess, sys
kept = pathlib.Path(sys.argv[1])
sys.argv = ["qkv", "bench", *sys.argv[2:]]
class Popen(subprocess.Popen):
    def __init__(self, command, *args, **options):
        if not any(str(part).endswith("worker.py") for part in command):
            return super().__init__(command, *args, **options)
        (job,) = (part for part in command if pathlib.Path(part).is_dir())
        shutil.copytree(job, kept)
        command = [str(kept) if part == job else part for part in command]
        (kept / "command.json").write_text(json.dumps(command))
        sys.exit(0)
subprocess.Popen = Popen
runpy.run_module("qkv", run_name="__main__")
"""
COMMANDS: dict[str, dict[str, Any]] = {
    "train": {"updates": 2},
    "pretrain": {"updates": 3},
    "decode": {"beam": 1, "batch": 32, "length": 20, "sentences": 64},
}


class Worker:
    """The worker of one checkout."""

    def __init__(self, checkout: Path, job: Path, arguments: list[str]):
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
        subprocess.run([sys.executable, "-c", PREPARE, job, *arguments], env=environment, check=True, capture_output=True)
        command = json.loads((job / "command.json").read_text())
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        self.reply()

    def reply(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def rate(self, command: dict[str, Any]) -> float:
        """Run one round and return tokens or sentences a second."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return float(self.reply()["rate"])


def compare(checkouts: list[Path], command: dict[str, Any], rounds: int, arguments: list[str]) -> list[list[float]]:
    """Return the rates of each checkout in every round but the first, which warms up."""
    with tempfile.TemporaryDirectory() as folder:
        workers = [Worker(path, Path(folder) / str(index), arguments) for index, path in enumerate(checkouts)]
        rates: list[list[float]] = [[] for _ in workers]
        for number in range(rounds + 1):
            for index in (0, 1) if number % 2 else (1, 0):
                rate = workers[index].rate(command)
                rates[index] += [rate] if number else []
        for worker in workers:
            worker.process.kill()
            worker.process.wait()
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--beam", type=int, default=1, help="width of the beam in decoding")
    parser.add_argument("--batch", type=int, default=32, help="sentences decoded at a time")
    parser.add_argument("bench", nargs="+", metavar="-- BENCH", help="arguments of qkv bench")
    options = parser.parse_args()
    command = COMMANDS[options.bench[0]]
    if options.bench[0] == "decode":
        command = {**command, "beam": options.beam, "batch": options.batch, "sentences": max(8, 2 * options.batch)}
    old, new = options.old.resolve(), options.new.resolve()
    for first, second in ((old, new), (new, old)):
        rates = dict(zip((first, second), compare([first, second], command, options.rounds, options.bench), strict=True))
        ratios = [after / before for before, after in zip(rates[old], rates[new], strict=True)]
        medians = {"old": statistics.median(rates[old]), "new": statistics.median(rates[new])}
        shown = "  ".join(f"{name} {median:,.1f}" for name, median in medians.items())
        print(f"{'old' if first == old else 'new'} first: {shown}  median of new / old {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()

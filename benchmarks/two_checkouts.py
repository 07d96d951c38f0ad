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
import qkv
kept, source = map(pathlib.Path, sys.argv[1:3])
if source not in pathlib.Path(qkv.__file__).parents:
    sys.exit(f"qkv was imported from {qkv.__file__}, not from {source}; leave other copies of it out of the path")
sys.argv = ["qkv", "bench", *sys.argv[3:]]
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
        self.checkout, self.log = checkout, job.with_suffix(".log")
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
        prepare = [sys.executable, "-c", PREPARE, job, checkout / "src", *arguments]
        done = subprocess.run(prepare, env=environment, check=False, capture_output=True, text=True)
        if done.returncode or not (job / "command.json").exists():
            raise SystemExit(f"{checkout}: qkv bench {' '.join(arguments)} started no worker:\n{done.stdout}{done.stderr}")
        command = json.loads((job / "command.json").read_text())
        file = next(Path(part) for part in command if part.endswith("worker.py"))
        assert checkout / "src" in file.resolve().parents, f"the worker {file} is not one of {checkout}"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )
        self.reply()

    def reply(self) -> dict[str, Any]:
        """Return the worker's next reply; exit with its error or the end of its log if there is none."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found: dict[str, Any] = json.loads(line) if line else {"error": f"ended\n{self.log.read_text()[-2000:]}"}
        if "error" in found:
            raise SystemExit(f"the worker of {self.checkout}: {found['error']}")
        return found

    def rate(self, command: dict[str, Any]) -> float:
        """Run one round and return tokens or sentences a second."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return float(self.reply()["rate"])


def compare(checkouts: list[Path], command: dict[str, Any], rounds: int, arguments: list[str]) -> list[list[float]]:
    """Return the rates of each checkout in every round but the first, which warms up."""
    workers: list[Worker] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for index, path in enumerate(checkouts):
                workers.append(Worker(path, Path(folder) / str(index), arguments))
            rates: list[list[float]] = [[] for _ in workers]
            for number in range(rounds + 1):
                for index in (0, 1) if number % 2 else (1, 0):
                    rate = workers[index].rate(command)
                    rates[index] += [rate] if number else []
        finally:
            for worker in workers:
                worker.process.kill()
                worker.process.wait()
    return rates


def checkout(path: str) -> Path:
    """Return the folder of a checkout; raise an argparse error for any other."""
    folder = Path(path).resolve()
    if not (folder / "src" / "qkv" / "__init__.py").is_file():
        raise argparse.ArgumentTypeError(f"{path} has no src/qkv; give a checkout of qkv")
    return folder


def commit(folder: Path) -> str:
    """Return the commit of a checkout, and whether its source differs from it."""
    git = ["git", "-C", str(folder)]
    name = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    changed = subprocess.run([*git, "status", "--porcelain", "src"], capture_output=True, text=True, check=False).stdout
    return f"{name or 'no commit'}{', changed since' if changed else ''}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("old", type=checkout)
    parser.add_argument("new", type=checkout)
    parser.add_argument("--rounds", type=int, default=24, help="rounds that are measured, at least 2")
    parser.add_argument("--beam", type=int, default=1, help="width of the beam in decoding")
    parser.add_argument("--batch", type=int, default=32, help="sentences decoded at a time")
    parser.add_argument("bench", nargs="+", metavar="-- BENCH", help="arguments of qkv bench")
    options = parser.parse_args()
    if options.bench[0] not in COMMANDS:
        parser.error(f"no benchmark {options.bench[0]!r}; choose {', '.join(COMMANDS)}")
    if options.rounds < 2:
        parser.error(f"--rounds {options.rounds} is too few; give at least 2")
    command = COMMANDS[options.bench[0]]
    if options.bench[0] == "decode":
        command = {**command, "beam": options.beam, "batch": options.batch, "sentences": max(8, 2 * options.batch)}
    folders = {"old": options.old, "new": options.new}
    for name, folder in folders.items():
        print(f"{name}: {folder}, {commit(folder)}")
    for order in (("old", "new"), ("new", "old")):
        found = compare([folders[name] for name in order], command, options.rounds, options.bench)
        rates = dict(zip(order, found, strict=True))
        ratios = [after / before for before, after in zip(rates["old"], rates["new"], strict=True)]
        shown = "  ".join(f"{name} {statistics.median(rates[name]):,.1f}" for name in folders)
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"{order[0]} first: {shown}  new / old: median {middle:.3f}, quartiles {low:.3f} and {high:.3f}")


if __name__ == "__main__":
    main()

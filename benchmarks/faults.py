"""Kill `qkv train` (kill -9) twenty times at random moments, and check that the resumed run ends like an uninterrupted one.

    python benchmarks/faults.py [--kills 20] [--seed 1]

First trains a small Transformer without interruption, then the same recipe with kills: while it starts and prepares the text,
while it trains, validates and saves, and while it chooses weights, scores them and writes its report. Prints what each kill
interrupted, and whether final weights are identical bit for bit and metrics are identical except times. Takes about two minutes.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

STEPS, SAVE_EVERY, VALIDATE_EVERY = 400, 20, 100
TIMES = {"seconds", "tokens_per_second"}
WORDS = ["sun", "rain", "tree", "bird", "red", "old", "sings", "falls", "house", "river", "stone", "small"]

RECIPE = f"""
data: {{train: train.tsv, dev: dev.tsv}}
tokenizer: {{shared: {{kind: bpe, vocab: 200}}}}
model: {{width: 64, feedforward: 128, heads: 4, encoder_layers: 2, decoder_layers: 2}}
training:
  {{steps: {STEPS}, batch_tokens: 1000, row_width: 64, learning_rate: 0.003, warmup: 100, save_every: {SAVE_EVERY},
   validate_every: {VALIDATE_EVERY}, log_every: 1, keep_checkpoints: true, device: cpu}}
metrics: [chrf]
score_dev: 50
"""


def write_text(folder: Path, seed: int) -> None:
    """Write sentences over twelve words; the target is the source spelled backwards."""
    rng = random.Random(seed)
    for name, count in (("train.tsv", 5000), ("dev.tsv", 100)):
        sources = [" ".join(rng.choices(WORDS, k=rng.randint(2, 8))) for _ in range(count)]
        (folder / name).write_text("".join(f"{source}\t{source[::-1]}\n" for source in sources))
    (folder / "recipe.yaml").write_text(RECIPE)


class Run:
    """One run folder, and the command that trains in it."""

    def __init__(self, folder: Path, name: str):
        self.folder, self.path = folder, folder / name
        self.env = {**os.environ, "QKV_CACHE": str(folder / f"cache-{name}"), "OMP_NUM_THREADS": "1"}

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "qkv", "train", "recipe.yaml", "--out", str(self.path)]
        return subprocess.Popen(command, cwd=self.folder, env=self.env, stderr=subprocess.DEVNULL)

    def run_and_kill(self, happened: Callable[[], object], delay: float) -> float:
        """Train until `happened()`, wait `delay` seconds, kill; return the seconds since the start."""
        while True:
            started = time.monotonic()
            process = self.start()
            wait_for(happened, process)
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
            if process.wait() == -signal.SIGKILL:
                return time.monotonic() - started
            assert process.returncode == 0, f"exit code {process.returncode}"
            # The run ended before the kill: make it finish once more, and kill sooner.
            (self.path / "result.json").unlink()
            delay *= 0.8

    def step(self) -> int:
        """Return the newest update in the log; the last line may be incomplete."""
        path = self.path / "metrics.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return json.loads(lines[-1])["step"] if lines else 0

    def saved(self) -> int:
        return max((int(f.name.removeprefix("step-")) for f in (self.path / "checkpoints").glob("step-*")), default=0)

    def doing(self, seconds: float, before: float) -> str:
        """Return what a kill after this many seconds interrupted, judging by the files in the folder."""
        if list(self.folder.rglob("*.partial")):
            return "writing"
        if seconds < 0.9 * before:
            return "starting"
        return "finishing" if self.saved() == STEPS else "training"

    def weights(self) -> str:
        return hashlib.sha256((self.path / "model.safetensors").read_bytes()).hexdigest()

    def metrics(self) -> list[dict[str, object]]:
        lines = [json.loads(line) for line in (self.path / "metrics.jsonl").read_text().splitlines()]
        return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


def wait_for(happened: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    while not happened() and process.poll() is None:
        time.sleep(0.005)


def moments(kills: int, run: Run, before: float, after: float, rng: random.Random) -> list[tuple[Callable[[], object], float]]:
    """Return when to kill: a condition to wait for, and the seconds to wait after it."""
    edge = kills // 7  # kills before the first update, and after the last one
    updates = sorted(rng.sample(range(1, STEPS), kills - 2 * edge))
    return [
        *((lambda: True, rng.uniform(0, before)) for _ in range(edge)),
        *((lambda update=update: run.step() >= update, rng.uniform(0, 0.1)) for update in updates),
        *((lambda: run.saved() == STEPS, rng.uniform(0, 0.8 * after)) for _ in range(edge)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(0 if compare(Path(folder), options.kills, random.Random(options.seed)) else 1)


def compare(folder: Path, kills: int, rng: random.Random) -> bool:
    write_text(folder, seed=1)
    whole, killed = Run(folder, "whole"), Run(folder, "killed")
    start = time.monotonic()
    process = whole.start()
    wait_for(lambda: whole.step() >= 1, process)
    before = time.monotonic() - start
    wait_for(lambda: whole.saved() == STEPS, process)
    last = time.monotonic()
    assert process.wait() == 0
    print(f"never interrupted: {time.monotonic() - start:.1f} s, {STEPS} updates, a checkpoint every {SAVE_EVERY}\n")
    print("kill   after  while       update  resumes from")
    for number, (happened, delay) in enumerate(moments(kills, killed, before, time.monotonic() - last, rng), 1):
        delay += before if killed.step() and happened() else 0  # true since before this start: let the process start up first
        seconds = killed.run_and_kill(happened, delay)
        doing = killed.doing(seconds, before)
        print(f"{number:4} {seconds:5.1f} s  {doing:10} {killed.step():7} {killed.saved():13}", flush=True)
    assert killed.start().wait() == 0
    same_weights, same_metrics = killed.weights() == whole.weights(), killed.metrics() == whole.metrics()
    print(f"\nfinal weights after {kills} kills: {'identical' if same_weights else 'DIFFERENT'}, sha256 {killed.weights()[:16]}")
    print(f"metrics.jsonl except times: {'identical' if same_metrics else 'DIFFERENT'}, {len(killed.metrics())} lines")
    return same_weights and same_metrics


if __name__ == "__main__":
    main()

"""Batch work by number of workers, on this machine and on a Ray cluster here, and the faults that it survives.

    python benchmarks/batch_work.py [--shards 20] [--rows 250] [--workers 1,2] [--kills 10] [--seed 1] [--on local,ray]

Trains a small Transformer on made-up pairs for some seconds, writes shards of JSONL and Parquet, and translates and scores them.
Prints rows per second once workers are set up, the seconds of the whole command, and whether the bytes are those of one worker.
Then kills workers and commands (kill -9) at random moments: how many, how many finished shards were done again, and whether the
bytes are the same. Needs pyarrow, and for Ray the extra `cluster`.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORDS = ["sun", "rain", "tree", "bird", "red", "old", "sings", "falls", "house", "river", "stone", "small"]
RECIPE = """
data: {train: train.tsv, dev: dev.tsv}
tokenizer: {shared: {kind: bpe, vocab: 200}}
model: {width: 128, feedforward: 256, heads: 4, encoder_layers: 2, decoder_layers: 2}
training: {steps: 100, batch_tokens: 1000, row_width: 64, learning_rate: 0.003, warmup: 30, device: cpu}
metrics: [chrf]
score_dev: 20
"""


def texts(rng: random.Random, count: int) -> list[str]:
    return [" ".join(rng.choices(WORDS, k=rng.randint(2, 16))) for _ in range(count)]


def write_all(folder: Path, shards: int, rows: int, seed: int) -> None:
    """Write the pairs to train on, and the shards: JSONL and Parquet have both sides, text has the source."""
    import pyarrow
    import pyarrow.parquet

    rng = random.Random(seed)
    for name, count in (("train.tsv", 4000), ("dev.tsv", 100)):
        (folder / name).write_text("".join(f"{source}\t{source[::-1]}\n" for source in texts(rng, count)))
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / "shards").mkdir()
    for number in range(shards):
        records = [{"text": source, "source": source, "target": source[::-1]} for source in texts(rng, rows)]
        path = folder / "shards" / f"{number:04}.{'jsonl' if number % 2 else 'parquet'}"
        if number % 2:
            path.write_text("".join(json.dumps(record) + "\n" for record in records))
        else:
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path)


def start(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "qkv", *arguments]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)


def run(folder: Path, *arguments: str) -> float:
    """Run a command to its end; return the seconds."""
    began = time.monotonic()
    with start(folder, *arguments) as started:
        _, errors = started.communicate()
    if started.returncode:
        sys.exit(f"qkv {' '.join(arguments)} failed:\n{errors}")
    return time.monotonic() - began


def outputs(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != "manifest.json"}


def busy_seconds(out: Path) -> float:
    """Return the seconds that all shards took once workers were set up, from the times between marks."""
    marks = sorted(path.stat().st_mtime for path in (out / ".done").iterdir())
    per_shard = (marks[-1] - marks[0]) / max(1, len(marks) - 1)
    return marks[-1] - marks[0] + per_shard


def throughput(folder: Path, verb: str, places: list[str], workers: list[int], rows: int) -> None:
    """Print a row of the table for each place and number of workers."""
    first = None
    for on in places:
        for count in workers:
            out = f"{verb}-{on}-{count}"
            seconds = run(folder, verb, "run", "shards", "--out", out, "--on", on, "--workers", str(count), "--device", "cpu")
            found = outputs(folder / out)
            first = first or found
            rate = rows / busy_seconds(folder / out)
            same = "same" if found == first else "DIFFERENT"
            print(f"| {verb} | {on} | {count} | {rate:,.0f} | {seconds:.1f} s | {same} |", flush=True)


def children(process: int) -> list[int]:
    """Return the workers of a command."""
    found = subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True).stdout.split()
    return [int(one) for one in found]


def faults(folder: Path, kills: int, seed: int, wanted: dict[str, bytes]) -> None:
    """Kill workers and commands in turn, at random moments after the first new shard, until there are enough; then finish."""
    rng, out = random.Random(seed), folder / "killed"
    killed = {"worker": 0, "command": 0}
    again = 0
    command = ("translate", "run", "shards", "--out", "killed", "--on", "local", "--workers", "2", "--device", "cpu")
    while sum(killed.values()) < kills:
        before = marks(out)
        with start(folder, *command) as started:
            while marks(out).keys() == before.keys() and started.poll() is None:
                time.sleep(0.05)
            what = "worker" if sum(killed.values()) % 2 == 0 else "command"
            time.sleep(rng.random())
            if what == "worker" and (workers := children(started.pid)):
                os.kill(rng.choice(workers), signal.SIGKILL)
                killed["worker"] += 1
                time.sleep(rng.random())
            finished = started.poll() is not None
            started.kill()
            killed["command"] += not finished
        again += sum(marks(out).get(name) != made for name, made in before.items())
        if finished:
            break
    run(folder, *command)
    leftovers = list(out.rglob("*.partial"))
    same = "the same bytes" if outputs(out) == wanted else "DIFFERENT BYTES"
    print(
        f"killed {killed['worker']} workers and {killed['command']} commands: {same}, {again} finished shards done again, "
        f"{len(leftovers)} partial files left"
    )


def marks(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (out / ".done").glob("*.json")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=int, default=20)
    parser.add_argument("--rows", type=int, default=250, help="of each shard")
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--on", default="local,ray")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_all(folder, given.shards, given.rows, given.seed)
        run(folder, "train", "recipe.yaml", "--out", "run")
        print("| verb | on | workers | rows/s | whole command | bytes |\n|---|---|---:|---:|---:|---|")
        for verb in ("translate", "score"):
            throughput(folder, verb, given.on.split(","), [int(n) for n in given.workers.split(",")], given.shards * given.rows)
        first = folder / f"translate-{given.on.split(',')[0]}-{given.workers.split(',')[0]}"
        faults(folder, given.kills, given.seed, outputs(first))


if __name__ == "__main__":
    main()

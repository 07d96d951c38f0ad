"""Prepare a synthetic corpus of many pairs: peak memory, pairs per second, and what is done again after `kill -9`.

    python benchmarks/large_corpora.py --millions 10 --folder /tmp/large [--kill-after 60] [--workers 2]

Writes the corpus (some of its pairs are duplicates), runs `qkv prepare` in a process of its own, and prints figures as JSON.
With --kill-after, the first run and its workers are killed after so many seconds, then the same command runs again.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

WORDS = 20_000  # of each language
DUPLICATES = 10  # every so many pairs, one repeats another
FOLLOWED_EVERY = 0.1  # seconds


def write_corpus(path: Path, pairs: int) -> None:
    """Write pairs of 4 to 11 words; pair n depends on n alone, and its first three words on nothing else."""
    with path.open("w") as file:
        for number in range(pairs):
            number = number // 2 if number % DUPLICATES == 0 else number
            words = [number % WORDS, number // WORDS % WORDS, number // WORDS**2]
            mixed = number * 2_654_435_761 % (1 << 61)
            words += [(mixed // 7**place + place * 977) % WORDS for place in range(1 + mixed // 64 % 8)]
            file.write("\t".join(" ".join(f"{side}{word:x}" for word in words) for side in "st") + "\n")


def group_memory(group: int) -> tuple[int, int]:
    """Return the memory of the processes of a group in bytes: of the largest, and of all without what they share."""
    largest = total = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if os.getpgid(int(status.parent.name)) != group:
                continue
            values = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
            anonymous = int(values["RssAnon"].split()[0]) * 1024  # mapped files can be dropped from memory at any time
        except (OSError, KeyError, ValueError):
            continue
        largest, total = max(largest, anonymous), total + anonymous
    return largest, total


def prepare(folder: Path, workers: int, kill_after: float | None) -> dict[str, object]:
    """Run `qkv prepare`, and follow its memory; kill all its processes after a time, if wanted."""
    files = {"data.train": "train.tsv", "data.dev": "dev.tsv", "tokenizer.shared.file": "tokenizer.json"}
    settings = [f"{key}={folder / name}" for key, name in files.items()]
    command = [sys.executable, "-m", "qkv", "prepare", "transformer-small", "--workers", str(workers)]
    command += [part for setting in settings for part in ("--set", setting)]
    environment = {**os.environ, "QKV_CACHE": str(folder / "cache")}
    begun = time.monotonic()
    largest = total = 0
    with (folder / "prepare.log").open("a") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        while process.poll() is None:
            one, all_of_them = group_memory(process.pid)
            largest, total = max(largest, one), max(total, all_of_them)
            if kill_after is not None and time.monotonic() - begun > kill_after:
                os.killpg(process.pid, signal.SIGKILL)
            time.sleep(FOLLOWED_EVERY)
    parts = {kind: len(list((folder / "cache").glob(f"{kind}/*/meta.json"))) for kind in ("pieces", "shards")}
    return {
        "status": process.returncode,
        "seconds": round(time.monotonic() - begun, 1),
        "largest process, MB": round(largest / 1e6),
        "all processes, MB": round(total / 1e6),
        **parts,
    }


def made_since(folder: Path, kind: str, moment: float) -> int:
    """Return how many parts of a kind were written after a moment."""
    return sum(path.stat().st_mtime > moment for path in (folder / "cache").glob(f"{kind}/*/meta.json"))


def main() -> None:
    """Run the benchmark that the options ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=float, default=1.0, help="pairs, in millions")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kill-after", type=float, help="seconds after which the first run is killed")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    pairs = round(options.millions * 1e6)
    write_corpus(options.folder / "train.tsv", pairs)
    write_corpus(options.folder / "dev.tsv", 100)

    from qkv.text.tokenizer import TokenizerConfig, train_tokenizer

    with (options.folder / "train.tsv").open() as file:
        sample = [next(file).replace("\t", " ") for _ in range(min(pairs, 20_000))]
    train_tokenizer(TokenizerConfig(kind="bpe", vocab=8000), sample).save(options.folder / "tokenizer.json")
    size = (options.folder / "train.tsv").stat().st_size
    result: dict[str, object] = {"pairs": pairs, "bytes": size, "workers": options.workers}
    moment = 0.0
    if options.kill_after is not None:
        result["killed"] = killed = prepare(options.folder, options.workers, options.kill_after)
        moment = time.time()
        result["kept"] = {kind: killed[kind] for kind in ("pieces", "shards")}
    result["run"] = done = prepare(options.folder, options.workers, None)
    result["made by it"] = {kind: made_since(options.folder, kind, moment) for kind in ("pieces", "shards")}
    result["pairs per second"] = round(pairs / float(str(done["seconds"])))
    files = (path for path in (options.folder / "cache").rglob("*") if path.is_file())
    result["cache, MB"] = round(sum(path.stat().st_size for path in files) / 1e6)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

"""How long training pauses for a checkpoint: in the background, and when it waits for the disk, as before.

python benchmarks/checkpoint_pause.py [--size tiny|base|big] [--processes 1] [--rounds 5]
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from process_trainer import in_processes, make_trainer

from qkv.data.batches import START
from qkv.training import distributed
from qkv.training.clock import Clock


def measure(rank: int, size: str, rounds: int, out: str) -> None:
    """Save a few checkpoints, with updates between them, and write the seconds of each."""
    with distributed.joined_processes():
        trainer = make_trainer(Path(out), size, precision="float32")
        trainer.clock = Clock(trainer.device, 0, 0.0)
        trainer.model.train()
        pauses, whole, updates = [], [], []
        for number, batch in zip(range(2 * rounds + 1), trainer.batches.starting(START), strict=False):
            began = time.perf_counter()
            trainer.update(trainer.local_rows(batch))
            float(trainer.window[-1][0])  # waits for the device
            updated = time.perf_counter()
            trainer.save()
            saved = time.perf_counter()
            trainer.writer.wait()
            written = time.perf_counter()
            if number:  # the first update makes Adam's moments
                updates.append(updated - began)
                pauses.append(saved - updated)
                whole.append(written - updated)
    median = {"update": statistics.median(updates), "pause": statistics.median(pauses), "whole": statistics.median(whole)}
    (Path(out) / f"{rank}.json").write_text(json.dumps(median))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="base")
    parser.add_argument("--processes", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print("| processes | update, s | pause for a checkpoint, s | until it is on the disk, s |")
    print("|---:|---:|---:|---:|")
    for count in map(int, options.processes.split(",")):
        with tempfile.TemporaryDirectory(dir=".") as out:
            in_processes(count, measure, options.size, options.rounds, out)
            found = [json.loads(path.read_text()) for path in Path(out).glob("*.json")]
        worst = {name: max(held[name] for held in found) for name in found[0]}
        print(f"| {count} | {worst['update']:.3f} | {worst['pause']:.3f} | {worst['whole']:.3f} |")


if __name__ == "__main__":
    main()

"""Memory of weights, gradients and Adam's moments per process, whole and sharded, and the bytes that processes exchange.

python benchmarks/sharded_memory.py [--size tiny|base|big] [--processes 1,2,4]

Bytes are counted over the tensors that a process holds between two updates; its resident memory is read beside.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch.distributed as dist
from process_trainer import in_processes, make_trainer

from qkv.data.batches import START
from qkv.training import distributed


def measure(rank: int, size: str, shard: bool, out: str) -> None:
    """Make two updates and write what the first and the last process hold."""
    with distributed.joined_processes():
        trainer = make_trainer(Path(out), size, shard=shard, precision="float32")
        trainer.model.train()
        for _, batch in zip(range(2), trainer.batches.starting(START), strict=False):
            trainer.update(trainer.local_rows(batch))
        held = {
            "weights": nbytes(trainer.weights.local.values()),
            "moments": nbytes(t for state in trainer.optimiser.state.values() for t in state.values()),
            "model": nbytes(p for p in trainer.model.parameters() if trainer.weights.sharded),
            "exchange": trainer.gradients.exchange.bytes // 2 if trainer.gradients.exchange else 0,
            "resident": resident(),
        }
        if dist.is_initialized():
            distributed.barrier()
    (Path(out) / f"{rank}.json").write_text(json.dumps(held))


def nbytes(tensors: Any) -> int:
    """Return the bytes of some tensors, those of an expanded scalar once."""
    return sum(t.untyped_storage().nbytes() if 0 in t.stride() else t.numel() * t.element_size() for t in tensors)


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="base")
    parser.add_argument("--processes", default="1,2,4")
    options = parser.parse_args()
    print("| processes | | weights, MB | moments, MB | both, of one process | resident, MB | gradients sent per update, MB |")
    print("|---:|---|---:|---:|---:|---:|---:|")
    one = 0
    for count in map(int, options.processes.split(",")):
        for shard in (False, True) if count > 1 else (False,):
            with tempfile.TemporaryDirectory() as out:
                in_processes(count, measure, options.size, shard, out)
                found = [json.loads(path.read_text()) for path in Path(out).glob("*.json")]
            worst = {name: max(held[name] for held in found) for name in found[0]}
            both = worst["weights"] + worst["model"] + worst["moments"]
            one = one or both
            row = [worst["weights"] + worst["model"], worst["moments"], worst["resident"], worst["exchange"]]
            weights, moments, memory, sent = (f"{value / 1e6:,.1f}" for value in row)
            print(
                f"| {count} | {'sharded' if shard else 'whole'} | {weights} | {moments} | {both / one:.3f} | {memory} | {sent} |"
            )


if __name__ == "__main__":
    main()

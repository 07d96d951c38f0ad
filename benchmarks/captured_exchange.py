"""The cost of the exchange of gradients with one process: NCCL inside the update's CUDA graph, or gloo on the CPU.

python benchmarks/captured_exchange.py [--size tiny|base|big] [--updates 200] [--rounds 3]

A group of one process makes a trainer exchange with itself: the same kernels, buckets and hooks as with more processes, with
nothing to wait for. The losses must be those without the exchange.
"""

import argparse
import os
import statistics
import tempfile
import time
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist
from process_trainer import make_trainer

from qkv.data.batches import START
from qkv.training.captured import own_stream


def run(size: str, updates: int, exchange: bool) -> tuple[list[float], float, int, int]:
    """Train for some updates. -> losses, seconds of an update after the first ones, graphs, bytes sent per update."""
    if exchange:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29555")
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", rank=0, world_size=1)
    with tempfile.TemporaryDirectory() as out:
        trainer = make_trainer(Path(out), size, batch_tokens=25000 if torch.cuda.is_available() else 512)
        trainer.model.train()
        warm = min(20, updates // 2)
        with own_stream(trainer.device):
            for number, batch in enumerate(islice(trainer.batches.starting(START), updates)):
                if number == warm:
                    synchronize()
                    began = time.perf_counter()
                trainer.update(trainer.local_rows(batch))
            synchronize()
        seconds = (time.perf_counter() - began) / (updates - warm)
        losses = [float(loss) for loss, *_ in trainer.window]
        graphs = len(trainer.recorder.recorder.recordings) if trainer.recorder else 0
        sent = sum(bucket.flat.nbytes for bucket in trainer.gradients.exchange.buckets) if trainer.gradients.exchange else 0
        trainer.release()
    if exchange:
        dist.destroy_process_group()
    return losses, seconds, graphs, sent


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="base")
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    times: dict[bool, list[float]] = {False: [], True: []}
    found: dict[bool, list[float]] = {}
    for _ in range(options.rounds):
        for exchange in (False, True):
            found[exchange], seconds, graphs, sent = run(options.size, options.updates, exchange)
            times[exchange].append(seconds)
            print(
                f"exchange {exchange}: {1e3 * seconds:.3f} ms per update, {graphs} graphs, {sent / 1e6:.1f} MB sent", flush=True
            )
    plain, exchanged = (statistics.median(times[exchange]) for exchange in (False, True))
    difference = max(abs(a - b) for a, b in zip(found[False], found[True], strict=True))
    cost = f"{1e3 * (exchanged - plain):+.3f} ms, {exchanged / plain - 1:+.2%}"
    print(f"cost of the exchange: {cost}; largest difference of losses {difference:.2e}")


if __name__ == "__main__":
    main()

"""Where the time of an update goes on a GPU: its kernels by what they are for, and the update itself.

python benchmarks/kernels.py --size base|big
"""

import argparse
import itertools
import re
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from qkv.base.hardware import describe, operations_per_second
from qkv.bench.systems.qkv_training import trainer_of
from qkv.bench.work import SIZES, captions, like_lengths, write_job
from qkv.bench.worker import Job
from qkv.data.batches import START
from qkv.training.captured import own_stream
from qkv.training.loop import Trainer

PAIRS, BATCHES, WARM, TIMED, PROFILED = 20_000, 12, 8, 48, 3
PURPOSES = {  # the first expression that is found in a kernel's name
    "matrix products": "nvjet|gemm|splitK|cublas|cutlass",
    "attention": "^_attend|^wide_",
    "residual, dropout and norm": "^_add_and_norm|dropout|masked_scale",
    "loss": "^_cross_entropy",
    "sums for biases and norms, ReLU": "^_sum_places|^_add_lines|reduce_kernel",
    "Adam and the gradient's norm": "multi_tensor",
    "embeddings": "grad_weight|sum_and_scatter|radix|gather|embedding",
    "casts, additions and the rest": "",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=("small", "base", "big"), default="base")
    size = SIZES[parser.parse_args().size]
    if not torch.cuda.is_available():
        sys.exit("this needs a GPU; on a CPU use benchmarks/parts.py")
    with tempfile.TemporaryDirectory() as folder:
        pairs = captions(PAIRS, size.vocab, 1)
        write_job(
            Path(folder), pairs, like_lengths(pairs, size.tokens, BATCHES, 1),
            kind="speed", size=size, device="cuda", seed=1, peak=1e-4, warmup=10,
        )  # fmt: skip
        trainer = trainer_of(Job(Path(folder), {"precision": "bf16", "bare": True}))
        with own_stream(trainer.device):
            measure(trainer)


def measure(trainer: Trainer) -> None:
    """Time updates, look into a few, print both."""
    batches = list(itertools.islice(map(trainer.my_rows, trainer.batches.starting(START)), BATCHES))
    for batch in itertools.islice(itertools.cycle(batches), WARM):
        trainer.update(batch)
    torch.cuda.synchronize()
    start, tokens = time.perf_counter(), 0
    for batch in itertools.islice(itertools.cycle(batches), TIMED):
        trainer.update(batch)
        tokens += batch.tokens
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for batch in batches[:PROFILED]:
            trainer.update(batch)
        torch.cuda.synchronize()
    parameters = sum(p.numel() for p in trainer.parameters)
    share = 6 * parameters * tokens / seconds / (operations_per_second(trainer.device, torch.bfloat16) or float("nan"))
    print(f"{describe(trainer.device)}, torch {torch.__version__}, {parameters:,} parameters, bf16")
    print(f"{1000 * seconds / TIMED:.2f} ms an update, {tokens / seconds:,.0f} target tokens/s, {share:.1%} of the peak")
    by_purpose(seen)


def by_purpose(seen: profile) -> None:
    kernels = [(k.key, k.self_device_time_total / 1000 / PROFILED, k.count / PROFILED) for k in seen.key_averages()]
    total = sum(ms for _, ms, _ in kernels)
    print("\n| kernels for | ms | share |\n|---|---|---|")
    for purpose in PURPOSES:
        ours = [k for k in kernels if purpose_of(k[0]) == purpose]
        print(f"| {purpose} ({sum(count for *_, count in ours):.0f}) | {sum(ms for _, ms, _ in ours):.2f} | "
              f"{sum(ms for _, ms, _ in ours) / total:.1%} |")  # fmt: skip
    print(f"| all | {total:.2f} | |\n")
    for name, ms, count in sorted(kernels, key=lambda k: -k[1])[:20]:
        print(f"{ms:8.3f} ms {count:5.0f} x {name[:110]}")


def purpose_of(name: str) -> str:
    return next(purpose for purpose, expression in PURPOSES.items() if re.search(expression, name))


if __name__ == "__main__":
    main()

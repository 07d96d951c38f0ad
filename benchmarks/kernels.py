"""Profile an update on a GPU: its time, and the time of its kernels by purpose.

python benchmarks/kernels.py --size base|big
python benchmarks/kernels.py --size bert-base|electra-small|xlnet-base|t5-base|elmo-small|... --length 128|512
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

from qkv.base.hardware import describe_device, peak_flops
from qkv.bench.worker import BenchmarkJob
from qkv.bench.workers.pretraining import pretraining_trainer
from qkv.bench.workers.training import PausedTrainer, translation_trainer
from qkv.bench.workload import (
    ENCODERS,
    SIZES,
    EncoderSize,
    TransformerSize,
    caption_pairs,
    documents,
    length_batches,
    write_job,
    write_pretraining_job,
)
from qkv.data.batches import START
from qkv.training.captured import own_stream

PAIRS, DOCUMENTS, BATCHES, WARM, TIMED, PROFILED = 20_000, 20_480, 12, 8, 48, 3
FACTS = {"device": "cuda", "seed": 1, "peak": 1e-4, "warmup": 10}
PURPOSES = {  # purpose -> pattern of kernels' names; the first match counts
    "matrix products": "nvjet|gemm|splitK|cublas|cutlass",
    "attention": "^_attend|^wide_|^streams_",
    "recurrent layers": "^_cell_|^_product|(?i:rnn|lstm)",
    "residual, dropout and norm": "^_add_and_norm|dropout|masked_scale",
    "loss": "^_cross_entropy",
    "sums for biases and norms, activations": "^_sum_rows|^_add_lines|reduce_kernel|(?i:gelu|tanh)",
    "Adam and the gradient's norm": "multi_tensor",
    "embeddings": "^_embed|grad_weight|sum_and_scatter|radix|gather|embedding",
    "casts, additions and the rest": "",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=("small", "base", "big", *ENCODERS), default="base")
    parser.add_argument("--length", type=int, default=128, help="tokens in a row of an encoder")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("this needs a GPU; on a CPU use benchmarks/parts.py")
    with tempfile.TemporaryDirectory() as folder:
        if arguments.size in ENCODERS:
            trainer = encoder_trainer(Path(folder), ENCODERS[arguments.size], arguments.length)
        else:
            trainer = transformer_trainer(Path(folder), SIZES[arguments.size])
        with own_stream(trainer.device):
            measure(trainer)


def transformer_trainer(folder: Path, size: TransformerSize) -> PausedTrainer:
    pairs = caption_pairs(PAIRS, size.vocab, 1)
    write_job(folder, pairs, length_batches(pairs, size.tokens, BATCHES, 1), kind="speed", size=size, **FACTS)
    return translation_trainer(BenchmarkJob(folder, {"precision": "bf16"}))


def encoder_trainer(folder: Path, size: EncoderSize, length: int) -> PausedTrainer:
    texts = documents(DOCUMENTS, length, size, 1)
    write_pretraining_job(folder, texts, size=size, rows=size.tokens // length, length=length, updates=BATCHES, **FACTS)
    return pretraining_trainer(BenchmarkJob(folder, {"precision": "bf16"}))


def measure(trainer: PausedTrainer) -> None:
    """Time updates, profile a few, and print both."""
    batches = list(itertools.islice(map(trainer.local_rows, trainer.batches.starting(START)), BATCHES))
    for batch in itertools.islice(itertools.cycle(batches), WARM):
        trainer.update(batch)
    torch.cuda.synchronize()
    start, tokens = time.perf_counter(), 0
    for batch in itertools.islice(itertools.cycle(batches), TIMED):
        trainer.update(batch)
        tokens += trainer.tokens_per_update or batch.tokens
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for batch in batches[:PROFILED]:
            trainer.update(batch)
        torch.cuda.synchronize()
    parameters = sum(p.numel() for p in trainer.parameters)
    share = 6 * parameters * tokens / seconds / (peak_flops(trainer.device, torch.bfloat16) or float("nan"))
    print(f"{describe_device(trainer.device)}, torch {torch.__version__}, {parameters:,} parameters, bf16")
    print(f"{1000 * seconds / TIMED:.2f} ms an update, {tokens / seconds:,.0f} tokens/s, {share:.1%} of the peak")
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
    for name, ms, count in sorted(kernels, key=lambda k: -k[1])[:30]:
        print(f"{ms:8.3f} ms {count:5.0f} x {name[:110]}")


def purpose_of(name: str) -> str:
    return next(purpose for purpose, expression in PURPOSES.items() if re.search(expression, name))


if __name__ == "__main__":
    main()

"""The benchmarks: training, pretraining, decoding, generation and length. Each makes a workload, measures and reports."""

import datetime
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

import qkv
from qkv.base.hardware import choose_device, describe_device, peak_flops
from qkv.bench.length import PASSES, LengthCurve, choose_encoders, measure_curves, restarting_worker
from qkv.bench.length_report import LengthReport
from qkv.bench.measure import Measurement, ShowProgress, measure_losses, measure_rounds
from qkv.bench.report import SpeedReport
from qkv.bench.systems import (
    System,
    decoding_systems,
    generation_systems,
    headline_precision,
    pretraining_systems,
    training_systems,
)  # fmt: skip
from qkv.bench.workers.pretraining import count_parameters
from qkv.bench.workload import (
    ENCODERS,
    FIRST,
    GPTS,
    SIZES,
    EncoderSize,
    TransformerSize,
    caption_pairs,
    documents,
    learnable_pairs,
    length_batches,
    write_job,
    write_length_job,
    write_pretraining_job,
)
from qkv.data.tokens import TokenPairs, token_texts

PAIRS, DOCUMENTS = 20_000, 20_480  # a number of documents that fills whole batches
CPU_TOKENS = 2048  # of an update in pretraining
UPDATES = {"cpu": 3, "cuda": 24}  # in a round
WARM_UPDATES = {"cpu": 3, "cuda": 48}  # on a GPU all shapes must be compiled before
LENGTHS = {"cpu": 20, "cuda": 32}  # tokens of every output
PROMPT, NEW_TOKENS = 32, {"cpu": 32, "cuda": 128}
LENGTHS_OF_TEXTS = {"cpu": [512 << i for i in range(5)], "cuda": [1024 << i for i in range(7)]}  # each twice the previous one
LENGTH_FILE = "length.py"
LEARNING = TransformerSize(width=128, feedforward=512, heads=4, layers=2, vocab=204, tokens=512)  # small, so that it learns soon
LEARNING_PEAK, LEARNING_WARMUP = 2e-3, 60
PEAK, WARMUP = 1e-4, 10  # of the learning rate, on random texts


@dataclass(frozen=True)
class BenchmarkOptions:
    """Options of all benchmarks."""

    peers: bool = False
    only: tuple[str, ...] = ()  # parts of names; empty: all systems
    size: str = "small"
    rounds: int = 5
    seed: int = 1
    device: str = "auto"
    command: str = "qkv bench"


def bench_training(options: BenchmarkOptions, learning_updates: int, show: ShowProgress) -> SpeedReport:
    """Measure target tokens a second of whole updates, and the losses of `learning_updates` updates on learnable text."""
    device, size = choose_device(options.device), SIZES[options.size]
    selection = training_systems(device, options.peers).only(options.only)
    found = [Measurement(system) for system in selection.systems]
    with _job_folder() as folder:
        pairs = caption_pairs(PAIRS, size.vocab, options.seed)
        batches = length_batches(pairs, size.tokens, UPDATES[device.type], options.seed)
        job = {"kind": "speed", "size": size, "device": device.type, "seed": options.seed, "peak": PEAK, "warmup": WARMUP}
        write_job(folder, pairs, batches, **job)
        cases = {"": {"updates": UPDATES[device.type]}}
        measure_rounds(found, folder, cases, options.rounds, {"updates": WARM_UPDATES[device.type]}, show)
    if learning_updates:
        _learn(found, device, options, learning_updates, show)
    title = f"Training, {size}, {size.tokens:,} target tokens an update, dropout and label smoothing 0.1, Adam, gradients clipped"
    return _report(title, "target tokens/s", options, device, [""], found, selection.missing)


def _learn(found: list[Measurement], device: Any, options: BenchmarkOptions, updates: int, show: ShowProgress) -> None:
    size = LEARNING
    with _job_folder() as folder:
        pairs = learnable_pairs(PAIRS, size.vocab - 4, options.seed)
        batches = length_batches(pairs, size.tokens, updates, options.seed)
        job = {"kind": "curve", "size": size, "device": device.type, "seed": options.seed}
        write_job(folder, pairs, batches, **job, peak=LEARNING_PEAK, warmup=LEARNING_WARMUP)
        measure_losses(found, folder, show)


def bench_pretraining(options: BenchmarkOptions, length: int, show: ShowProgress) -> SpeedReport:
    """Measure tokens a second of whole updates, in rows of `length` tokens."""
    device, size = choose_device(options.device), ENCODERS[options.size]
    selection = pretraining_systems(device, options.peers, size.kind).only(options.only)
    found = [Measurement(system) for system in selection.systems]
    rows = max(1, (size.tokens if device.type == "cuda" else CPU_TOKENS) // length)
    updates, warm = UPDATES[device.type], WARM_UPDATES[device.type]
    with _job_folder() as folder:
        texts = documents(max(DOCUMENTS, rows * updates), length, size, options.seed)
        job = {"size": size, "device": device.type, "seed": options.seed, "peak": PEAK, "warmup": WARMUP}
        write_pretraining_job(folder, texts, **job, rows=rows, length=length, updates=updates)
        measure_rounds(found, folder, {"": {"updates": updates}}, options.rounds, {"updates": warm}, show)
    weights = count_parameters(asdict(size), length)
    title = f"Pretraining, {size}, {weights:,} parameters, {rows} rows of {length} tokens an update, dropout 0.1, AdamW, clipping"
    report = _report(title, "tokens/s", options, device, [""], found, selection.missing)
    return replace(report, operations=6.0 * weights, peak=peak_flops(device, torch.bfloat16))


def bench_decoding(options: BenchmarkOptions, beams: list[int], batches: list[int], show: ShowProgress) -> SpeedReport:
    """Measure sentences a second; all outputs have the same length."""
    device, size = choose_device(options.device), SIZES[options.size]
    selection = decoding_systems(device, options.peers).only(options.only)
    found = [Measurement(system) for system in selection.systems]
    length = LENGTHS[device.type]
    with _job_folder() as folder:
        pairs = caption_pairs(max(64, 2 * max(batches)), size.vocab, options.seed)
        write_job(folder, pairs, [], kind="decode", size=size, device=device.type, seed=options.seed)
        cases = {
            f"{'greedy' if beam == 1 else f'beam {beam}'}, batch {batch}": {
                "beam": beam,
                "batch": batch,
                "length": length,
                "sentences": max(8, 2 * batch),
            }
            for beam in beams
            for batch in batches
        }
        measure_rounds(found, folder, cases, options.rounds, {}, show)
    title = f"Decoding, {size}, {length} tokens each, random weights"
    return _report(title, "sentences/s", options, device, list(cases), found, selection.missing)


def bench_generation(options: BenchmarkOptions, batches: list[int], show: ShowProgress) -> SpeedReport:
    """Measure greedy continuations a second; all prompts and all continuations have the same length."""
    device, size = choose_device(options.device), GPTS[options.size]
    selection = generation_systems(device, options.peers).only(options.only)
    found = [Measurement(system) for system in selection.systems]
    new = NEW_TOKENS[device.type]
    with _job_folder() as folder:
        prompts = token_texts(documents(2 * max(batches), PROMPT + 2, size, options.seed).tolist())
        job = {"kind": "decode", "size": size, "device": device.type, "seed": options.seed, "max_positions": PROMPT + new}
        write_job(folder, TokenPairs(prompts, prompts), [], **job, first=FIRST)
        cases = {f"batch {batch}": {"beam": 1, "batch": batch, "length": new, "sentences": 2 * batch} for batch in batches}
        measure_rounds(found, folder, cases, options.rounds, {}, show)
    title = f"Generation, {size}, {new} tokens after prompts of {PROMPT}, greedy, random weights"
    return _report(title, "texts/s", options, device, list(cases), found, selection.missing)


def bench_length(options: BenchmarkOptions, size: EncoderSize, lengths: list[int], rows: int, show: ShowProgress) -> LengthReport:
    """Measure seconds and memory of encoders' passes at some lengths, by default those that the device can do."""
    device = choose_device(options.device)
    lengths = sorted(set(lengths or LENGTHS_OF_TEXTS[device.type]))
    curves = [LengthCurve(system, kind) for system in choose_encoders(options.only) for kind in PASSES]
    precision = headline_precision(device.type)
    with _job_folder() as folder:
        write_length_job(folder, size=size, device=device.type, seed=options.seed, rows=rows)
        with restarting_worker(System("encoders", LENGTH_FILE, {"precision": precision}), folder) as send:
            measure_curves(curves, lengths, options.rounds, send, show)
    facts = benchmark_facts(device, options.command, options.seed, options.rounds)
    return LengthReport(size, rows, {**facts, "device": device.type, "precision": precision}, lengths, curves)


def _report(
    title: str,
    unit: str,
    options: BenchmarkOptions,
    device: Any,
    cases: list[str],
    found: list[Measurement],
    missing: list[System],
) -> SpeedReport:
    facts = benchmark_facts(device, options.command, options.seed, options.rounds)
    return SpeedReport(title, unit, headline_precision(device.type), facts, cases, found, missing)


def benchmark_facts(device: Any, command: str, seed: int, rounds: int) -> dict[str, Any]:
    """Return where, when and how a benchmark was measured."""
    return {
        "command": command,
        "machine": describe_device(device),
        "torch": torch.__version__,
        "qkv": qkv.__version__,
        "date": datetime.date.today().isoformat(),
        "seed": seed,
        "rounds": rounds,
    }


@contextmanager
def _job_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="qkv-bench-") as folder:
        yield Path(folder)

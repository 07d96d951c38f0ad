"""The benchmarks, training, pretraining, decoding and lengths: make the work, give every system its turns, report."""

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
from qkv.bench.catalogue import System, decoding_systems, generating_systems, headline, pretraining_systems, training_systems
from qkv.bench.length import PASSES, Curve, chosen, measure, one_worker
from qkv.bench.length_report import LengthReport
from qkv.bench.report import Report
from qkv.bench.rounds import Measured, Say, interleave, learn
from qkv.bench.systems.qkv_pretraining import parameters
from qkv.bench.work import (
    ENCODERS,
    FIRST,
    GPTS,
    SIZES,
    EncoderSize,
    Size,
    captions,
    documents,
    like_lengths,
    riddles,
    write_job,
    write_length_job,
    write_pretraining_job,
)
from qkv.data.tokens import TokenPairs, token_texts

PAIRS, DOCUMENTS = 20_000, 20_480  # so many documents fill whole batches
CPU_TOKENS = 2048  # of an update in pretraining
UPDATES = {"cpu": 3, "cuda": 24}  # in a round
WARM_UPDATES = {"cpu": 3, "cuda": 48}  # on a GPU all shapes must have been seen, and compiled
LENGTHS = {"cpu": 20, "cuda": 32}  # tokens of every output
PROMPT, NEW_TOKENS = 32, {"cpu": 32, "cuda": 128}
LENGTHS_OF_TEXTS = {"cpu": [512 << i for i in range(5)], "cuda": [1024 << i for i in range(7)]}  # each twice the one before
LENGTH_FILE = "qkv_length.py"
LEARNING = Size(width=128, feedforward=512, heads=4, layers=2, vocab=204, tokens=512)  # small, so that something is learned soon
LEARNING_PEAK, LEARNING_WARMUP = 2e-3, 60
PEAK, WARMUP = 1e-4, 10  # of the learning rate, where nothing can be learned


@dataclass(frozen=True)
class Options:
    """What all benchmarks can be told."""

    peers: bool = False
    only: tuple[str, ...] = ()  # parts of names; all systems where there are none
    size: str = "small"
    rounds: int = 5
    seed: int = 1
    device: str = "auto"
    command: str = "qkv bench"


def bench_training(options: Options, learning_updates: int, say: Say) -> Report:
    """Target tokens a second of whole updates, and the losses after as many updates on text that can be learned."""
    device, size = choose_device(options.device), SIZES[options.size]
    chosen = training_systems(device, options.peers).only(options.only)
    found = [Measured(system) for system in chosen.systems]
    with _folder() as folder:
        pairs = captions(PAIRS, size.vocab, options.seed)
        batches = like_lengths(pairs, size.tokens, UPDATES[device.type], options.seed)
        job = {"kind": "speed", "size": size, "device": device.type, "seed": options.seed, "peak": PEAK, "warmup": WARMUP}
        write_job(folder, pairs, batches, **job)
        cases = {"": {"updates": UPDATES[device.type]}}
        interleave(found, folder, cases, options.rounds, {"updates": WARM_UPDATES[device.type]}, say)
    if learning_updates:
        _learn(found, device, options, learning_updates, say)
    title = f"Training, {size}, {size.tokens:,} target tokens an update, dropout and label smoothing 0.1, Adam, gradients clipped"
    return _report(title, "target tokens/s", options, device, [""], found, chosen.missing)


def _learn(found: list[Measured], device: Any, options: Options, updates: int, say: Say) -> None:
    size = LEARNING
    with _folder() as folder:
        pairs = riddles(PAIRS, size.vocab - 4, options.seed)
        batches = like_lengths(pairs, size.tokens, updates, options.seed)
        job = {"kind": "curve", "size": size, "device": device.type, "seed": options.seed}
        write_job(folder, pairs, batches, **job, peak=LEARNING_PEAK, warmup=LEARNING_WARMUP)
        learn(found, folder, say)


def bench_pretraining(options: Options, length: int, say: Say) -> Report:
    """Tokens a second of whole updates of an encoder, in rows of so many tokens."""
    device, size = choose_device(options.device), ENCODERS[options.size]
    chosen = pretraining_systems(device, options.peers, size.kind).only(options.only)
    found = [Measured(system) for system in chosen.systems]
    rows = max(1, (size.tokens if device.type == "cuda" else CPU_TOKENS) // length)
    updates, warm = UPDATES[device.type], WARM_UPDATES[device.type]
    with _folder() as folder:
        texts = documents(max(DOCUMENTS, rows * updates), length, size.vocab, options.seed)
        job = {"size": size, "device": device.type, "seed": options.seed, "peak": PEAK, "warmup": WARMUP}
        write_pretraining_job(folder, texts, **job, rows=rows, length=length, updates=updates)
        interleave(found, folder, {"": {"updates": updates}}, options.rounds, {"updates": warm}, say)
    weights = parameters(asdict(size), length)
    title = f"Pretraining, {size}, {weights:,} weights, {rows} rows of {length} tokens an update, dropout 0.1, AdamW, clipping"
    report = _report(title, "tokens/s", options, device, [""], found, chosen.missing)
    return replace(report, operations=6.0 * weights, peak=peak_flops(device, torch.bfloat16))


def bench_decoding(options: Options, beams: list[int], batches: list[int], say: Say) -> Report:
    """Sentences a second, all outputs of the same length."""
    device, size = choose_device(options.device), SIZES[options.size]
    chosen = decoding_systems(device, options.peers).only(options.only)
    found = [Measured(system) for system in chosen.systems]
    length = LENGTHS[device.type]
    with _folder() as folder:
        pairs = captions(max(64, 2 * max(batches)), size.vocab, options.seed)
        write_job(folder, pairs, [], kind="decode", size=size, device=device.type, seed=options.seed)
        cases = {
            f"{_name(beam)}, batch {batch}": {"beam": beam, "batch": batch, "length": length, "sentences": max(8, 2 * batch)}
            for beam in beams
            for batch in batches
        }
        interleave(found, folder, cases, options.rounds, {}, say)
    title = f"Decoding, {size}, {length} tokens each, random weights"
    return _report(title, "sentences/s", options, device, list(cases), found, chosen.missing)


def bench_generating(options: Options, batches: list[int], say: Say) -> Report:
    """Texts a second that go on greedily after prompts, all of the same lengths."""
    device, size = choose_device(options.device), GPTS[options.size]
    chosen = generating_systems(device, options.peers).only(options.only)
    found = [Measured(system) for system in chosen.systems]
    new = NEW_TOKENS[device.type]
    with _folder() as folder:
        prompts = token_texts(documents(2 * max(batches), PROMPT + 2, size.vocab, options.seed).tolist())
        job = {"kind": "decode", "size": size, "device": device.type, "seed": options.seed, "max_positions": PROMPT + new}
        write_job(folder, TokenPairs(prompts, prompts), [], **job, first=FIRST)
        cases = {f"batch {batch}": {"beam": 1, "batch": batch, "length": new, "sentences": 2 * batch} for batch in batches}
        interleave(found, folder, cases, options.rounds, {}, say)
    title = f"Generating, {size}, {new} tokens after prompts of {PROMPT}, greedy, random weights"
    return _report(title, "texts/s", options, device, list(cases), found, chosen.missing)


def bench_length(options: Options, size: EncoderSize, lengths: list[int], rows: int, say: Say) -> LengthReport:
    """Seconds and memory of encoders' passes at those lengths, or, where none are given, at those that the device can do."""
    device = choose_device(options.device)
    lengths = sorted(set(lengths or LENGTHS_OF_TEXTS[device.type]))
    curves = [Curve(system, kind) for system in chosen(options.only) for kind in PASSES]
    precision = headline(device.type)
    with _folder() as folder:
        write_length_job(folder, size=size, device=device.type, seed=options.seed, rows=rows)
        with one_worker(System("encoders", LENGTH_FILE, {"precision": precision}), folder) as ask:
            measure(curves, lengths, options.rounds, ask, say)
    facts = run_facts(device, options.command, options.seed, options.rounds)
    return LengthReport(size, rows, {**facts, "device": device.type, "precision": precision}, lengths, curves)


def _name(beam: int) -> str:
    return "greedy" if beam == 1 else f"beam {beam}"


def _report(
    title: str, unit: str, options: Options, device: Any, cases: list[str], found: list[Measured], missing: list[System]
) -> Report:
    facts = run_facts(device, options.command, options.seed, options.rounds)
    return Report(title, unit, headline(device.type), facts, cases, found, missing)


def run_facts(device: Any, command: str, seed: int, rounds: int) -> dict[str, Any]:
    """Where, when and how it was measured."""
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
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="qkv-bench-") as folder:
        yield Path(folder)

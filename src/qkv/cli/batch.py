"""Batch work of several verbs: which arguments ask for it, the workers, the progress, and the summary at the end."""

import glob
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from qkv.base.errors import ConfigError, DataError
from qkv.base.urls import is_url, refuse_read_only

if TYPE_CHECKING:
    from qkv.base.pool import Workers
    from qkv.distributed.batch import BatchPlan, BatchReport
    from qkv.distributed.shards import Shard

SHOWN = 20  # failed shards that are named; the others are counted

On = Annotated[
    str | None,
    typer.Option("--on", help="Batch work over many shards: local (processes of this machine) or ray (a Ray cluster)."),
]
WorkerCount = Annotated[
    int | None, typer.Option("--workers", min=1, help="Batch work: number of workers; by default one per GPU, or per CPU core.")
]
Column = Annotated[str, typer.Option("--column", help="Batch work: key of JSONL, or column of Parquet, that holds the text.")]


class BatchOptions(NamedTuple):
    """The arguments that all verbs share."""

    inputs: Sequence[str]
    out: str | None
    on: str | None
    workers: int | None
    device: str

    @property
    def asked(self) -> bool:
        """Whether options ask for batch work, or URLs, which nothing else reads."""
        urls = any(map(is_url, self.inputs)) or (self.out is not None and is_url(self.out))
        return self.on is not None or self.workers is not None or urls

    @property
    def many(self) -> bool:
        """Whether the inputs are several files, a folder or a pattern."""
        paths = [Path(given).expanduser() for given in self.inputs]
        return len(paths) > 1 or any(path.is_dir() or (not path.exists() and glob.has_magic(str(path))) for path in paths)


def run_batch_command(verb: str, run: str | Path, given: BatchOptions, options: dict[str, Any]) -> None:
    """Do a verb over all shards; failed ones are named at the end, in one line each and an exit code of 2."""
    from qkv.distributed.batch import plan_batch, run_batch
    from qkv.distributed.shards import find_shards

    on = given.on or "local"
    if on not in ("local", "ray"):
        raise ConfigError(f"--on {on} is not known; give local or ray")
    if given.out is None:
        raise ConfigError("many shards give many outputs; name a folder or a URL for them with --out")
    refuse_read_only(given.out)
    if not given.inputs or "-" in given.inputs:
        raise ConfigError("batch work reads shards, not standard input; name files, a folder, a pattern or a URL")
    shards, others = find_shards(given.inputs)
    if on == "ray":
        from qkv.distributed.ray_workers import connect

        connect()  # refuses a missing package or cluster before anything is written
    plan = plan_batch(verb, run, given.out, given.device, **options)
    if others:
        names = ", ".join(Path(other).name for other in others[:3])
        print(f"qkv: left out {_count(len(others), 'file')}, not text, JSONL or Parquet: {names}", file=sys.stderr)
    workers, count = _workers(plan, on, given, len(shards))
    with BatchProgress(shards) as progress:
        report = run_batch(plan, shards, workers, count, progress.show)
    summarise(plan.out, report)


def _workers(plan: "BatchPlan", on: str, given: BatchOptions, shards: int) -> "tuple[Workers, int]":
    """Return the workers of a pool and their number; one per GPU, unless the device is a CPU or named."""
    from qkv.base.hardware import choose_device, cpu_cores
    from qkv.distributed.batch import WORK

    setup = plan.model_dump()
    if on == "ray":
        from qkv.distributed.ray_workers import RayWorkers, cluster_size

        gpus = given.device != "cpu" and cluster_size(gpus=True) > 0
        count = given.workers or max(1, cluster_size(gpus))
        return RayWorkers(WORK, setup, gpus), min(count, shards)
    import torch

    from qkv.base.pool import LocalWorkers

    device = choose_device(given.device)
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = named.split(",") if named else [str(number) for number in range(torch.cuda.device_count())]
    seen = names if device.type == "cuda" and device.index is None else []
    count = given.workers or (len(seen) if seen else 1 if device.type != "cpu" else cpu_cores())
    return LocalWorkers(WORK, setup, seen), min(count, shards)


class BatchProgress:
    """Shows shards done, rows per second, and the time left by the bytes that are left."""

    def __init__(self, shards: "Sequence[Shard]"):
        from qkv.training.progress import Progress

        self.progress = Progress()
        # Objects of a store are not asked for their sizes one by one: shards then count alike.
        self.sizes = {shard.name: 1 if is_url(shard.location) else _size(Path(shard.location)) for shard in shards}
        self.left, self.total = sum(self.sizes.values()), len(shards)
        self.shards = self.failed = self.rows = self.done = 0
        self.began = self.last = time.monotonic()

    def __enter__(self) -> "BatchProgress":
        if self.progress.live:
            self.status = self.progress.console.status(f"0 of {_count(self.total, 'shard')}")
            self.status.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.progress.live:
            self.status.stop()

    def show(self, shard: "Shard", result: dict[str, Any]) -> None:
        """Count a finished shard; on a terminal show it at once, elsewhere print a line every few seconds."""
        from qkv.training.progress import LINE_EVERY, duration

        self.shards += 1
        self.failed += "failed" in result
        self.left -= self.sizes[shard.name]
        if "mark" in result and not result["kept"]:
            self.rows += result["mark"]["rows"]
            self.done += self.sizes[shard.name]
        now = time.monotonic()
        seconds = max(1e-9, now - self.began)
        line = f"{self.shards:,} of {_count(self.total, 'shard')}"
        line += f", {self.failed:,} failed" if self.failed else ""
        if self.done:
            line += f"  {self.rows / seconds:,.0f} rows/s  {duration(seconds / self.done * self.left)} left"
        if self.progress.live:
            self.status.update(line)
        elif self.done and (now - self.last > LINE_EVERY or self.shards == self.total):
            self.last = now
            self.progress.say(line)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _size(path: Path) -> int:
    try:
        return max(1, path.stat().st_size)
    except OSError:  # it is gone meanwhile, which its worker will say
        return 1


def summarise(out: str, report: "BatchReport") -> None:
    """Print what was done; failed shards are an error."""
    kept = f", {report.kept:,} {'was' if report.kept == 1 else 'were'} there" if report.kept else ""
    print(f"qkv: {out}: {_count(report.done, 'shard')} done, {_count(report.rows, 'row')}{kept}", file=sys.stderr)
    for reason in report.failed[:SHOWN]:
        print(f"qkv: {reason}", file=sys.stderr)
    if report.failed:
        total = _count(report.done + report.kept + len(report.failed), "shard")
        raise DataError(f"{len(report.failed):,} of {total} failed; mend what is wrong and run the same command again")

"""The experiment of a claim: variants x seeds, cell by cell, on this machine or a Ray cluster.

A finished cell is a small JSON file, written whole, whose name is a digest of everything that decides its figures: claim, code
of its file, variant, settings, seed, device and text. A rerun computes the cells that are missing. Other code of qkv may have
changed since a cell was computed: each cell remembers a digest of the package, and the result says how many come from other code.
"""

import contextlib
import functools
import hashlib
import json
import math
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from qkv.base.errors import ConfigError, DataError, QkvError
from qkv.base.files import atomic_file, check_writable, digest, partial_path
from qkv.base.hardware import choose_device, cpu_cores, describe_device
from qkv.base.pool import LocalWorkers, Workers, run_tasks
from qkv.base.provenance import package_digest
from qkv.claims.claim import LIBRARY, Cell, NamedClaim, find_claim
from qkv.claims.verdict import Verdict, decide
from qkv.training.progress import duration

QUICK_SEEDS = 3
CELLS, WORK = "cells", "work"  # folders in that of a claim; the second while it is run


@dataclass(frozen=True)
class RunOptions:
    """How a claim is run."""

    size: str = "cpu"
    seeds: int | None = None  # how many: the claim's number, or QUICK_SEEDS
    first_seed: int = 1
    text: Path | None = None
    workers: int | None = None  # processes; one for a claim that measures time, and on a GPU
    on: str = "local"  # or ray
    fresh: bool = False  # compute all cells again


@dataclass(frozen=True)
class Result:
    """The figures of a claim with the verdict on them."""

    named: NamedClaim
    size: str
    seeds: list[int]
    figures: Mapping[str, Mapping[str, list[Any]]]  # variant -> figure -> one value, or curve, for each seed
    verdict: Verdict
    facts: Mapping[str, Any] = field(default_factory=dict)  # date, device, cost, code

    def values(self, variant: str, figure: str) -> list[Any]:
        """Return the figure of a variant for each seed."""
        return self.figures[variant][figure]

    @property
    def preliminary(self) -> str:
        """Why the verdict is not a full one; "" where it is."""
        if self.size == "quick":
            return "quick"
        return f"{len(self.seeds)} of {self.named.claim.seeds} seeds" if len(self.seeds) < self.named.claim.seeds else ""


@dataclass(frozen=True)
class _Task:
    """A cell to compute, with the file of its result."""

    file: Path
    key: dict[str, Any]


def run_claim(name: str, out: Path, options: RunOptions, say: Callable[[str], None] = print) -> Result:
    """Compute the cells that are missing, and return the figures with the verdict."""
    (result,) = run_claims([name], out, options, say)
    return result


def run_claims(names: Sequence[str], out: Path, options: RunOptions, say: Callable[[str], None] = print) -> Iterator[Result]:
    """Compute the missing cells of claims, and yield each claim's result when its last cell is done.

    Cells of all claims keep the workers busy together; claims that measure time come last, one after the other.
    """
    claims = {named.name: named for named in map(find_claim, names)}
    tasks = {name: plan(named, out / name, options) for name, named in claims.items()}
    missing = {name: [task for task in some if options.fresh or _read(task) is None] for name, some in tasks.items()}
    for name, some in tasks.items():
        if len(missing[name]) < len(some):
            say(f"{name}: {len(some) - len(missing[name])} of {len(some)} cells were computed before")
        if not missing[name]:
            yield collect(claims[name], some, options)
    begun = [claims[name] for name in claims if missing[name]]
    for group in ([one for one in begun if not one.claim.timed], *([one] for one in begun if one.claim.timed)):
        for name in _compute(group, {one.name: missing[one.name] for one in group}, out, options, say):
            yield collect(claims[name], tasks[name], options)


def plan(named: NamedClaim, folder: Path, options: RunOptions) -> list[_Task]:
    """Return all cells, seed by seed; refuse options that cannot work."""
    claim = named.claim
    if options.size not in claim.sizes:
        raise ConfigError(f"{named.name} has no size {options.size}; leave --size out, or choose --quick")
    if options.text is not None and not claim.uses_text:
        raise ConfigError(f"{named.name} does not read text; leave --text out")
    if options.text is not None and not options.text.is_file():
        raise DataError(f"{options.text}: no such file; --text takes a file of plain text")
    if options.on not in ("local", "ray"):
        raise ConfigError(f"--on {options.on} is not known; choose local or ray")
    if options.on == "ray" and claim.timed:
        raise ConfigError(f"{named.name} measures time, one cell after the other; leave --on out")
    device = "cuda" if options.size == "gpu" else "cpu"
    if options.on == "local" and device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--size gpu: torch sees no GPU here; leave --size out, or add --on ray")
    seeds = options.seeds or (QUICK_SEEDS if options.size == "quick" else claim.seeds)
    tasks = []
    for seed in range(options.first_seed, options.first_seed + seeds):
        for variant in claim.variants:
            key = {
                "claim": named.name, "code": named.code, "variant": variant, "settings": claim.settings(options.size, variant),
                "seed": seed, "device": device, "text": digest(options.text) if options.text else None,
            }  # fmt: skip
            text = json.dumps(key, sort_keys=True)
            tasks.append(_Task(folder / CELLS / f"{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}.json", key))
    return tasks


def _read(task: _Task) -> dict[str, Any] | None:
    """Return a finished cell; None where there is none."""
    try:
        found = json.loads(task.file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        raise DataError(f"{task.file}: damaged; delete it, and the cell is computed again") from None
    return found


def _compute(
    claims: Sequence[NamedClaim], missing: Mapping[str, list[_Task]], out: Path, options: RunOptions, say: Callable[[str], None]
) -> Iterator[str]:
    """Compute cells, write each when it is done, show the time left, and yield the name of each claim that is complete."""
    text = str(options.text.resolve()) if options.text else None
    cells, inputs, work = list[tuple[str, _Task]](), list[dict[str, Any]](), dict[str, Path]()
    for named in claims:
        check_writable(out / named.name / WORK)  # also deletes what killed runs left there
        work[named.name] = partial_path(out / named.name / WORK).resolve()
        shared = {
            "claim": named.name if named.file.parent == LIBRARY else str(named.file.resolve()), "text": text,
            "work": str(work[named.name]) if options.on == "local" else None,
        }  # fmt: skip
        cells += [(named.name, task) for task in missing[named.name]]
        inputs += [{**shared, "key": task.key} for task in missing[named.name]]
    unfinished, began = Counter(name for name, _ in cells), time.monotonic()
    with contextlib.ExitStack() as stack:
        for folder in work.values():
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for done, (number, answer) in enumerate(_answers(inputs, _worker_count(claims, len(cells), options), options), 1):
            name, task = cells[number]
            with atomic_file(task.file) as aside:
                aside.write_text(json.dumps({"key": task.key, **answer}, indent=1, sort_keys=True), encoding="utf-8")
            seconds = (time.monotonic() - began) / done * (len(cells) - done)
            shown = "  ".join(f"{figure} {value:.4g}" for figure, value in answer["figures"].items() if isinstance(value, float))
            say(
                f"{done}/{len(cells)}  {f'{name}: ' if len(claims) > 1 else ''}{task.key['variant']}, seed {task.key['seed']}: "
                f"{shown}  ({duration(answer['seconds'])}" + (f"; {duration(seconds)} left)" if done < len(cells) else ")")
            )
            unfinished[name] -= 1
            if not unfinished[name]:
                shutil.rmtree(work[name], ignore_errors=True)
                yield name


def _worker_count(claims: Sequence[NamedClaim], cells: int, options: RunOptions) -> int:
    if any(named.claim.timed for named in claims):
        return 1
    if options.on == "ray" and options.workers is None:
        from qkv.distributed.ray_workers import cluster_size

        return max(1, min(cells, cluster_size(options.size == "gpu")))
    return min(cells, options.workers or (1 if options.size == "gpu" else cpu_cores()))


def _answers(tasks: list[dict[str, Any]], count: int, options: RunOptions) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the answer of each cell as it is done: in this process, or by workers."""
    if count <= 1 and options.on == "local":
        compute = CellWorker()
        for number, task in enumerate(tasks):
            yield number, compute(**task)
        return
    name, variables = f"{CellWorker.__module__}:{CellWorker.__qualname__}", {"OMP_NUM_THREADS": "1"}
    if options.on == "ray":
        from qkv.distributed.ray_workers import RayWorkers

        workers: Workers = RayWorkers(name, {}, options.size == "gpu", variables)
    else:
        workers = LocalWorkers(name, {}, variables=variables)
    for number, answer, lost in run_tasks(workers, count, tasks):
        if lost:
            raise QkvError(f"{lost}; run the same command again with fewer --workers, finished cells are kept")
        yield number, answer


class CellWorker:
    """Computes cells, one after the other, on one core; the number of processes changes no figure."""

    def __init__(self) -> None:
        self.find = functools.cache(find_claim)

    def __call__(self, claim: str, key: dict[str, Any], text: str | None, work: str | None) -> dict[str, Any]:
        """Compute a cell; return its figures, seconds, device, date and the digest of the package."""
        named = self.find(claim)
        began, cpu = time.monotonic(), time.process_time()
        try:
            with _one_thread(), _folders(work) as folder:
                cell = Cell(key["variant"], key["seed"], key["settings"], key["device"], folder, Path(text) if text else None)
                figures = {name: _plain(name, value) for name, value in named.claim.measure(cell).items()}
            if missing := set(named.claim.units) - set(figures):
                raise ConfigError(f"measure returns no {', '.join(sorted(missing))}, which units names")
        except QkvError as error:
            raise type(error)(f"{named.name}, {key['variant']}, seed {key['seed']}: {error}") from error
        return {
            "figures": figures, "seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - cpu,
            "device": describe_device(choose_device(key["device"])),
            "date": datetime.now(UTC).strftime("%Y-%m-%d"), "package": package_digest(),
        }  # fmt: skip


def _plain(name: str, value: Any) -> float | list[float]:
    """Return a figure as plain numbers; refuse one that is not finite, which no rule could judge."""
    numbers = [float(one) for one in value] if hasattr(value, "__len__") else [float(value)]
    if not all(map(math.isfinite, numbers)):
        raise DataError(f"the figure {name} is {value}; let measure say what a run that diverged counts as")
    return numbers if hasattr(value, "__len__") else numbers[0]


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _folders(work: str | None) -> Iterator[Path]:
    """Yield a folder for one cell, beside a cache of token ids that the cells of a process share."""
    base = Path(work or Path(tempfile.gettempdir()) / "qkv-claims")
    base.mkdir(parents=True, exist_ok=True)
    before = os.environ.get("QKV_CACHE")
    with tempfile.TemporaryDirectory(dir=base) as folder:
        os.environ["QKV_CACHE"] = str(base / f"cache-{os.getpid()}")
        try:
            yield Path(folder)
        finally:
            if before is None:
                del os.environ["QKV_CACHE"]
            else:
                os.environ["QKV_CACHE"] = before


def collect(named: NamedClaim, tasks: Sequence[_Task], options: RunOptions) -> Result:
    """Gather the figures of finished cells, and judge them."""
    claim = named.claim
    figures: dict[str, dict[str, list[Any]]] = {variant: {} for variant in claim.variants}
    cells = [_read(task) or {} for task in tasks]
    for task, cell in zip(tasks, cells, strict=True):
        for name, value in cell["figures"].items():
            figures[task.key["variant"]].setdefault(name, []).append(value)
    facts = {
        "date": max(cell["date"] for cell in cells),
        "device": ", ".join(sorted({cell["device"] for cell in cells})),
        "seconds": round(sum(cell["seconds"] for cell in cells), 1),
        "cpu_seconds": round(sum(cell["cpu_seconds"] for cell in cells), 1),  # what counts on a machine with other work
        "cells": len(cells),
        "cells from other code": sum(cell["package"] != package_digest() for cell in cells),
        "package": package_digest(),
        "text": str(options.text) if options.text else "",
    }
    seeds = sorted({task.key["seed"] for task in tasks})
    return Result(named, options.size, seeds, figures, decide(figures, claim.parts, claim.controls, claim.further), facts)

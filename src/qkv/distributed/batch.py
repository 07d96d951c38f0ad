"""Batch work: a verb over many shards, each shard a pure function of its content, its name, the run and the options.

`manifest.json` in the folder of outputs says what is done there: the verb, the digest of the run, the options, and for each shard
the digests of input and output and the number of rows. `.done/NAME.json` is the mark of one complete output; it is written after
it, by whoever made it. The same command again does what has no mark. All files are written whole.
"""

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import qkv
from qkv.base.config import Config, parse
from qkv.base.errors import ConfigError, DataError, QkvError
from qkv.base.files import atomic_file, digest
from qkv.base.hardware import compute_on_one_core
from qkv.base.pool import Workers, run_tasks
from qkv.base.urls import (
    exists,
    fetch,
    file_name,
    find_info,
    is_url,
    join,
    read_bytes,
    read_files,
    refuse_read_only,
    write_object,
)
from qkv.distributed.manifest import BATCH_MANIFEST, DONE, ManifestHeader, begin_outputs, read_manifest, write_json
from qkv.distributed.shard_writers import write_shard
from qkv.distributed.shards import Chunk, Shard, find_shards, format_of, output_name, read_chunks
from qkv.distributed.verbs import VERBS, BatchVerb, VerbOptions
from qkv.folder.run import CONFIG, MANIFEST, find_weights, is_exported, read_recipe
from qkv.inference.confidence import CONFIDENCE
from qkv.recipes import RECIPE

WORK = "qkv.distributed.batch:BatchWork"


class BatchPlan(Config):
    """One command of batch work, but for its shards; plain values, to be sent anywhere."""

    verb: str
    run: str  # folder
    out: str  # folder or URL
    options: dict[str, Any]  # of the verb
    digest: str  # of the files of the run, and of those that the options name
    device: str = "auto"

    @property
    def verb_options(self) -> VerbOptions:
        return parse(VERBS[self.verb][0], self.options, f"options of {self.verb}")

    @property
    def command(self) -> str:
        """A digest of all that decides an output, but for the shard."""
        return _hash([self.verb, self.digest, json.dumps(self.options, sort_keys=True)])

    @property
    def header(self) -> ManifestHeader:
        """What a folder of this command's outputs is for."""
        return ManifestHeader(verb=self.verb, run_digest=self.digest, options=self.options)

    def output(self, shard: str) -> str:
        """Return the name of a shard's output."""
        kind = VERBS[self.verb][0]
        return output_name(shard, kind.suffix or (kind.text_suffix if format_of(shard) == "text" else ""))


class ShardMark(Config):
    """The mark of a complete output. Tags are those of `base.urls`: etags of objects, digests of local files."""

    input: str
    input_digest: str
    output: str
    output_digest: str
    rows: int
    input_tag: str
    output_tag: str
    command: str


def plan_batch(verb: str, run: str | Path, out: str, device: str = "auto", **options: Any) -> BatchPlan:
    """Return the plan of a command, with options checked, the run's digest taken, and the folder of outputs begun.

    A folder that holds other files, or outputs of another command, is refused.
    """
    if verb not in VERBS:
        raise ConfigError(f"no verb {verb!r} for batch work; known are {', '.join(VERBS)}")
    refuse_read_only(out)
    parsed = parse(VERBS[verb][0], options, f"options of {verb}")
    values = parsed.model_dump(mode="json")
    for name in parsed.needs:
        values[name] = None if values[name] is None else str(Path(values[name]).expanduser().resolve())
    folder = Path(run).expanduser().resolve()
    place = out if is_url(out) else str(Path(out).expanduser().resolve())
    digest_of_all = files_digest(folder, *(values[name] for name in parsed.needs if values[name] is not None))
    plan = BatchPlan(verb=verb, run=str(folder), out=place, options=values, digest=digest_of_all, device=device)
    begin_outputs(place, plan.header)
    return plan


def files_digest(run: Path, *others: str) -> str:
    """Return a digest of a run's files that decide its outputs, and of other files and runs."""
    found = []
    for path in (run, *map(Path, others)):
        files = [path]
        if is_exported(path):
            files = [path / MANIFEST]  # it has the digests of the others, which are compared when it is loaded
        elif path == run or path.is_dir():
            weights = find_weights(path, read_recipe(path)).path
            files = [path / RECIPE, path / CONFIG, path / CONFIDENCE, *sorted(path.glob("tokenizer*.json")), weights]
        try:
            found += [f"{file.name} {digest(file)}" for file in files if file.exists() or len(files) == 1]
        except OSError as error:
            raise DataError(f"{error.filename}: cannot be read: {error.strerror}") from None
    return _hash(found)


def _hash(parts: Sequence[str]) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


class BatchWork:
    """The work of one worker: call it with a shard. The run is loaded when the first shard is not there yet.

    >>> work = BatchWork(**plan.model_dump())
    >>> work("s3://bucket/texts/0001.jsonl", "0001.jsonl")
    """

    def __init__(self, **plan: Any):
        self.plan = parse(BatchPlan, plan, "a plan of batch work")

    @cached_property
    def verb(self) -> BatchVerb:
        """The loaded run. It must be the same wherever a worker runs."""
        plan, options = self.plan, self.plan.verb_options
        named = [getattr(options, name) for name in options.needs if getattr(options, name) is not None]
        if files_digest(Path(plan.run), *named) != plan.digest:
            raise ConfigError(f"{plan.run}: not the same files here as where the command began; copy the run to all machines")
        compute_on_one_core()
        return VERBS[plan.verb][1](Path(plan.run), plan.device, options)

    def __call__(self, location: str, name: str) -> dict[str, Any]:
        """Make a shard's output, unless it is there; return its mark, or why it failed, as plain values."""
        output = join(self.plan.out, self.plan.output(name))
        mark = join(self.plan.out, DONE, f"{file_name(output)}.json")
        try:
            known = _parse_mark(self.plan, read_bytes(mark)) if exists(mark) else None
            if known is not None and known.input != location:
                raise DataError(f"{output} is the output of {known.input}; choose another --out")
            # An input whose server keeps no tag may have changed.
            if known is not None and known.input_tag and known.input_tag == find_info(location).tag and exists(output):
                if known.output_tag != find_info(output).tag:
                    raise DataError(f"{output} has changed since it was written; delete it to have it made again")
                return {"mark": known.model_dump(), "kept": True}
        except QkvError as error:
            return {"failed": _about(location, error)}
        verb = self.verb  # an error here is one of the run or of the options, and ends the command
        try:
            with tempfile.TemporaryDirectory(prefix="qkv-batch-") as folder:
                made = self._make(verb, Shard(location, name), output, Path(folder))
        except (_DamagedShardError, DataError) as error:
            return {"failed": _about(location, error)}
        write_json(mark, made.model_dump())
        return {"mark": made.model_dump(), "kept": False}

    def _make(self, verb: BatchVerb, shard: Shard, output: str, folder: Path) -> ShardMark:
        """Compute and write the output of a shard; `folder` is for local copies of objects."""
        path = Path(shard.location)
        try:
            before = find_info(shard.location).tag
            if is_url(shard.location):
                path = folder / shard.name
                fetch(shard.location, path)
            input_digest = digest(path)
        except QkvError as error:
            raise _DamagedShardError(str(error)) from None
        except OSError as error:
            raise _DamagedShardError(f"cannot be read: {error.strerror or error}") from None
        with _written(output, folder) as aside:
            rows = write_shard(aside, file_name(output), verb, self._computed(verb, shard, path))
            output_digest = digest(aside)
        return ShardMark(
            input=shard.location, input_digest=input_digest, output=file_name(output), output_digest=output_digest, rows=rows,
            input_tag=before, output_tag=find_info(output).tag, command=self.plan.command,
        )  # fmt: skip

    def _computed(self, verb: BatchVerb, shard: Shard, path: Path) -> Iterator[tuple[Chunk, Any]]:
        """Yield the rows of a shard with their outputs; what is wrong with them is wrong with this shard alone."""
        first = 0
        try:
            for chunk in read_chunks(path, verb.columns):
                try:
                    outputs = verb.compute(chunk.values, shard.name, first)
                except QkvError as error:
                    begin, end = min(chunk.numbers, default=0), max(chunk.numbers, default=0)
                    raise _DamagedShardError(f"in rows {begin:,} to {end:,}: {error}") from None
                yield chunk, outputs
                first += len(chunk.values)
        except DataError as error:
            raise _DamagedShardError(str(error).removeprefix(f"{path}: ")) from None


class _DamagedShardError(QkvError):
    """A shard that cannot be read, or with a row that cannot be computed."""


def _about(location: str, error: QkvError) -> str:
    text = str(error)
    return text if text.startswith(location) else f"{location}: {text}"


@contextlib.contextmanager
def _written(location: str, folder: Path) -> Iterator[Path]:
    """Yield a path to write to; on exit its content appears at the location, whole."""
    if not is_url(location):
        with atomic_file(Path(location)) as aside:
            yield aside
        return
    aside = folder / f"output-{file_name(location)}"
    yield aside
    write_object(location, aside)


# A whole command


class BatchReport(NamedTuple):
    """Counts of the shards of a command, and why some failed."""

    done: int
    kept: int  # made by an earlier command
    rows: int  # of those done now
    failed: list[str]


def run_batch(
    plan: BatchPlan, shards: Sequence[Shard], workers: Workers, count: int, show: Callable[[Shard, dict[str, Any]], None]
) -> BatchReport:
    """Do all shards with a pool of workers, then write the manifest; `show` is called with each shard and its result."""
    outputs: dict[str, Shard] = {}
    for shard in shards:
        if (other := outputs.setdefault(plan.output(shard.name), shard)) is not shard:
            name = plan.output(shard.name)
            raise ConfigError(f"{other.location} and {shard.location} would both be written to {name}; do them apart")
    results: list[dict[str, Any]] = []
    tasks = [shard._asdict() for shard in shards]
    with contextlib.closing(run_tasks(workers, count, tasks)) as finished:
        for task, result, lost in finished:
            results.append(result or {"failed": f"{shards[task].location}: {lost}"})
            show(shards[task], results[-1])
    return finish_batch(plan, results)


def finish_batch(plan: BatchPlan, results: Iterable[dict[str, Any]]) -> BatchReport:
    """Write the manifest, with all shards that have a mark; `results` are what `BatchWork` returned for those of this command.

    A folder that another command has taken meanwhile, with other options, is refused.
    """
    found = list(results)
    failed = sorted(one["failed"] for one in found if "failed" in one)
    known = read_manifest(plan.out)
    if any(known[name] != value for name, value in plan.header.model_dump(mode="json").items()):
        raise ConfigError(f"{plan.out}: another command with other options writes there too; do it again with another --out")
    made_with = {"qkv": qkv.__version__, "run": plan.run}
    written = None
    # A command for other shards may write it at the same time; whoever is the last to do so has seen all marks.
    while (shards := _marked_shards(plan)) != written:
        write_json(join(plan.out, BATCH_MANIFEST), {**known, "shards": shards, "complete": not failed, "made_with": made_with})
        written = shards
    done = [one for one in found if "mark" in one]
    new = [one for one in done if not one["kept"]]
    return BatchReport(len(new), len(done) - len(new), sum(one["mark"]["rows"] for one in new), failed)


def _marked_shards(plan: BatchPlan) -> dict[str, dict[str, Any]]:
    """Return what the manifest says of each shard with a mark, by the names of the outputs."""
    marks = [mark for data in read_files(join(plan.out, DONE)).values() if (mark := _parse_mark(plan, data))]
    return {mark.output: mark.model_dump(include={"input", "input_digest", "output_digest", "rows"}) for mark in marks}


def _parse_mark(plan: BatchPlan, data: bytes) -> ShardMark | None:
    """Return a shard's mark; None if it is damaged, or of another command."""
    try:
        found = ShardMark.model_validate_json(data)
    except ValueError:
        return None
    return found if found.command == plan.command else None


__all__ = ["BatchPlan", "BatchReport", "BatchWork", "find_shards", "finish_batch", "plan_batch", "run_batch"]

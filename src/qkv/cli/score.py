"""qkv score RUN FILE|-: print the log-probability of each line of text, or of each pair."""

import itertools
from pathlib import Path
from typing import Annotated, Any

import typer

from qkv.base.errors import ConfigError
from qkv.base.files import atomic_file
from qkv.cli.batch import BatchOptions, On, WorkerCount, run_batch_command
from qkv.cli.lines import input_lines
from qkv.cli.options import Device, run_folder

CHUNK = 2048  # lines scored at once


def score_command(
    run: Annotated[
        Path,
        typer.Argument(
            parser=run_folder, metavar="RUN", help="Folder of the run of a language model, an encoder or a translator."
        ),
    ],
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Text file, one text per line, for a translator a source, a tab and a target; - for standard input; or shards.",
        ),
    ],
    out: Annotated[
        str | None, typer.Option(help="File to write; for shards a folder or a URL; standard output by default.")
    ] = None,
    how: Annotated[
        str | None, typer.Option(help="left: each token given those before; each: given all others; by default the model's own.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column", help="Shards of JSONL or Parquet: text; for a translator give two, by default source and target."
        ),
    ] = None,
    on: On = None,
    workers: WorkerCount = None,
    device: Device = "auto",
) -> None:
    """Score texts by their log-probability, in nats; higher is likelier.

    A translator scores a target given its source.
    """
    from qkv.distributed.verbs import ScoreOptions, ScoreVerb

    options: dict[str, Any] = {"how": how, **_column_names(column)}
    given = BatchOptions(files, out, on, workers, device)
    if given.asked or given.many:
        run_batch_command("score", run, given, options)
        return
    if out is not None and Path(out).exists():
        raise ConfigError(f"{out} exists already; choose another --out")
    verb = ScoreVerb(run, device, ScoreOptions(**options))
    lines = input_lines(Path(files[0]))
    found: list[str] = []
    first = 0
    while chunk := list(itertools.islice(lines, CHUNK)):
        values = chunk if len(verb.columns) == 1 else [_pair(line, first + index) for index, line in enumerate(chunk, 1)]
        scores = list(verb.lines(values, verb.compute(values, "", first)))
        first += len(chunk)
        if out is None:
            print("\n".join(scores))
        found += scores if out is not None else []
    if out is not None:
        with atomic_file(Path(out)) as path:
            path.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")


def _column_names(given: list[str] | None) -> dict[str, str]:
    if not given:
        return {}
    if len(given) > 2:
        raise ConfigError("--column names the text, or a translator's source and target; give it once or twice")
    return {"column": given[0]} if len(given) == 1 else {"source": given[0], "target": given[1]}


def _pair(line: str, number: int) -> tuple[str, str]:
    source, tab, target = line.partition("\t")
    if not tab or "\t" in target:
        raise ConfigError(f"line {number:,}: a translator scores pairs; give a source, one tab and a target on each line")
    return source, target

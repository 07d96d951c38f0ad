"""qkv embed RUN FILE|-: print a vector for each line of text."""

import itertools
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from qkv.base.errors import ConfigError, DataError
from qkv.base.files import atomic_file
from qkv.cli.batch import BatchOptions, Column, On, WorkerCount, run_batch_command
from qkv.cli.lines import input_lines
from qkv.cli.options import Device, run_folder

CHUNK = 4096  # lines read at once


def embed_command(
    run: Annotated[Path, typer.Argument(parser=run_folder, metavar="RUN", help="Folder of an encoder's or a GPT's run.")],
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Text file, one text per line; may be .gz, .xz or .zst; - for standard input; or shards.",
        ),
    ],
    out_place: Annotated[
        str | None,
        typer.Option(
            "--out",
            help="Write a NumPy array (.npy) to this file, for shards to a folder or a URL; without it, print the numbers.",
        ),
    ] = None,
    layer: Annotated[
        str, typer.Option(help="0 for the embeddings, 1 for the first layer, -1 for the last; mix for ELMo's weighted sum.")
    ] = "-1",
    pooling: Annotated[
        str, typer.Option(help="mean of a text's tokens, or cls: its first token (for a GPT, its last).")
    ] = "mean",
    normalise: Annotated[bool, typer.Option("--normalise", help="Scale every vector to length 1.")] = False,
    on: On = None,
    workers: WorkerCount = None,
    column: Column = "text",
    device: Device = "auto",
) -> None:
    """Embed each line of text as a vector."""
    import numpy as np

    from qkv.inference.text_encoder import load_text_encoder

    options: dict[str, Any] = {"pooling": pooling, "layer": _parse_layer(layer), "normalise": normalise}
    batch = BatchOptions(files, out_place, on, workers, device)
    if batch.asked or batch.many:
        run_batch_command("embed", run, batch, {**options, "column": column})
        return
    file, out = Path(files[0]), Path(out_place) if out_place is not None else None
    if out is not None and out.exists():
        raise ConfigError(f"{out} exists already; choose another --out")
    encoder = load_text_encoder(run, device)
    encoder.embed([], **options)  # refuses a wrong option before the text is read
    lines, chunks = input_lines(file), []
    while texts := list(itertools.islice(lines, CHUNK)):
        vectors = encoder.embed(texts, **options)
        if out is None:
            np.savetxt(sys.stdout, vectors, fmt="%.6g", delimiter="\t")
        else:
            chunks.append(vectors)
    if out is None:
        return
    if not chunks:
        raise DataError(f"no text to embed in {file}; give one text per line")
    with atomic_file(out) as partial, partial.open("wb") as stream:
        np.save(stream, np.concatenate(chunks))
    print(f"{out}: {sum(map(len, chunks)):,} vectors of {chunks[0].shape[1]:,} numbers")


def _parse_layer(given: str) -> int | str:
    """Return a layer's number, or mix."""
    if given == "mix":
        return given
    try:
        return int(given)
    except ValueError:
        raise ConfigError(f"--layer {given} is no layer; give a number, or mix for an elmo") from None

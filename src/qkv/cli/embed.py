"""qkv embed RUN FILE|-: a vector for each line of text."""

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from qkv.base.errors import ConfigError, DataError
from qkv.base.files import atomic_file
from qkv.cli.lines import lines_of, warnings_as_lines

TOGETHER = 4096  # lines read at once


def embed_command(
    run: Annotated[Path, typer.Argument(help="The run's folder: any encoder.")],
    file: Annotated[Path, typer.Argument(help="Text, a line each, may be .gz, .xz or .zst; - for standard input.")],
    out: Annotated[
        Path | None, typer.Option(help="Write a NumPy array there; numbers to standard output when not given.")
    ] = None,
    layer: Annotated[
        str, typer.Option(help="0 for the embeddings, 1 for the first layer; -1 for the last; mix: an ELMo's.")
    ] = "-1",
    how: Annotated[str, typer.Option(help="mean over a text's tokens, or cls: its first token, of a GPT its last.")] = "mean",
    normalise: Annotated[bool, typer.Option("--normalise", help="Make every vector 1 long.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Turn lines of text into vectors."""
    import numpy as np

    from qkv.inference.text_encoder import load_text_encoder

    if out is not None and out.exists():
        raise ConfigError(f"{out} exists already; choose another --out")
    reader = load_text_encoder(run, device)
    options: dict[str, Any] = {"how": how, "layer": _layer(layer), "normalise": normalise}
    reader.embed([], **options)  # a wrong option shows before the text is read
    found = (_embedded(reader, chunk, options) for chunk in _chunks(lines_of(file)))
    if out is None:
        for vectors in found:
            np.savetxt(sys.stdout, vectors, fmt="%.6g", delimiter="\t")
        return
    all_vectors = [*found]
    if not all_vectors:
        raise DataError(f"{file}: no text there; a text a line is wanted")
    with atomic_file(out) as aside, aside.open("wb") as stream:
        np.save(stream, np.concatenate(all_vectors))
    count = sum(map(len, all_vectors))
    print(f"{out}: {count:,} vectors of {all_vectors[0].shape[1]:,} numbers")


def _layer(given: str) -> int | str:
    """The number of a layer, or mix."""
    if given == "mix":
        return given
    try:
        return int(given)
    except ValueError:
        raise ConfigError(f"--layer {given} is no layer; give a number, or mix for an elmo") from None


def _embedded(reader: Any, texts: list[str], options: dict[str, Any]) -> Any:
    """The vectors of some texts."""
    with warnings_as_lines():
        return reader.embed(texts, **options)


def _chunks(lines: Iterator[str]) -> Iterator[list[str]]:
    while chunk := list(itertools.islice(lines, TOGETHER)):
        yield chunk

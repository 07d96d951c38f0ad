"""qkv translate RUN [FILE]: lines in, lines out, in the same order."""

import queue
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from qkv.cli.lines import lines_of, warnings_as_lines

if TYPE_CHECKING:
    from qkv.inference.translator import Output, Translator

TOGETHER = 512  # lines translated at once
WAITING = object()  # no line has come for a moment


def translate_command(
    run: Annotated[Path, typer.Argument(help="The run's folder, or one that `qkv export` wrote.")],
    file: Annotated[Path | None, typer.Argument(help="A text file; standard input when not given, or -.")] = None,
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept side by side; 1 is greedy.")] = None,
    n_best: Annotated[int, typer.Option(help="Translations printed for each line, best first.")] = 1,
    length_penalty: Annotated[float | None, typer.Option(help="Higher prefers longer translations.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Print each score before its translation.")] = False,
    alignments: Annotated[bool, typer.Option("--alignments", help="Print source-target word links after it.")] = False,
    prefix: Annotated[str | None, typer.Option(help="What every translation must begin with; a task's is in the text.")] = None,
    words: Annotated[Path | None, typer.Option(help="A file of words: translations use no others.")] = None,
    sampling: Annotated[bool, typer.Option("--sample", help="Draw at random instead of searching for the best.")] = False,
    temperature: Annotated[float | None, typer.Option(help="With --sample: below 1 sharpens.")] = None,
    top_k: Annotated[int | None, typer.Option(help="With --sample: draw from so many words.")] = None,
    top_p: Annotated[float | None, typer.Option(help="With --sample: draw from this share of probability.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Any key of `decoding`: key=value.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    engine: Annotated[str | None, typer.Option(help="own, ctranslate2 (fast on a CPU) or onnx; a run is converted once.")] = None,
    precision: Annotated[str | None, typer.Option(help="With --engine ctranslate2: float32, int8 or bf16.")] = None,
) -> None:
    """Translate lines of text; an empty line stays empty."""
    from qkv.base.config import with_settings
    from qkv.inference.translator import Output, load
    from qkv.text.treebank import TextWithHeads

    lines = lines_of(file)
    given = {"beam": beam, "n_best": n_best, "length_penalty": length_penalty, "sampling": sampling or None,
             "temperature": temperature, "top_k": top_k, "top_p": top_p}  # fmt: skip
    options = with_settings({name: value for name, value in given.items() if value is not None}, settings or [])
    translator = load(run, device, engine, precision)
    if not sampling and "beam" not in options:
        options["beam"] = max(n_best, translator.recipe.decoding.beam)
    wanted = translator.decoding(**options).n_best  # a wrong option shows before the first line is read
    vocabulary = [word for line in lines_of(words) for word in line.split()] if words is not None else None
    with warnings_as_lines(), _progress() as progress:
        task, done = progress.add_task("translating", total=None), 0
        for chunk in _chunks(lines):
            if translator.trees:
                chunk = [TextWithHeads.from_line(line, f"line {done + number}") for number, line in enumerate(chunk, 1)]
            prefixes = None if prefix is None else [prefix] * len(chunk)
            for outputs in translator.n_best(chunk, prefixes, vocabulary, first=done, **options):
                # So many lines for each line in, even where there are fewer translations, or readers would lose their place.
                for output in [*outputs, *[Output("", 0.0)] * (wanted - len(outputs))]:
                    print(_line(output, translator, scores, alignments))
            sys.stdout.flush()
            done += len(chunk)
            progress.update(task, completed=done)


def _line(output: "Output", translator: "Translator", scores: bool, alignments: bool) -> str:
    fields = [f"{output.score:.4f}"] if scores else []
    fields.append(output.text)
    if alignments:
        fields.append(" ".join(f"{source}-{target}" for source, target in translator.alignment(output)))
    return "\t".join(fields)


def _chunks(lines: Iterator[str]) -> Iterator[list[str]]:
    """What has come in so far, up to TOGETHER lines: a slow reader gets each answer at once, a fast one full batches."""
    ready: queue.Queue[str | Exception | None] = queue.Queue(4 * TOGETHER)

    def read() -> None:
        try:
            for line in lines:
                ready.put(line)
            ready.put(None)
        except Exception as error:
            ready.put(error)

    threading.Thread(target=read, daemon=True).start()
    item: object = ready.get()
    while isinstance(item, str):
        chunk = [item]
        item = _next(ready)
        while isinstance(item, str) and len(chunk) < TOGETHER:
            chunk.append(item)
            item = _next(ready)
        yield chunk
        item = ready.get() if item is WAITING else item
    if isinstance(item, Exception):
        raise item


def _next(ready: "queue.Queue[str | Exception | None]") -> "str | Exception | object | None":
    try:
        return ready.get(timeout=0.02)
    except queue.Empty:
        return WAITING


def _progress() -> Progress:
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} lines"),
        TimeElapsedColumn(),
    )
    # On a terminal the translations themselves show the progress.
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal or sys.stdout.isatty())

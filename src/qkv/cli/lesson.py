"""qkv lesson RUN: make a lesson for a class, one offline page with the run's own numbers and sentences."""

from pathlib import Path
from typing import Annotated

import typer

from qkv.cli.options import Device, check_out, run_folder


def lesson_command(
    run: Annotated[
        Path,
        typer.Argument(
            parser=run_folder,
            metavar="RUN",
            help="Folder of a translator's, a GPT's or a pretrained encoder's run, with attention.",
        ),
    ],
    text: Annotated[
        list[str] | None,
        typer.Option(help="A sentence; give it several times for several. By default some of the run's own dev texts."),
    ] = None,
    out: Annotated[Path, typer.Option(help="File to write: lesson.html, or numbers.json.")] = Path("lesson.html"),
    device: Device = "auto",
) -> None:
    """Make a lesson in six steps, from words to the translation, the next word or the hidden word."""
    check_out(out, ".html", ".json")
    from qkv.inference.lesson import lesson

    print(lesson(run, text, device).save(out))

"""qkv predict RUN FILE: print a fine-tuned encoder's predictions."""

from pathlib import Path
from typing import Annotated

import typer

from qkv.base.errors import ConfigError
from qkv.base.files import atomic_file
from qkv.cli.options import Device, run_folder


def predict_command(
    run: Annotated[Path, typer.Argument(parser=run_folder, metavar="RUN", help="Folder of a fine-tuned encoder's run.")],
    file: Annotated[
        Path, typer.Argument(help="Examples in the format of training, without labels; or .txt, one text per line; not -.")
    ],
    out: Annotated[Path | None, typer.Option(help="File to write; standard output by default.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Columns and format of the file: text=sentence, pair=2, format=tsv.")
    ] = None,
    device: Device = "auto",
) -> None:
    """Predict the label, number, tags or answer of each example.

    Classification prints a label and its probability per line, regression a number.
    Tagging prints a word and its tag per line, and an empty line after each text.
    Question answering prints one JSON object that maps ids to answers.
    """
    from qkv.cli.examples import read_examples_for
    from qkv.inference.text_encoder import load_text_encoder

    if str(file) == "-":
        raise ConfigError("qkv predict reads a file, whose name says the format; write texts to a .txt, one per line")
    if out is not None and out.exists():
        raise ConfigError(f"{out} exists already; choose another --out")
    encoder = load_text_encoder(run, device)
    recipe = encoder.finetuned()
    examples = read_examples_for(recipe, (str(file),), settings, labelled=False)
    predictions = encoder.predict(examples)
    lines = encoder.task.lines(examples, predictions)
    if out is None:
        for line in lines:
            print(line)
        return
    with atomic_file(out) as partial, partial.open("w", encoding="utf-8") as stream:
        stream.writelines(f"{line}\n" for line in lines)

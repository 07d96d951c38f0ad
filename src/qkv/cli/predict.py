"""qkv predict RUN FILE: print a fine-tuned encoder's predictions."""

from pathlib import Path
from typing import Annotated

import typer

from qkv.base.config import with_settings
from qkv.base.errors import ConfigError
from qkv.base.files import atomic_file
from qkv.cli.batch import BatchOptions, On, WorkerCount, run_batch_command
from qkv.cli.options import Device, run_folder


def predict_command(
    run: Annotated[Path, typer.Argument(parser=run_folder, metavar="RUN", help="Folder of a fine-tuned encoder's run.")],
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Examples in the format of training, without labels; or .txt, one text per line; or shards; not -.",
        ),
    ],
    out_place: Annotated[
        str | None, typer.Option("--out", help="File to write, for shards a folder or a URL; standard output by default.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Columns and format of the file: text=sentence, pair=2, format=tsv.")
    ] = None,
    on: On = None,
    workers: WorkerCount = None,
    device: Device = "auto",
) -> None:
    """Predict the label, number, tags or answer of each example.

    Classification prints a label and its probability per line, regression a number.
    Tagging prints a word and its tag per line, and an empty line after each text.
    Question answering prints one JSON object that maps ids to answers.
    """
    from qkv.cli.examples import read_examples_for
    from qkv.inference.text_encoder import load_text_encoder

    batch = BatchOptions(files, out_place, on, workers, device)
    if batch.asked or batch.many:
        given = with_settings({}, [setting.removeprefix("data.") for setting in settings or []])
        if unknown := given.keys() - {"text", "pair"}:
            raise ConfigError(f"--set {min(unknown)} is not for shards, whose names say their format; text and pair are")
        run_batch_command("predict", run, batch, {"column": given.get("text"), "pair": given.get("pair")})
        return
    file, out = Path(files[0]), Path(out_place) if out_place is not None else None
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

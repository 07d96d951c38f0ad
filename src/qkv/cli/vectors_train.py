"""qkv vectors train METHOD FILE... --out FOLDER [--set key=value]... and qkv vectors classify MODEL FILE."""

import itertools
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from qkv.base.config import parse, with_settings
from qkv.base.errors import ConfigError
from qkv.cli.lines import lines_of

TOGETHER = 1000  # texts that are judged at once


def train_vectors_command(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="skipgram, cbow, fasttext, glove or classifier.")],
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Text; may be .gz, .xz or .zst; or folders of such files.")
    ],
    out: Annotated[Path, typer.Option(help="The folder to write; the same one again goes on with an interrupted training.")],
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value, such as width=300 or epochs=10.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the vectors if they exist.")] = False,
) -> None:
    """Learn word vectors from text, words split at white space; the same command again goes on where it stopped."""
    if out.exists() and not overwrite:
        raise ConfigError(f"{out}: exists already; choose another --out, or add --overwrite")
    values = with_settings({}, settings or [])
    signal.signal(signal.SIGTERM, _interrupt)
    if method == "classifier":
        _train_classifier(files, values, out)
    else:
        _train_vectors(method, files, values, out)


def _train_vectors(method: str, files: list[Path], values: dict[str, Any], out: Path) -> None:
    from qkv.vectors.learning import CONFIGS, learn

    if method not in CONFIGS:
        raise ConfigError(f"METHOD {method!r} is not known; choose {', '.join(CONFIGS)} or classifier")
    config = parse(CONFIGS[method], values, f"qkv vectors train {method}")
    learned = learn(method, files, config, out)  # type: ignore[arg-type]
    if learned.skipped:
        print(f"qkv: left out {learned.skipped:,} bytes that are not UTF-8", file=sys.stderr)
    print(
        f"{out}: {len(learned.vectors):,} words, {learned.vectors.width} wide; "
        f"{learned.amount:,} {learned.unit} read, {learned.speed:,.0f} a second"
    )


def _train_classifier(files: list[Path], values: dict[str, Any], out: Path) -> None:
    from qkv.vectors.classifier import ClassifierConfig, learn_classifier

    made, speed = learn_classifier(files, parse(ClassifierConfig, values, "qkv vectors train classifier"))
    made.save(out)
    print(f"{out}: {len(made.labels):,} labels, {len(made.model.words):,} words; {speed:,.0f} words read a second")


def classify_command(
    model: Annotated[Path, typer.Argument(help="A .bin file of a classifier.")],
    file: Annotated[Path | None, typer.Argument(help="A text a line; standard input when not given.")] = None,
    count: Annotated[int, typer.Option("--count", "-n", help="So many labels for each text.", min=1)] = 1,
) -> None:
    """Print each text's most probable labels with their probabilities, a text a line."""
    from qkv.vectors.classifier import Classifier

    loaded, lines = Classifier.load(model), lines_of(file)
    while some := list(itertools.islice(lines, TOGETHER)):
        for found in loaded.predict(some, count):
            print("\t".join(f"{label} {share:.4f}" for label, share in found))


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt

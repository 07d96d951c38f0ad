"""qkv vectors train METHOD FILE... [--out FOLDER] [--set key=value]... and qkv vectors classify MODEL FILE."""

import itertools
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from qkv.base.config import parse, with_settings
from qkv.base.errors import ConfigError
from qkv.base.files import check_writable
from qkv.cli.lines import input_lines

BATCH = 1000  # texts classified at once
KEYS = (
    "key=value: width, window, negatives, sample, min_count, epochs, learning_rate, lowercase, threads, seed and others; "
    "see docs/vectors.md."
)


def train_vectors_command(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="skipgram, cbow, fasttext, glove or classifier.")],
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Text files, plain or .gz, .xz or .zst, or folders of them.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The folder to write, or a classifier's .bin file; runs/METHOD or runs/classifier.bin by default."),
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help=KEYS)] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the vectors if they exist.")] = False,
) -> None:
    """Train word vectors or a text classifier; the same command resumes an interrupted training of vectors."""
    out = out or Path("runs") / (f"{method}.bin" if method == "classifier" else method)
    if out.exists() and not overwrite:
        raise ConfigError(f"{out}: exists already; choose another --out, or add --overwrite")
    values = with_settings({}, settings or [])
    signal.signal(signal.SIGTERM, _interrupt)
    if method == "classifier":
        _train_classifier(files, values, out)
    else:
        _train_vectors(method, files, values, out)


def _train_vectors(method: str, files: list[Path], values: dict[str, Any], out: Path) -> None:
    from qkv.vectors.formats import SUFFIXES
    from qkv.vectors.train import METHODS, train_vectors

    if method not in METHODS:
        raise ConfigError(f"METHOD {method!r} is not known; choose {', '.join(METHODS)} or classifier")
    if out.suffix in SUFFIXES and out.suffix:
        raise ConfigError(
            f"{out}: vectors are written as a folder; leave out {out.suffix}, and make a file with `qkv vectors convert`"
        )
    config = parse(METHODS[method].config, values, f"qkv vectors train {method}")
    check_writable(out)
    trained = train_vectors(method, files, config, out)  # type: ignore[arg-type]
    _report_skipped(trained.corpus.skipped)
    if config.segment != trained.corpus.segment == "characters":
        print(
            "qkv: Chinese without spaces: each character is a word; --set segment=jieba segments it into words", file=sys.stderr
        )
    print(
        f"{out}: {len(trained.vectors):,} words, {trained.vectors.width} wide; "
        f"{trained.amount:,} {trained.unit} read, {trained.speed:,.0f} a second"
    )


def _train_classifier(files: list[Path], values: dict[str, Any], out: Path) -> None:
    from qkv.vectors.classifier import ClassifierConfig, train_classifier

    config = parse(ClassifierConfig, values, "qkv vectors train classifier")
    check_writable(out)
    trained = train_classifier(files, config)
    trained.classifier.save(out)
    _report_skipped(trained.skipped)
    labels, words = len(trained.classifier.labels), len(trained.classifier.model.words)
    print(f"{out}: {labels:,} labels, {words:,} words; {trained.speed:,.0f} words read a second")


def _report_skipped(count: int) -> None:
    if count:
        print(f"qkv: skipped {count:,} bytes that are not UTF-8", file=sys.stderr)


def classify_command(
    model: Annotated[Path, typer.Argument(help="A classifier's .bin file.")],
    file: Annotated[Path | None, typer.Argument(help="A file with one text per line; standard input by default.")] = None,
    count: Annotated[int, typer.Option("--count", "-n", help="Number of labels per text.", min=1)] = 1,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="For a model that was trained with lowercase=true.")] = False,
) -> None:
    """Print the most probable labels of each text with their probabilities, one text per line."""
    from qkv.vectors.classifier import FastTextClassifier

    classifier, lines = FastTextClassifier.load(model, lowercase), input_lines(file)
    while batch := list(itertools.islice(lines, BATCH)):
        for labels in classifier.predict(batch, count):
            print("\t".join(f"{label} {probability:.4f}" for label, probability in labels))


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt

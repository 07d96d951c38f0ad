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
from qkv.cli.lines import lines_of

TOGETHER = 1000  # texts that are judged at once
KEYS = "key=value: width, window, epochs, min_count, negatives, rate, lowercase, threads, seed and others, see docs/vectors.md."


def train_vectors_command(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="skipgram, cbow, fasttext, glove or classifier.")],
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Text; may be .gz, .xz or .zst; or folders of such files.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The folder to write, of a classifier the .bin file; runs/METHOD when not given.")
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help=KEYS)] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the vectors if they exist.")] = False,
) -> None:
    """Learn word vectors or a classifier from text; the same command again goes on with vectors where it was interrupted."""
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
    from qkv.vectors.formats import ENDINGS
    from qkv.vectors.word2vec import CONFIGS, learn

    if method not in CONFIGS:
        raise ConfigError(f"METHOD {method!r} is not known; choose {', '.join(CONFIGS)} or classifier")
    if out.suffix in ENDINGS and out.suffix:
        raise ConfigError(
            f"{out}: vectors are written as a folder; leave out {out.suffix}, and make a file by `qkv vectors convert`"
        )
    config = parse(CONFIGS[method], values, f"qkv vectors train {method}")
    check_writable(out)
    learned = learn(method, files, config, out)  # type: ignore[arg-type]
    _tell_skipped(learned.corpus.skipped)
    if config.segment != learned.corpus.segment == "characters":
        print("qkv: Chinese without spaces: each character is a word; --set segment=jieba finds words", file=sys.stderr)
    print(
        f"{out}: {len(learned.vectors):,} words, {learned.vectors.width} wide; "
        f"{learned.amount:,} {learned.unit} read, {learned.speed:,.0f} a second"
    )


def _train_classifier(files: list[Path], values: dict[str, Any], out: Path) -> None:
    from qkv.vectors.classifier import ClassifierConfig, learn_classifier

    config = parse(ClassifierConfig, values, "qkv vectors train classifier")
    check_writable(out)
    made = learn_classifier(files, config)
    made.classifier.save(out)
    _tell_skipped(made.skipped)
    labels, words = len(made.classifier.labels), len(made.classifier.model.words)
    print(f"{out}: {labels:,} labels, {words:,} words; {made.speed:,.0f} words read a second")


def _tell_skipped(count: int) -> None:
    if count:
        print(f"qkv: left out {count:,} bytes that are not UTF-8", file=sys.stderr)


def classify_command(
    model: Annotated[Path, typer.Argument(help="A .bin file of a classifier.")],
    file: Annotated[Path | None, typer.Argument(help="A text a line; standard input when not given.")] = None,
    count: Annotated[int, typer.Option("--count", "-n", help="So many labels for each text.", min=1)] = 1,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="For a model that was trained with lowercase=true.")] = False,
) -> None:
    """Print each text's most probable labels with their probabilities, a text a line."""
    from qkv.vectors.classifier import Classifier

    loaded, lines = Classifier.load(model, lowercase), lines_of(file)
    while some := list(itertools.islice(lines, TOGETHER)):
        for found in loaded.predict(some, count):
            print("\t".join(f"{label} {share:.4f}" for label, share in found))


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt

"""qkv vectors train METHOD FILE... --out FOLDER [--set key=value]..."""

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from qkv.base.config import parse, with_settings
from qkv.base.errors import ConfigError


def train_vectors_command(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="skipgram, cbow, fasttext or glove.")],
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Text; may be .gz, .xz or .zst; or folders of such files.")
    ],
    out: Annotated[Path, typer.Option(help="The folder to write; the same one again goes on with an interrupted training.")],
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value, such as width=300 or epochs=10.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the vectors if they exist.")] = False,
) -> None:
    """Learn word vectors from text, words split at white space; the same command again goes on where it stopped."""
    from qkv.vectors.learning import CONFIGS, learn

    if method not in CONFIGS:
        raise ConfigError(f"METHOD {method!r} is not known; choose {', '.join(CONFIGS)}")
    config = parse(CONFIGS[method], with_settings({}, settings or []), f"qkv vectors train {method}")
    if out.exists() and not overwrite:
        raise ConfigError(f"{out}: exists already; choose another --out, or add --overwrite")
    signal.signal(signal.SIGTERM, _interrupt)
    learned = learn(method, files, config, out)  # type: ignore[arg-type]
    if learned.skipped:
        print(f"qkv: left out {learned.skipped:,} bytes that are not UTF-8", file=sys.stderr)
    print(
        f"{out}: {len(learned.vectors):,} words, {learned.vectors.width} wide; "
        f"{learned.words:,} words read, {learned.words_per_second:,.0f} a second"
    )


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt

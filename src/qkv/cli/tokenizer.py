"""qkv tokenizer train, encode, decode and import."""

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from qkv.base.config import parse
from qkv.base.errors import ConfigError, DataError
from qkv.text.check import normalise
from qkv.text.files import find_files, read_lines
from qkv.text.pretrained_tokenizer import load_pretrained_tokenizer
from qkv.text.sentencepiece import import_sentencepiece
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer

CHUNK = 1000  # lines encoded at once

TokenizerFile = Annotated[Path, typer.Argument(metavar="TOKENIZER", help="File that `qkv tokenizer train` or `import` wrote.")]
Out = Annotated[Path, typer.Option(help="File to write.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")]

tokenizer_app = typer.Typer(help="Train, use and import tokenizers.", no_args_is_help=True)


@tokenizer_app.command()
def train(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Text file, one text per line; may be .gz, .xz or .zst.")],
    kind: Annotated[str, typer.Option(help="bpe, byte-bpe, wordpiece, unigram, characters or words.")] = "bpe",
    vocab: Annotated[int, typer.Option(help="Size of the vocabulary, at most.")] = 8000,
    out: Out = Path("tokenizer.json"),
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Lowercase all text.")] = False,
    min_count: Annotated[int, typer.Option(help="Ignore pieces that occur less often than this.")] = 1,
    special_token: Annotated[
        list[str] | None, typer.Option(help="Additional special token, such as [MASK]; repeat for several.")
    ] = None,
    sentinels: Annotated[int, typer.Option(help="Number of sentinel tokens, which stand for spans in T5.")] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Train a tokenizer on lines of text; tab-separated columns count as one text."""
    values = {"kind": kind, "vocab": vocab, "lowercase": lowercase, "min_count": min_count}
    values |= {"special_tokens": special_token or [], "sentinels": sentinels}
    config = parse(TokenizerConfig, values, "qkv tokenizer train")
    _refuse_existing(out, overwrite)
    paths = [path for file in files for path in find_files(str(file))]
    with Console(stderr=True).status("reading") as status:
        tokenizer = train_tokenizer(config, _training_texts(paths, status.update))
    tokenizer.save(out)
    print(f"{out}: {kind}, {len(tokenizer):,} pieces")


@tokenizer_app.command()
def encode(
    tokenizer: TokenizerFile,
    file: Annotated[Path | None, typer.Argument(help="Text file; standard input by default.")] = None,
    ids: Annotated[bool, typer.Option("--ids", help="Print ids instead of pieces.")] = False,
) -> None:
    """Split each line into pieces; ▁ stands for a space inside a piece."""
    loaded = Tokenizer.load(tokenizer)
    lines = _lines(file)
    while texts := list(itertools.islice(lines, 1 if file is None and sys.stdin.isatty() else CHUNK)):
        for numbers in loaded.encode_batch(texts):
            print(*(numbers if ids else loaded.pieces(numbers)))


@tokenizer_app.command()
def decode(
    tokenizer: TokenizerFile,
    file: Annotated[Path | None, typer.Argument(help="File with ids on each line; standard input by default.")] = None,
) -> None:
    """Turn lines of ids, as `encode --ids` prints them, back into text."""
    loaded = Tokenizer.load(tokenizer)
    for number, line in enumerate(_lines(file), 1):
        ids = line.split()
        for word in ids:
            if not word.isascii() or not word.isdigit():
                raise DataError(
                    f"line {number}: {word!r} is not an id; give ids separated by spaces, as `encode --ids` prints them"
                )
        try:
            print(loaded.decode(map(int, ids)))
        except DataError as error:
            raise DataError(f"line {number}: {error}") from None


@tokenizer_app.command("import")
def import_(
    model: Annotated[Path, typer.Argument(help="SentencePiece .model file, or folder of a Hugging Face encoder.")],
    out: Out = Path("tokenizer.json"),
    overwrite: Overwrite = False,
) -> None:
    """Convert a SentencePiece model (unigram or BPE) or a Hugging Face encoder's tokenizer."""
    _refuse_existing(out, overwrite)
    tokenizer = load_pretrained_tokenizer(model) if model.is_dir() else import_sentencepiece(model)
    tokenizer.save(out)
    print(f"{out}: {len(tokenizer):,} pieces")


def _refuse_existing(out: Path, overwrite: bool) -> None:
    if out.exists() and not overwrite:
        raise ConfigError(f"{out}: exists already; choose another --out, or add --overwrite")


def _training_texts(paths: list[Path], report: Callable[[str], None]) -> Iterator[str]:
    """Yield the normalised lines of all files; skip lines that are not UTF-8."""
    skipped = 0
    for number, line in enumerate(itertools.chain.from_iterable(map(read_lines, paths))):
        if number % 10_000 == 0:
            report(f"reading: {number:,} lines")
        if line is None:
            skipped += 1
        else:
            yield normalise(line)
    if skipped:
        print(f"qkv: skipped {skipped:,} lines that are not UTF-8", file=sys.stderr)
    report("learning pieces")


def _lines(file: Path | None) -> Iterator[str]:
    lines = read_lines(file) if file else _input_lines()
    for number, line in enumerate(lines, 1):
        if line is None:
            raise DataError(f"line {number} is not UTF-8 text; convert the input, for example with iconv")
        yield line


def _input_lines() -> Iterator[str | None]:
    for line in sys.stdin.buffer:
        try:
            yield line.removesuffix(b"\n").decode()
        except UnicodeDecodeError:
            yield None

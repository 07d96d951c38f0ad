"""qkv tokenizer train, encode, decode, import."""

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

TOGETHER = 1000  # lines encoded at once

Saved = Annotated[Path, typer.Argument(metavar="TOKENIZER", help="A tokenizer.json.")]
Out = Annotated[Path, typer.Option(help="The file to write.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")]

tokenizer_app = typer.Typer(help="Train, use and import tokenizers.", no_args_is_help=True)


@tokenizer_app.command()
def train(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Text, a line each; may be .gz, .xz or .zst.")],
    kind: Annotated[str, typer.Option(help="bpe, byte-bpe, wordpiece, unigram, characters or words.")] = "bpe",
    vocab: Annotated[int, typer.Option(help="At most so many pieces.")] = 8000,
    out: Out = Path("tokenizer.json"),
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Make all text lower case.")] = False,
    min_count: Annotated[int, typer.Option(help="Learn nothing that was seen less often.")] = 1,
    special_token: Annotated[list[str] | None, typer.Option(help="One more special token, such as [MASK].")] = None,
    sentinels: Annotated[int, typer.Option(help="The number of sentinel tokens, which stand for spans in T5.")] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Train a tokenizer on lines of text; the columns of a table count as one text."""
    values = {"kind": kind, "vocab": vocab, "lowercase": lowercase, "min_count": min_count}
    values |= {"special_tokens": special_token or [], "sentinels": sentinels}
    config = parse(TokenizerConfig, values, "qkv tokenizer train")
    _refuse_existing(out, overwrite)
    paths = [path for file in files for path in find_files(str(file))]
    with Console(stderr=True).status("reading") as status:
        tokenizer = train_tokenizer(config, _texts(paths, status.update))
    tokenizer.save(out)
    print(f"{out}: {kind}, {len(tokenizer):,} pieces")


@tokenizer_app.command()
def encode(
    tokenizer: Saved,
    file: Annotated[Path | None, typer.Argument(help="A text file; standard input when not given.")] = None,
    ids: Annotated[bool, typer.Option("--ids", help="Print ids instead of pieces.")] = False,
) -> None:
    """Print the pieces of each line, separated by spaces; ▁ stands for a space inside a piece."""
    loaded = Tokenizer.load(tokenizer)
    lines = _lines(file)
    while some := list(itertools.islice(lines, 1 if file is None and sys.stdin.isatty() else TOGETHER)):
        for numbers in loaded.encode_batch(some):
            print(*(numbers if ids else loaded.pieces(numbers)))


@tokenizer_app.command()
def decode(
    tokenizer: Saved,
    file: Annotated[Path | None, typer.Argument(help="Lines of ids; standard input when not given.")] = None,
) -> None:
    """Print the text of each line of ids, as `encode --ids` prints them."""
    loaded = Tokenizer.load(tokenizer)
    for number, line in enumerate(_lines(file), 1):
        try:
            print(loaded.decode(map(_id, line.split())))
        except DataError as error:
            raise DataError(f"line {number}: {error}") from None


@tokenizer_app.command("import")
def import_(
    model: Annotated[Path, typer.Argument(help="A SentencePiece .model, or the folder of an encoder from Hugging Face.")],
    out: Out = Path("tokenizer.json"),
    overwrite: Overwrite = False,
) -> None:
    """Make a tokenizer.json of a SentencePiece model, unigram or BPE, or of an encoder's tokenizer."""
    _refuse_existing(out, overwrite)
    tokenizer = load_pretrained_tokenizer(model) if model.is_dir() else import_sentencepiece(model)
    tokenizer.save(out)
    print(f"{out}: {len(tokenizer):,} pieces")


def _refuse_existing(out: Path, overwrite: bool) -> None:
    if out.exists() and not overwrite:
        raise ConfigError(f"{out}: exists already; choose another --out, or add --overwrite")


def _texts(paths: list[Path], say: Callable[[str], None]) -> Iterator[str]:
    """The lines of all files, normalised; one that is not UTF-8 is left out."""
    bad = 0
    for number, line in enumerate(itertools.chain.from_iterable(map(read_lines, paths))):
        if number % 10_000 == 0:
            say(f"reading: {number:,} lines")
        if line is None:
            bad += 1
        else:
            yield normalise(line)
    if bad:
        print(f"qkv: left out {bad:,} lines that are not UTF-8", file=sys.stderr)
    say("learning pieces")


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


def _id(word: str) -> int:
    if not word.isascii() or not word.isdigit():
        raise DataError(f"{word!r} is not an id; ids separated by spaces are wanted, as `encode --ids` prints them")
    return int(word)

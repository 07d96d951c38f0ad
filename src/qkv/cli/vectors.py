"""qkv vectors train, neighbours, analogy, evaluate, map, convert: what word vectors know, and other tools' formats."""

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.base.errors import ConfigError
from qkv.cli.lines import warnings_as_lines
from qkv.cli.vectors_train import classify_command, train_vectors_command

if TYPE_CHECKING:
    from qkv.vectors.evaluation import Section, Similarity
    from qkv.vectors.word_vectors import WordVectors

vectors_app = typer.Typer(help="Learn, ask, judge, draw and convert word vectors.", no_args_is_help=True)
vectors_app.command("train")(train_vectors_command)
vectors_app.command("classify")(classify_command)

FORMATS = "qkv (a folder), word2vec, word2vec-binary, glove or fasttext"
File = Annotated[Path, typer.Argument(metavar="VECTORS", help="A folder of qkv's, or a file of word2vec, GloVe or fastText.")]
Count = Annotated[int, typer.Option("--count", "-n", help="So many words.", min=1)]
Method = Annotated[str, typer.Option(help="add for 3CosAdd, mul for 3CosMul.")]
Limit = Annotated[int | None, typer.Option(help="Answer with the first so many words only, the most frequent ones.", min=1)]


@vectors_app.command()
def neighbours(
    vectors: File,
    words: Annotated[list[str], typer.Argument(metavar="WORD...", help="Words to ask about.")],
    count: Count = 10,
    limit: Limit = None,
) -> None:
    """Print the words whose vectors are most like a word's, with their cosines."""
    loaded = _read(vectors)
    for word in words:
        found = loaded.most_similar(word, topn=count, limit=limit)
        _show_words(found, heading=word if len(words) > 1 else None)


@vectors_app.command()
def analogy(
    vectors: File,
    first: Annotated[str, typer.Argument(help="man, in: man is to king as woman is to what?")],
    second: Annotated[str, typer.Argument(help="king")],
    third: Annotated[str, typer.Argument(help="woman")],
    count: Count = 5,
    method: Method = "add",
    limit: Limit = None,
) -> None:
    """Print the words that are to the third word what the second is to the first."""
    _check_method(method)
    loaded = _read(vectors)
    ask = loaded.most_similar_cosmul if method == "mul" else loaded.most_similar
    _show_words(ask([second, third], [first], topn=count, limit=limit))


@vectors_app.command()
def evaluate(
    vectors: File,
    sets: Annotated[list[Path], typer.Argument(metavar="SET...", help="Word pairs with a score, or analogies in sections.")],
    method: Method = "add",
    limit: Limit = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Compare with people: Spearman's correlation on similarity sets, the share of right answers on analogy sets."""
    from qkv.vectors.evaluation import judge_analogies, judge_similarity, read_set, totals

    _check_method(method)
    read = {path: read_set(path) for path in sets}  # a mistake in the last one shows before the work
    loaded = _read(vectors)
    similarities, analogies = [], {}
    for path, content in read.items():
        if isinstance(content, list):
            similarities.append(judge_similarity(loaded, content, path.stem))
        else:
            sections = judge_analogies(loaded, content, method, limit)
            analogies[path.stem] = [*sections, *totals(sections)]
    if as_json:
        print(json.dumps(_figures(similarities, analogies), indent=1))
    else:
        _show_figures(similarities, analogies)


@vectors_app.command("map")
def map_command(
    vectors: File,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD...]", help="Words to draw; the first ones when not given.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The picture to write.")] = Path("map.png"),
    around: Annotated[int, typer.Option(help="Also draw so many neighbours of each word, in a colour of their own.", min=0)] = 0,
    count: Annotated[int, typer.Option("--count", "-n", help="How many words are drawn when none are given.", min=2)] = 100,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
) -> None:
    """Draw words in the plane in which their vectors differ the most (PCA)."""
    from qkv.vectors.plot import plot_words

    _refuse_existing(out, overwrite)
    loaded = _read(vectors)
    groups = _groups(loaded, words, around) if words else [loaded.words[:count]]
    left_out = plot_words(loaded, groups, f"{vectors.name}: {sum(map(len, groups))} words", out)
    print(
        f"{out}: {sum(map(len, groups)):,} words"
        + (f", {left_out:,} of them as points only, for want of room" if left_out else "")
    )


@vectors_app.command()
def convert(
    vectors: File,
    out: Annotated[Path, typer.Argument(help="What to write; without an ending, a folder of qkv's.")],
    source: Annotated[str | None, typer.Option("--from", help=f"{FORMATS}; by content when not given.")] = None,
    target: Annotated[str | None, typer.Option("--to", help=f"{FORMATS}; by the name when not given.")] = None,
    part: Annotated[str | None, typer.Option(help="input, output, sum or mean of the matrices of training.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what exists.")] = False,
) -> None:
    """Write vectors in another tool's format, or take them over from one."""
    from qkv.vectors.formats import check_target, write_vectors

    _refuse_existing(out, overwrite)
    check_target(out, target)
    loaded = _read(vectors, source)
    if part is not None:
        loaded = loaded.part(part)
    with warnings_as_lines():
        write_vectors(loaded, out, target)
    print(f"{out}: {len(loaded):,} words, {loaded.width} numbers each")


def _read(path: Path, kind: str | None = None) -> "WordVectors":
    from qkv.vectors.formats import read_vectors

    return read_vectors(path, kind)


def _check_method(method: str) -> None:
    if method not in ("add", "mul"):
        raise ConfigError(f"--method {method} is not known; choose add or mul")


def _refuse_existing(out: Path, overwrite: bool) -> None:
    if out.exists() and not overwrite:
        raise ConfigError(f"{out} exists already; choose another name, or add --overwrite")


def _groups(vectors: "WordVectors", words: list[str], around: int) -> list[list[str]]:
    """The words to draw, by colour: each with its neighbours, or all together."""
    if not around:
        return [[*dict.fromkeys(words)]]
    drawn: set[str] = set(words)
    groups = []
    for word in dict.fromkeys(words):
        near = [other for other, _ in vectors.most_similar(word, topn=around) if other not in drawn]
        drawn |= {*near}
        groups.append([word, *near])
    return groups


def _show_words(found: list[tuple[str, float]], heading: str | None = None) -> None:
    if heading is not None:
        print(f"{heading}:")
    for word, score in found:
        print(f"{score:.4f}  {word}")


def _figures(similarities: "list[Similarity]", analogies: "dict[str, list[Section]]") -> dict[str, object]:
    return {
        "similarity": [{**vars(s), "spearman": None if math.isnan(s.spearman) else s.spearman} for s in similarities],
        "analogies": {name: [{**vars(s), "accuracy": s.accuracy} for s in sections] for name, sections in analogies.items()},
    }


def _show_figures(similarities: "list[Similarity]", analogies: "dict[str, list[Section]]") -> None:
    from rich.console import Console
    from rich.table import Column, Table

    console = Console(highlight=False, file=sys.stdout)
    if similarities:
        table = Table("similarity", Column("Spearman", justify="right"), Column("pairs found", justify="right"))
        for s in similarities:
            table.add_row(s.name, "-" if math.isnan(s.spearman) else f"{s.spearman:.4f}", f"{s.found:,} of {s.pairs:,}")
        console.print(table)
    for name, sections in analogies.items():
        numbers = [Column(heading, justify="right") for heading in ("right", "accuracy", "questions asked")]
        table = Table(f"analogies: {name}", *numbers)
        for section in sections:
            accuracy = f"{100 * section.accuracy:.1f} %" if section.asked else "-"
            table.add_row(section.name, f"{section.right:,}", accuracy, f"{section.asked:,} of {section.questions:,}")
        console.print(table)

"""qkv vectors train, classify, neighbours, analogy, evaluate, map, convert."""

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.base.errors import ConfigError
from qkv.cli.vectors_train import classify_command, train_vectors_command

if TYPE_CHECKING:
    from qkv.vectors.evaluation import AnalogyResult, SimilarityResult
    from qkv.vectors.views import AnalogyView, NeighboursThroughTraining

vectors_app = typer.Typer(help="Train, query, evaluate, plot and convert word vectors.", no_args_is_help=True)
vectors_app.command("train")(train_vectors_command)
vectors_app.command("classify")(classify_command)

FORMATS = "qkv (a folder), word2vec, word2vec-binary, glove or fasttext"
File = Annotated[Path, typer.Argument(metavar="VECTORS", help="A folder of qkv's, or a file of word2vec, GloVe or fastText.")]
Count = Annotated[int, typer.Option("--count", "-n", help="Number of words to print.", min=1)]
Method = Annotated[str, typer.Option(help="add for 3CosAdd, mul for 3CosMul.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")]
Limit = Annotated[int | None, typer.Option(help="Search only the first LIMIT words, the most frequent ones.", min=1)]


@vectors_app.command()
def neighbours(
    vectors: File,
    words: Annotated[list[str], typer.Argument(metavar="WORD...", help="Words to look up.")],
    count: Count = 10,
    limit: Limit = None,
    through_training: Annotated[
        bool, typer.Option("--through-training", help="At each snapshot of vectors that were trained with --set snapshots=8.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="With --through-training, write page.html, picture.png or numbers.json.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Print the nearest words of each word, with their cosines."""
    from qkv.vectors.formats import read_vectors

    if through_training:
        _neighbours_through_training(vectors, words, count, out, overwrite)
        return
    if out is not None:
        raise ConfigError("--out is for neighbours --through-training; leave it out")
    loaded = read_vectors(vectors)
    for word in words:
        found = loaded.most_similar(word, topn=count, limit=limit)
        if len(words) > 1:
            print(f"{word}:")
        _print_words(found)


@vectors_app.command()
def analogy(
    vectors: File,
    first: Annotated[str, typer.Argument(help="man, in: man is to king as woman is to ...")],
    second: Annotated[str, typer.Argument(help="king")],
    third: Annotated[str, typer.Argument(help="woman")],
    count: Count = 5,
    method: Method = "add",
    limit: Limit = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the words in a plane with arrows: page.html, picture.png or numbers.json.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Answer an analogy: FIRST is to SECOND as THIRD is to which words?"""
    from qkv.vectors.formats import read_vectors
    from qkv.vectors.views import view_analogy

    _check_method(method)
    _check_out(out, overwrite)
    found = view_analogy(read_vectors(vectors), (first, second, third), count, method, limit)
    _print_words(found.answers)
    if out is not None:
        print(_save(found, out))


@vectors_app.command()
def evaluate(
    vectors: File,
    sets: Annotated[list[Path], typer.Argument(metavar="SET...", help="Word pairs with a score, or analogies in sections.")],
    method: Method = "add",
    limit: Limit = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Print Spearman's correlation on similarity sets and accuracy on analogy sets."""
    from qkv.vectors.evaluation import evaluate_analogies, evaluate_similarity, read_test_set, totals
    from qkv.vectors.formats import read_vectors

    _check_method(method)
    read = {path: read_test_set(path) for path in sets}  # a mistake in the last set shows before the work begins
    loaded = read_vectors(vectors)
    similarities, analogies = [], {}
    for path, content in read.items():
        if isinstance(content, list):
            similarities.append(evaluate_similarity(loaded, content, path.stem))
        else:
            sections = evaluate_analogies(loaded, content, method, limit)
            analogies[path.stem] = [*sections, *totals(sections)]
    if not as_json:
        _print_tables(similarities, analogies)
        return
    results = {
        "similarity": [{**vars(s), "spearman": None if math.isnan(s.spearman) else s.spearman} for s in similarities],
        "analogies": {name: [{**vars(s), "accuracy": s.accuracy} for s in sections] for name, sections in analogies.items()},
    }
    print(json.dumps(results, indent=1))


@vectors_app.command("map")
def map_command(
    vectors: File,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD...]", help="Words to plot; by default the first ones of the vocabulary.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="The file to write: page.html to search and zoom in, picture.png or numbers.json.")
    ] = Path("map.png"),
    around: Annotated[int, typer.Option(help="Also plot this many neighbours of each word, in a colour per word.", min=0)] = 0,
    count: Annotated[int, typer.Option("--count", "-n", help="Number of words to plot if none are given.", min=2)] = 100,
    method: Annotated[str, typer.Option(help="pca, or tsne, in which near neighbours stay near (at most 2,000 words).")] = "pca",
    overwrite: Overwrite = False,
) -> None:
    """Plot words in two dimensions, by PCA or t-SNE of their vectors."""
    from qkv.lens.page import write_page
    from qkv.vectors.formats import read_vectors
    from qkv.vectors.plot import plot_points
    from qkv.vectors.views import map_words

    _check_out(out, overwrite)
    loaded = read_vectors(vectors)
    if not words:
        groups = [loaded.words[:count]]
    elif not around:
        groups = [[*dict.fromkeys(words)]]
    else:
        plotted, groups = set(words), []
        for word in dict.fromkeys(words):
            near = [other for other, _ in loaded.most_similar(word, topn=around) if other not in plotted]
            plotted |= {*near}
            groups.append([word, *near])
    total = sum(map(len, groups))
    found = map_words(loaded, groups, method)
    if out.suffix != ".png":
        write_page(found.json(), out)
        print(f"{out}: {total:,} words")
        return
    unlabelled = plot_points(found.points[method], groups, f"{vectors.name}: {total} words", out)
    print(f"{out}: {total:,} words" + (f", {unlabelled:,} of them without a label for lack of room" if unlabelled else ""))


@vectors_app.command()
def convert(
    vectors: File,
    out: Annotated[Path, typer.Argument(help="The file to write; without a suffix, a folder of qkv's.")],
    source: Annotated[str | None, typer.Option("--from", help=f"{FORMATS}; by default detected from the content.")] = None,
    target: Annotated[str | None, typer.Option("--to", help=f"{FORMATS}; by default chosen by the suffix.")] = None,
    part: Annotated[str | None, typer.Option(help="input, output, sum or mean of the two training matrices.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what exists.")] = False,
) -> None:
    """Convert vectors from one format to another."""
    from qkv.vectors.formats import check_target, read_vectors, write_vectors

    _refuse_existing(out, overwrite)
    check_target(out, target)
    loaded = read_vectors(vectors, source)
    if part is not None:
        loaded = loaded.part(part)
    write_vectors(loaded, out, target)
    print(f"{out}: {len(loaded):,} words, {loaded.width} numbers each")


def _save(view: "AnalogyView | NeighboursThroughTraining", out: Path) -> Path:
    """Write a view as a page that works offline, as values, or as a picture."""
    from qkv.lens.page import write_page

    return write_page(view.json(), out) if out.suffix == ".html" else view.save(out)


def _check_method(method: str) -> None:
    if method not in ("add", "mul"):
        raise ConfigError(f"--method {method} is not known; choose add or mul")


def _check_out(out: Path | None, overwrite: bool) -> None:
    if out is not None:
        if out.suffix not in (".png", ".json", ".html"):
            raise ConfigError(f"--out {out}: the name must end with .png, .json or .html, which chooses the format")
        _refuse_existing(out, overwrite)


def _neighbours_through_training(vectors: Path, words: list[str], count: int, out: Path | None, overwrite: bool) -> None:
    from qkv.vectors.views import neighbours_through_training

    _check_out(out, overwrite)
    found = neighbours_through_training(vectors, words, count)
    if out is not None:
        print(_save(found, out))
        return
    for word in words:
        print(f"{word}:")
        for share, near in zip(found.shares, found.found, strict=True):
            print(f"  {share:7.2%}  " + ", ".join(f"{other} {cosine:.2f}" for other, cosine in near[word]))


def _refuse_existing(out: Path, overwrite: bool) -> None:
    if out.exists() and not overwrite:
        raise ConfigError(f"{out} exists already; choose another name, or add --overwrite")


def _print_words(found: list[tuple[str, float]]) -> None:
    for word, score in found:
        print(f"{score:.4f}  {word}")


def _print_tables(similarities: "list[SimilarityResult]", analogies: "dict[str, list[AnalogyResult]]") -> None:
    from rich.console import Console
    from rich.table import Column, Table

    console = Console(highlight=False, file=sys.stdout)
    if similarities:
        table = Table("similarity", Column("Spearman", justify="right"), Column("pairs found", justify="right"))
        for s in similarities:
            table.add_row(s.name, "-" if math.isnan(s.spearman) else f"{s.spearman:.4f}", f"{s.found:,} of {s.pairs:,}")
        console.print(table)
    for name, sections in analogies.items():
        columns = [Column(heading, justify="right") for heading in ("right", "accuracy", "questions asked")]
        table = Table(f"analogies: {name}", *columns)
        for section in sections:
            accuracy = f"{100 * section.accuracy:.1f} %" if section.asked else "-"
            table.add_row(section.name, f"{section.right:,}", accuracy, f"{section.asked:,} of {section.questions:,}")
        console.print(table)

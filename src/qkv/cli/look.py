"""qkv look RUN TEXT: what a model's attention does with a text, as a page, a picture, or a few lines."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.base.errors import ConfigError
from qkv.cli.lines import warnings_as_lines

if TYPE_CHECKING:
    from qkv.lens.looking import Looked

SHOWN = 3  # heads with one habit that are printed


def look_command(
    run: Annotated[Path, typer.Argument(help="The run's folder: any model with attention.")],
    text: Annotated[
        str,
        typer.Argument(
            help='The text to be read; an encoder\'s may hold [MASK], with structural positions {"text": ..., "heads": [...]}.'
        ),
    ],
    target: Annotated[
        str | None, typer.Option(help="What is written or comes next, instead of the model's own; an encoder's second text.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="page.html with everything, picture.png of one view, or numbers.json.")] = None,
    view: Annotated[
        str | None,
        typer.Option(help="Of a picture: heads, head, average, rollout, alignment, attribution, positions or embedding."),
    ] = None,
    part: Annotated[str | None, typer.Option(help="Of a picture: encoder, decoder, or cross (from target to source).")] = None,
    layer: Annotated[int | None, typer.Option(help="Of a picture: this layer, from 1.")] = None,
    head: Annotated[int | None, typer.Option(help="Of a picture: this head, from 1.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """See which words a model looked at: a page to open in a browser, a picture, or a summary."""
    _check(out, {"--view": view, "--part": part, "--layer": layer, "--head": head})
    from qkv.inference.load import look

    with warnings_as_lines():
        seen = look(run, text, target, device)
    if out is None:
        _print(seen)
        return
    if out.suffix == ".png":
        from qkv.lens.figures import draw

        draw(seen, out, view, part, layer, head)
    else:
        seen.save(out)
    print(out)


def _check(out: Path | None, of_pictures: dict[str, object]) -> None:
    """Say what is wrong with the options before the model is loaded."""
    if out is not None and out.suffix not in (".html", ".png", ".json"):
        raise ConfigError(f"--out {out}: the name must end with .html, .png or .json, which says what is written")
    given = [name for name, value in of_pictures.items() if value is not None]
    if given and (out is None or out.suffix != ".png"):
        raise ConfigError(f"{', '.join(given)} is for pictures; give --out a name that ends with .png, or leave it out")


def _print(seen: "Looked") -> None:
    """What is most worth knowing, in lines."""
    source, target = seen.sides["source"], seen.sides.get("target")
    heads = sum(len(one.weights) for one in seen.maps)
    print(f"{seen.kind}, {seen.model}: {_many(len(source.ids), 'token')}, {_many(heads, 'head')}")
    if seen.output is not None:
        print(f"output: {seen.output}")
    if seen.alignment and target is not None:
        print("\neach word of the output, and the words that it looked at most:")
        for number, word in enumerate(target.spelled):
            links = [link for link in seen.alignment if link[1] == number][:3]
            print(f"  {word}\t" + ", ".join(f"{source.spelled[s]} {weight:.0%}" for s, _, weight in links))
    if seen.habits:
        print("\nhabits of heads, and the share of attention that follows each:")
        _print_habits(seen)
    print("\nall of it: --out page.html")


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _print_habits(seen: "Looked") -> None:
    """Each kind once, with the heads that have it most; layers and heads from 1, as everywhere people see them."""
    maps = {one.name: one for one in seen.maps}
    for kind in dict.fromkeys(habit.pattern for habit in seen.habits):
        found = [habit for habit in seen.habits if habit.pattern == kind]
        print(f"  {kind}: {found[0].says}")
        for habit in found[:SHOWN]:
            one = maps[habit.map]
            print(f"    {habit.score:.2f}  {one.part}, layer {one.layer + 1}, head {habit.head + 1}")
        if len(found) > SHOWN:
            print(f"    and {len(found) - SHOWN} more")

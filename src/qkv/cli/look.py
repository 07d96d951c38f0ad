"""qkv look RUN TEXT: show a model's attention on a text, as a page, a picture or a summary."""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.base.errors import ConfigError
from qkv.cli.options import Device, run_folder

if TYPE_CHECKING:
    from qkv.lens.view import AttentionView

SHOWN = 3  # heads printed per pattern


def look_command(
    run: Annotated[Path, typer.Argument(parser=run_folder, metavar="RUN", help="Folder of a run of any model with attention.")],
    text: Annotated[
        str,
        typer.Argument(
            help='Input text; for an encoder with or without [MASK]; {"text": ..., "heads": [...]} for structural positions.'
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(help="Translation or continuation to use instead of the model's own; for an encoder, the second text."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write: page.html with everything, picture.png of one view, or numbers.json.")
    ] = None,
    view: Annotated[
        str | None,
        typer.Option(help="For a picture: heads, head, average, rollout, alignment, attribution, positions or embedding."),
    ] = None,
    through_training: Annotated[
        bool, typer.Option("--through-training", help="At each snapshot of a run that was trained with training.snapshots=8.")
    ] = False,
    part: Annotated[str | None, typer.Option(help="For a picture: encoder, decoder or cross (from target to source).")] = None,
    layer: Annotated[int | None, typer.Option(help="For a picture: the layer, from 1.")] = None,
    head: Annotated[int | None, typer.Option(help="For a picture: the head, from 1.")] = None,
    device: Device = "auto",
) -> None:
    """Show a model's attention on a text, as a web page, a picture or a summary."""
    _check(out, {"--view": view, "--part": part, "--layer": layer, "--head": head})
    if through_training:
        if view is not None:
            raise ConfigError("--view is of one model, not of its training; leave it out, or --through-training")
        _look_through_training(run, text, target, out, (part, layer, head), device)
        return
    from qkv.inference.load import look

    seen = look(run, text, target, device)
    if out is None:
        _print(seen)
        return
    if out.suffix == ".png":
        from qkv.lens.figures import draw_view

        draw_view(seen, out, view, part, layer, head)
    else:
        seen.save(out)
    print(out)


def _look_through_training(
    run: Path, text: str, target: str | None, out: Path | None, shown: tuple[str | None, int | None, int | None], device: str
) -> None:
    """Show the text at each snapshot of a run's training."""
    from qkv.inference.through_training import look_through_training

    part, layer, head = shown
    seen = look_through_training(run, text, target, part, None if layer is None else layer - 1, device)
    if out is None:
        print("  step    loss  output")
        for one in seen.snapshots:
            loss = "      -" if one.loss is None else f"{one.loss:7.3f}"
            best = f" ({one.predictions[0][0][1]:.0%})" if one.predictions else ""
            print(f"{one.step:6,} {loss}  {textwrap.shorten(one.output or '', 90, placeholder=' ...')}{best}")
        print("\nattention too: --out page.html")
        return
    if out.suffix == ".png":
        from qkv.lens.figures import draw_training

        draw_training(seen, out, head)
    else:
        seen.save(out)
    print(out)


def _check(out: Path | None, of_pictures: dict[str, object]) -> None:
    """Refuse wrong options before the model is loaded."""
    if out is not None and out.suffix not in (".html", ".png", ".json"):
        raise ConfigError(f"--out {out}: the name must end with .html, .png or .json, which chooses the format")
    given = [name for name, value in of_pictures.items() if value is not None]
    if given and (out is None or out.suffix != ".png"):
        raise ConfigError(f"{', '.join(given)} is for pictures; give --out a name that ends with .png, or leave it out")


def _print(seen: "AttentionView") -> None:
    """Print a summary."""
    source, target = seen.texts["source"], seen.texts.get("target")
    heads = sum(len(one.weights) for one in seen.maps)
    print(f"{seen.kind}, {seen.model}: {_many(len(source.ids), 'token')}, {_many(heads, 'head')}")
    if seen.output is not None:
        print(f"output: {seen.output}")
    if seen.alignment and target is not None:
        print("\neach word of the output, and the words that it attended to most:")
        for number, word in enumerate(target.words):
            links = [link for link in seen.alignment if link[1] == number][:3]
            print(f"  {word}\t" + ", ".join(f"{source.words[s]} {weight:.0%}" for s, _, weight in links))
    if seen.patterns:
        print("\nhead patterns, and the share of attention that follows each:")
        _print_patterns(seen)
    print("\nall of it: --out page.html")


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _print_patterns(seen: "AttentionView") -> None:
    """Print each pattern once, with its strongest heads; layers and heads count from 1, as everywhere people see them."""
    maps = {one.name: one for one in seen.maps}
    for name in dict.fromkeys(one.pattern for one in seen.patterns):
        found = [one for one in seen.patterns if one.pattern == name]
        print(f"  {name}: {found[0].description}")
        for pattern in found[:SHOWN]:
            one = maps[pattern.map]
            drop = seen.drop(pattern)
            effect = "" if drop is None or seen.effects is None else f"  (without it {seen.effects.figure} {-drop:+.4f})"
            print(f"    {pattern.score:.2f}  {one.part}, layer {one.layer + 1}, head {pattern.head + 1}{effect}")
        if len(found) > SHOWN:
            print(f"    and {len(found) - SHOWN} more")

"""qkv change RUN TEXT: change something in a model or its text, and compare output, probabilities and attention."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.base.errors import ConfigError
from qkv.cli.options import Device, run_folder

if TYPE_CHECKING:
    from qkv.lens.comparison import ModelComparison

SHOWN = 8  # heads printed
MIN_SHOWN = 0.01  # share of attention that a printed head moves


def change_command(
    run: Annotated[Path, typer.Argument(parser=run_folder, metavar="RUN", help="Folder of a run of any model with attention.")],
    text: Annotated[str, typer.Argument(help="Input text; for an encoder with or without [MASK].")],
    target: Annotated[
        str | None,
        typer.Option(help="Translation or continuation to score instead of decoding anew; for an encoder, the second text."),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(help="Switch off a head (cross.1.2: layer 1, head 2), all heads (cross.1) or a layer (encoder.1)."),
    ] = None,
    weight: Annotated[
        list[str] | None,
        typer.Option(
            help="Set an attention weight: cross.1.2:3,4=0.9 lets token 3 attend to token 4 by 0.9; cross.1 for all heads."
        ),
    ] = None,
    temperature: Annotated[
        list[str] | None, typer.Option(help="Temperature of the softmax: 0.5 everywhere, or cross.1.2=0.5, or cross.1=0.5.")
    ] = None,
    replace: Annotated[list[str] | None, typer.Option(help="Replace a word of the text: 2=cat.")] = None,
    delete: Annotated[list[int] | None, typer.Option(help="Delete a word of the text: 3.")] = None,
    move: Annotated[list[str] | None, typer.Option(help="Move a word of the text: 4,1 makes word 4 the first.")] = None,
    out: Annotated[Path | None, typer.Option(help="File to write: page.html with everything, or numbers.json.")] = None,
    device: Device = "auto",
) -> None:
    """Change heads, layers, weights or words, and see what it does. Layers, heads, tokens and words count from 1."""
    if out is not None and out.suffix not in (".html", ".json"):
        raise ConfigError(f"--out {out}: the name must end with .html or .json, which chooses the format")
    from qkv.inference.load import change
    from qkv.lens.change_options import parse_changes

    changes = parse_changes(without or [], weight or [], temperature or [], replace or [], delete or [], move or [])
    changed = change(run, text, changes, target, device=device)
    if out is None:
        _print(changed)
    else:
        changed.save(out)
        print(out)


def _print(changed: "ModelComparison") -> None:
    """Print a summary."""
    from qkv.lens.comparison import describe

    print("; ".join(describe(one) for one in changed.changes))
    if changed.texts[0] != changed.texts[1]:
        print(f"text before:   {changed.texts[0]}\ntext after:    {changed.texts[1]}")
    if changed.before.output is not None:
        print(f"output before: {changed.before.output}\noutput after:  {changed.after.output}")
    for label, before, after in changed.labels:
        print(f"  {label}\t{before:.3f} -> {after:.3f}")
    if changed.tokens:
        print("\nprobability of each token of the output before, and the likeliest token after:")
        for one in changed.tokens:
            best, share = one.top_after[0]
            print(f"  {one.token}\t{one.before:.3f} -> {one.after:.3f}" + ("" if best == one.token else f"\t{best} {share:.3f}"))
    heads = [(share, one, n) for one in changed.moved for n, share in enumerate(one.heads or []) if share >= MIN_SHOWN]
    if heads:
        print("\nheads whose attention moved most, and the share that moved:")
        for share, moved, head in sorted(heads, key=lambda found: -found[0])[:SHOWN]:
            print(f"  {share:.2f}  {moved.part}, layer {moved.layer + 1}, head {head + 1}")
    print("\nall of it: --out page.html")

"""qkv patch RUN TEXT OTHER: show which heads and states of a model carry an answer that depends on a word."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import Device, check_out, run_folder

if TYPE_CHECKING:
    from qkv.lens.patching import GridRow, PatchView

WIDEST = 12  # characters of a column's heading


def patch_command(
    run: Annotated[
        Path, typer.Argument(parser=run_folder, metavar="RUN", help="Folder of a translator's, an encoder's or a GPT's run.")
    ],
    text: Annotated[str, typer.Argument(help="Text whose activations are put in place; for an encoder with one [MASK].")],
    other: Annotated[str, typer.Argument(help="Text that differs in a word and has as many tokens.")],
    answer: Annotated[
        str | None,
        typer.Option(help="Word that TEXT leads to: next (GPT), at [MASK], or in the translation; by default the model's."),
    ] = None,
    instead: Annotated[str | None, typer.Option(help="Word that OTHER leads to; by default the model's.")] = None,
    target: Annotated[str | None, typer.Option(help="Translation with the answer, instead of the model's own.")] = None,
    position: Annotated[
        int | None, typer.Option(min=1, help="Put outputs of heads in place only at this token of the text, from 1.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File to write: page.html, picture.png or numbers.json.")] = None,
    device: Device = "auto",
) -> None:
    """Show which heads and states carry an answer that depends on a word (activation patching)."""
    check_out(out, ".html", ".png", ".json")
    from qkv.inference.laboratory import patch

    view = patch(run, text, other, answer, instead, target, None if position is None else position - 1, device)
    if out is None:
        _print(view)
        return
    if out.suffix == ".png":
        from qkv.lens.grid_figures import draw_patching

        draw_patching(view, out)
    else:
        view.save(out)
    print(out)


def _print(view: "PatchView") -> None:
    """Print both grids; layers, heads and positions count from 1, as everywhere people see them."""
    values = view.json()
    print(f"{values['kind']}, {values['model']}: {values['answer']} and not {values['instead']}")
    for name, side in (("clean", "source"), ("corrupted", "other")):
        found = values[name]
        print(
            f"  {' '.join(values[side])}\n    probabilities {found['answer']:.3f} and {found['instead']:.3f}, "
            f"difference of logits {found['difference']:+.3f}"
        )
    at = "" if view.position is None else f" at token {view.position + 1}, {values['source'][view.position]}"
    print(f"\nshare of the difference that the output of each head{at} restores (0 as corrupted, 1 as clean):")
    _print_grid(view.heads, [f"head {number}" for number in range(1, 1 + max(len(row.values) for row in view.heads))])
    for text in dict.fromkeys(row.site.text for row in view.states):
        tokens = view.contrast.clean.texts[text].tokens
        where = "the decoder's input" if text == "read" else "the text"
        print(f"\nshare that the state of each token of {where} after each layer restores:")
        _print_grid([row for row in view.states if row.site.text == text], tokens)


def _print_grid(rows: Sequence["GridRow"], columns: Sequence[str]) -> None:
    names = [column if len(column) <= WIDEST else f"{column[: WIDEST - 1]}…" for column in columns]
    widths = [max(len(name), 5) for name in names]
    left = max(len(_row_name(row)) for row in rows)
    print(" " * (left + 4) + "  ".join(name.rjust(width) for name, width in zip(names, widths, strict=True)))
    for row in rows:
        cells = [f"{value + 0.0:z.2f}".rjust(width) for value, width in zip(row.values.tolist(), widths, strict=False)]
        print(f"  {_row_name(row).ljust(left)}  " + "  ".join(cells))


def _row_name(row: "GridRow") -> str:
    return f"{row.site.part}, layer {row.site.layer + 1}"

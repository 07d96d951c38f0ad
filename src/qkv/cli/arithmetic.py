"""qkv arithmetic RUN TEXT: the numbers of one attention head at one position, step by step."""

import math
import textwrap
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import Device, check_out, run_folder

if TYPE_CHECKING:
    from torch import Tensor

    from qkv.lens.arithmetic import Arithmetic
    from qkv.lens.arithmetic.steps import Numbers, TokenProbabilities

BLOCKS = "▁▂▃▄▅▆▇█"
COLUMNS = 32  # of a bar; wider vectors are shown by evenly chosen numbers
FIRST = 4  # numbers printed beside a bar
MOST_KEYS = 30  # lines of a table; of more keys, those with the largest weights
LINE = 110  # letters


def arithmetic_command(
    run: Annotated[Path, typer.Argument(parser=run_folder, metavar="RUN", help="Folder of a run of any model with attention.")],
    text: Annotated[str, typer.Argument(help="Input text, as for qkv look; for an encoder with or without [MASK].")],
    target: Annotated[
        str | None,
        typer.Option(help="Translation or continuation to use instead of the model's own; for an encoder, the second text."),
    ] = None,
    part: Annotated[str | None, typer.Option(help="encoder, decoder or cross (from target to source).")] = None,
    layer: Annotated[int | None, typer.Option(help="The layer, from 1; the last one by default.")] = None,
    head: Annotated[int | None, typer.Option(help="The head, from 1; by default the one that attends most to one word.")] = None,
    position: Annotated[int | None, typer.Option(help="The token that attends, from 1; by default a longer word.")] = None,
    out: Annotated[Path | None, typer.Option(help="File to write: page.html with the layer's heads, or numbers.json.")] = None,
    device: Device = "auto",
) -> None:
    """Show the numbers of one attention head at one position, step by step."""
    check_out(out, ".html", ".json")
    from qkv.inference.load import inspectable
    from qkv.lens.arithmetic import HeadChoice, arithmetic, with_other_heads
    from qkv.lens.page import write_page

    loaded = inspectable(run, device, "arithmetic")
    found = arithmetic(loaded, text, target, HeadChoice(part, layer, head, position, counted_from=1))
    if out is None:
        _print(found)
    elif out.suffix == ".html":
        print(write_page(with_other_heads(loaded, text, target, found), out))
    else:
        print(found.save(out))


def _print(found: "Arithmetic") -> None:
    """Print all steps; layers, heads and positions count from 1."""
    chosen = next(one for one in found.choices if one["part"] == found.part)
    print(f"{found.kind}, {found.model}: {found.part} attention, layer {found.layer + 1} of {chosen['layers']}, ", end="")
    print(f"head {found.head + 1} of {chosen['heads']}, position {found.position + 1} of {chosen['positions']}")
    there = "" if found.predicts is None else f"; the token to be predicted is {found.predicts}"
    print(f"reads {found.reads}{there}")
    weights = found["softmax"]["weights"]
    shown = sorted(weights.topk(min(MOST_KEYS, len(weights))).indices.tolist())
    columns: dict[str, Tensor] = {}  # numbers by key, for one table
    for number, step in enumerate(found.steps, 1):
        words = step.words
        print(f"\n{number}. {words.title}   {words.formula}")
        print(textwrap.fill(words.says, LINE, initial_indent="   ", subsequent_indent="   "))
        for one in step.values:
            if one.kind == "keys":
                if step.name != "mask_none":  # which changes nothing
                    columns[one.label] = one.values
            elif one.kind == "tokens":
                _print_tokens(one)
            elif one.kind == "number":
                print(f"   {one.label} = {float(one.values):.4g}")
            else:
                _print_vectors(found, one, shown)
        if step.name == "softmax":
            _print_table(found, columns, shown)


def _print_vectors(found: "Arithmetic", numbers: "Numbers", shown: list[int]) -> None:
    """Print a vector in a line, or a matrix with a line for each key or head."""
    if numbers.kind == "vector":
        print(f"   {numbers.label}  {_bar(numbers.values)}")
        return
    names = [f"head {n + 1}" for n in range(len(numbers.values))] if numbers.rows == "heads" else found.keys
    rows = shown if numbers.rows == "keys" else range(len(names))
    width = max(_columns(names[n]) for n in rows)
    scale = float(numbers.values.abs().max())
    for n in rows:
        print(f"   {_padded(names[n], width)}  {_bar(numbers.values[n], scale)}")
    _print_rest(len(names) - len(rows))


def _print_table(found: "Arithmetic", columns: dict[str, "Tensor"], shown: list[int]) -> None:
    """Print a line for each key: its scores, and its weight as a bar."""
    width = max(_columns(found.keys[n]) for n in shown)
    print("   " + _padded("", width) + "".join(f"{label:>10}" for label in columns))
    for n in shown:
        numbers = [float(values[n]) for values in columns.values()]
        cells = "".join(f"{'hidden':>10}" if value == -math.inf else f"{value:10.3f}" for value in numbers)
        print(f"   {_padded(found.keys[n], width)}{cells}  {'█' * round(COLUMNS * numbers[-1])}")
    _print_rest(len(found.keys) - len(shown))


def _print_tokens(found: "TokenProbabilities") -> None:
    """Print the most probable tokens; a star marks the one that the text has."""
    width = max(map(_columns, found.tokens))
    for n, token in enumerate(found.tokens):
        probability = float(found.probabilities[n])
        bar = "█" * round(COLUMNS * probability) + ("  *" if n == found.given else "")
        print(f"   {_padded(token, width)}{float(found.logits[n]):10.3f}{probability:8.1%}  {bar}")


def _print_rest(number: int) -> None:
    if number:
        print(f"   and {number} more")


def _bar(values: "Tensor", scale: float | None = None) -> str:
    """Return a line of blocks, the middle one for 0, and the first numbers."""
    scale = float(values.abs().max()) if scale is None else scale
    chosen = values[:: -(-len(values) // COLUMNS)].tolist()
    blocks = "".join(BLOCKS[round((value / scale + 1) / 2 * (len(BLOCKS) - 1)) if scale else 0] for value in chosen)
    first = " ".join(f"{value:.2f}" for value in values[:FIRST].tolist())
    return f"{blocks}  {first}{' …' if len(values) > FIRST else ''} ({len(values)})"


def _columns(text: str) -> int:
    """Return the width of a text in a terminal, where Chinese characters take two columns."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _columns(text))

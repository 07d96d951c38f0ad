"""qkv attribute RUN TEXT: show which words mattered for an output."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.base.errors import ConfigError
from qkv.cli.options import Device, check_out, run_folder

if TYPE_CHECKING:
    from qkv.lens.attribution_view import AttributionView

NAMES = {"gradient": "gradient x input", "integrated": "integrated gradients", "occlusion": "occlusion"}
BAR = 24  # characters of the longest bar


def attribute_command(
    run: Annotated[Path, typer.Argument(parser=run_folder, metavar="RUN", help="Folder of a run of any model with attention.")],
    text: Annotated[str, typer.Argument(help="Input text; for an encoder with [MASK], unless it is fine-tuned.")],
    target: Annotated[
        str | None,
        typer.Option(help="Translation or continuation to use instead of the model's own; for an encoder, the second text."),
    ] = None,
    method: Annotated[
        str, typer.Option(help="gradient (gradient x input), integrated (integrated gradients) or occlusion (without each word).")
    ] = "gradient",
    word: Annotated[
        int | None,
        typer.Option(
            help="Number of the word to explain, from 1: of the translation or of a GPT's text; or of the [MASK].", min=1
        ),
    ] = None,
    instead: Annotated[
        str | None, typer.Option(help="Explain why that word and not this one; the other label for a class.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File: page.html with all methods, picture.png or numbers.json.")] = None,
    device: Device = "auto",
) -> None:
    """Show how much each word of a text contributed to the output."""
    check_out(out, ".html", ".png", ".json")
    if method not in NAMES:
        raise ConfigError(f"--method {method}: choose {', '.join(NAMES)}")
    from qkv.inference.attribute import attribute
    from qkv.inference.load import inspectable
    from qkv.lens.page import write_page

    loaded, word = inspectable(run, device, "attribute"), None if word is None else word - 1
    found = attribute(loaded, text, target, method, word, instead)
    if out is None:
        _print(found)
    elif out.suffix == ".html":
        others = [attribute(loaded, text, target, other, word, instead).json() for other in NAMES if other != method]
        print(write_page({**found.json(), "others": others}, out))
    else:
        print(found.save(out))


def _print(found: "AttributionView") -> None:
    """Print a line for each word, with a bar to the right for support and to the left for opposition."""
    attribution, words = found.attribution, found.words()
    if found.output is not None:
        print(f"output: {found.output}")
    print(f"{NAMES[attribution.method]}: what supports (+) and opposes (-) {attribution.of}")
    if attribution.method == "occlusion":
        print(f"each word {'left out' if found.replaced_by is None else f'replaced by {found.replaced_by}'}")
    width = max(len(word) for word, _ in words)
    most = max(abs(value) for _, value in words) or 1.0
    for word, value in words:
        length = round(BAR * abs(value) / most)
        print(f"  {word:{width}}  {value:+8.3f}  {('+' if value > 0 else '-') * length}")
    check = attribution.completeness
    if check is not None:
        state = "complete" if check.complete else "NOT complete: take the values as rough"
        print(f"sum {check.sum:.3f}, difference of scores {check.difference:.3f}, {check.steps} steps: {state}")

"""qkv layers RUN TEXT: show what a model would predict if it stopped after each layer."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import Device, check_out, run_folder

if TYPE_CHECKING:
    from qkv.lens.layer_predictions import LayerPredictions

SHOWN = 3  # tokens printed for each layer


def layers_command(
    run: Annotated[
        Path, typer.Argument(parser=run_folder, metavar="RUN", help="Folder of a translator's, an encoder's or a GPT's run.")
    ],
    text: Annotated[str, typer.Argument(help="Input text; for an encoder with [MASK].")],
    target: Annotated[
        str | None, typer.Option(help="Translation instead of the model's own; for a GPT, the end of the text.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, max=100, help="Most probable tokens of each layer in the JSON.")] = 5,
    out: Annotated[Path | None, typer.Option(help="File to write: page.html, picture.png or numbers.json.")] = None,
    device: Device = "auto",
) -> None:
    """Show what a model would predict if it stopped after each layer (logit lens)."""
    check_out(out, ".html", ".png", ".json")
    from qkv.inference.laboratory import layers

    view = layers(run, text, target, top, device)
    if out is None:
        _print(view)
        return
    if out.suffix == ".png":
        from qkv.lens.grid_figures import draw_layers

        draw_layers(view, out)
    else:
        view.save(out)
    print(out)


def _print(view: "LayerPredictions") -> None:
    """Print the predictions of each layer, position by position; layers and positions count from 1."""
    print(f"{view.kind}, {view.model}: {len(view.layers)} layers")
    tokens = view.texts[view.predicts_in].tokens
    for number, (position, answer) in enumerate(zip(view.positions, view.answers, strict=True)):
        place = f"at token {position + 1}" if view.kind == "encoder" else f"after {tokens[position]}"
        print(f"\n{answer}, {place}:")
        for layer, site in enumerate(view.layers):
            best = ", ".join(f"{token} {value:.0%}" for token, value in view.top[layer][number][:SHOWN])
            chance, rank = float(view.probability[layer, number]), int(view.rank[layer, number])
            print(f"  {site.part}, layer {site.layer + 1}\trank {rank}, {chance:.1%}\t{best}")

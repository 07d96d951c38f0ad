"""qkv fill RUN TEXT: predict what stands at each [MASK]."""

from pathlib import Path
from typing import Annotated

import typer

from qkv.cli.options import Device, run_folder


def fill_command(
    run: Annotated[
        Path, typer.Argument(parser=run_folder, metavar="RUN", help="Folder of a pretrained encoder's run, or of a T5's.")
    ],
    text: Annotated[str, typer.Argument(help='Text with [MASK] in it, such as "Paris is the [MASK] of France."')],
    top: Annotated[int, typer.Option(min=1, help="Predictions printed for each [MASK].")] = 5,
    device: Device = "auto",
) -> None:
    """Predict the words behind each [MASK], most likely first.

    Each line has the number of the [MASK], a probability and a word.
    A T5 fills in text of any length.
    """
    from qkv.folder.run import read_recipe
    from qkv.inference.infiller import load_infiller
    from qkv.inference.text_encoder import load_text_encoder
    from qkv.models import FAMILIES

    load = load_infiller if FAMILIES[read_recipe(run).model.kind].pretrains_translator else load_text_encoder
    found = load(run, device).fill([text], top)[0]
    for number, guesses in enumerate(found, 1):
        for word, probability in guesses:
            print(f"{number}\t{probability:.4f}\t{' '.join(word.split())}")  # a T5's text may span several lines

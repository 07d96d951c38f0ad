"""qkv fill RUN TEXT: the words that an encoder would put for each [MASK]."""

from pathlib import Path
from typing import Annotated

import typer

from qkv.cli.lines import warnings_as_lines


def fill_command(
    run: Annotated[Path, typer.Argument(help="The run's folder: an encoder that was taught to guess words, or a T5.")],
    text: Annotated[str, typer.Argument(help='A text with [MASK] in it, such as "Paris is the [MASK] of France."')],
    top: Annotated[int, typer.Option(min=1, help="Words shown for each [MASK].")] = 5,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Guess hidden words: for each [MASK] its number, probabilities and words, likeliest first; of a T5, texts of any length."""
    from qkv.folder.run import read_recipe
    from qkv.inference.infiller import load_infiller
    from qkv.inference.text_encoder import load_text_encoder

    load = load_infiller if read_recipe(run).model.kind == "t5" else load_text_encoder
    with warnings_as_lines():
        found = load(run, device).fill(text, top)
    for number, guesses in enumerate(found, 1):
        for word, probability in guesses:
            print(f"{number}\t{probability:.4f}\t{' '.join(word.split())}")  # a T5's may have several lines

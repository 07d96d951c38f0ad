"""qkv generate RUN [TEXT]: what a GPT goes on with, word by word."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from qkv.base.errors import ConfigError
from qkv.cli.lines import lines_of, warnings_as_lines


def generate_command(
    run: Annotated[Path, typer.Argument(help="The run's folder: a GPT, trained here or imported.")],
    text: Annotated[str | None, typer.Argument(help='How it begins: "Once upon a time"; standard input when not given.')] = None,
    longest: Annotated[int, typer.Option("--tokens", help="How many tokens are added at most.")] = 200,
    sampling: Annotated[bool, typer.Option("--sample", help="Draw at random; so does each of the next three.")] = False,
    temperature: Annotated[float | None, typer.Option(help="Below 1 sharpens, above 1 flattens.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw from so many words.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the words that hold this share of probability.")] = None,
    repetition_penalty: Annotated[float | None, typer.Option(help="Above 1, words are less likely to come again.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End before this string; may be given several times.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Texts drawn at random, a line of --- between them.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Another seed draws other texts.")] = 1,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Any key of `decoding`: key=value.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Go on with a text: the likeliest next words, or words drawn at random."""
    from qkv.base.config import with_settings
    from qkv.inference.text_generator import load_text_generator

    given: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    drawn = sampling or samples > 1 or any(value is not None for value in given.values())
    given |= {"repetition_penalty": repetition_penalty, "sampling": drawn or None, "n_best": samples, "seed": seed}
    options = with_settings({name: value for name, value in given.items() if value is not None}, settings or [])
    if drawn and options.get("beam", 1) != 1:
        raise ConfigError(
            f"beam {options['beam']} searches for the likeliest text, and the other options draw one; leave them out"
        )
    generator = load_text_generator(run, device)
    config = generator.decoding(longest, **options)
    text = "\n".join(lines_of(None)) if text is None else text
    with warnings_as_lines():
        if config.n_best > 1 or config.searches:
            (found,) = generator.generate([text], longest, stop or (), **options)
            print("\n---\n".join(text + one.text for one in found))
        else:
            generator.generate([text], longest, stop or (), _Printer(text), **options)
            print()


class _Printer:
    """Prints the prompt when the first words come, so that nothing is printed where something is wrong, then each as it comes."""

    def __init__(self, prompt: str):
        self.waiting = prompt

    def __call__(self, news: str) -> None:
        sys.stdout.write(self.waiting + news)
        sys.stdout.flush()
        self.waiting = ""

"""qkv generate RUN [TEXT]: continue a text with a language model, token by token."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from qkv.base.errors import ConfigError
from qkv.cli.batch import BatchOptions, Column, On, WorkerCount, run_batch_command
from qkv.cli.lines import input_lines
from qkv.cli.options import Decoding, Device, run_folder


def generate_command(
    run: Annotated[
        Path, typer.Argument(parser=run_folder, metavar="RUN", help="Folder of a GPT's run, trained here or imported.")
    ],
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT]",
            help='Prompt, such as "Once upon a time"; without it, read from standard input; with --out, shards of prompts.',
        ),
    ] = None,
    out: Annotated[str | None, typer.Option(help="Folder or URL for the continuations of shards of prompts.")] = None,
    max_tokens: Annotated[int, typer.Option("--tokens", help="Maximum number of new tokens.")] = 200,
    sampling: Annotated[
        bool, typer.Option("--sample", help="Sample instead of decoding greedily; the next three options imply it.")
    ] = False,
    temperature: Annotated[float | None, typer.Option(help="Below 1 sharpens the distribution, above 1 flattens it.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Sample from the k most likely tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sample from the most likely tokens that hold this probability.")] = None,
    repetition_penalty: Annotated[float | None, typer.Option(help="Above 1 makes repeated tokens less likely.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End before this string; repeat for several.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Number of sampled texts, separated by lines of ---.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Random seed for sampling.")] = 1,
    settings: Decoding = None,
    on: On = None,
    workers: WorkerCount = None,
    column: Column = "text",
    device: Device = "auto",
) -> None:
    """Continue a text, greedily or by sampling."""
    from qkv.base.config import with_settings
    from qkv.inference.text_generator import load_text_generator

    given: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    samples_tokens = sampling or samples > 1 or any(value is not None for value in given.values())
    given |= {"repetition_penalty": repetition_penalty, "sampling": samples_tokens or None, "n_best": samples, "seed": seed}
    options = with_settings({name: value for name, value in given.items() if value is not None}, settings or [])
    if samples_tokens and options.get("beam", 1) != 1:
        raise ConfigError(
            f"beam {options['beam']} searches for the most likely text and cannot sample; leave beam or sampling out"
        )
    batch = BatchOptions(texts or [], out, on, workers, device)
    if out is not None or on is not None or workers is not None:
        of_verb = {"max_tokens": max_tokens, "stop": tuple(stop or ()), "decoding": options, "column": column}
        run_batch_command("generate", run, batch, of_verb)
        return
    if texts and len(texts) > 1:
        raise ConfigError("several prompts; put quotes around one, or give shards of prompts with --out")
    generator = load_text_generator(run, device)
    config = generator.decoding(max_tokens, **options)
    text = texts[0] if texts else "\n".join(input_lines(None))
    if config.n_best > 1 or config.searches:
        (found,) = generator.generate([text], max_tokens, stop or (), **options)
        print("\n---\n".join(text + one.text for one in found))
    else:
        generator.generate([text], max_tokens, stop or (), _StreamPrinter(text), **options)
        print()


class _StreamPrinter:
    """Prints new text as it is generated; holds the prompt back until then, so that a failed call prints nothing."""

    def __init__(self, prompt: str):
        self.pending = prompt

    def __call__(self, new_text: str) -> None:
        sys.stdout.write(self.pending + new_text)
        sys.stdout.flush()
        self.pending = ""

"""qkv predict RUN FILE: what a fine-tuned encoder says of examples."""

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from qkv.base.errors import ConfigError
from qkv.base.files import atomic_file
from qkv.cli.lines import warnings_as_lines


def predict_command(
    run: Annotated[Path, typer.Argument(help="The run's folder: an encoder that was fine-tuned.")],
    file: Annotated[Path, typer.Argument(help="Examples as in training, labels not needed; or .txt, a text a line.")],
    out: Annotated[Path | None, typer.Option(help="The file to write; standard output when not given.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Where texts are: text=sentence, pair=2, format=tsv.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Say of each example its class and the probability, its number, the tags of its words, or the answer (as JSON by id)."""
    from qkv.cli.examples import examples_in
    from qkv.inference.text_encoder import load_text_encoder

    if out is not None and out.exists():
        raise ConfigError(f"{out} exists already; choose another --out")
    reader = load_text_encoder(run, device)
    recipe = reader.finetuned()
    kind = recipe.objective.kind
    examples = examples_in(recipe, (str(file),), settings, labelled=False)
    with warnings_as_lines():
        predictions = reader.predict(examples)
    with _written(out) as stream:
        for line in _lines(kind, examples, predictions):
            print(line, file=stream)


@contextlib.contextmanager
def _written(out: Path | None) -> Iterator[IO[str]]:
    if out is None:
        yield sys.stdout
        return
    with atomic_file(out) as aside, aside.open("w", encoding="utf-8") as stream:
        yield stream


def _lines(kind: str, examples: Sequence[Any], predictions: Sequence[Any]) -> Iterator[str]:
    """A line for each example, or for each word and one between sentences; answers together, as SQuAD's own script reads them."""
    if kind == "answering":
        answers = {example.id: said.text for example, said in zip(examples, predictions, strict=True)}
        yield json.dumps(answers, ensure_ascii=False, indent=1)
    for example, said in zip(examples, predictions, strict=True):
        if kind == "classification":
            yield f"{said.label}\t{said.probability:.4f}"
        elif kind == "regression":
            yield f"{said:.4f}"
        elif kind == "tagging":
            yield from (f"{word}\t{tag}" for word, tag in zip(example.words, said, strict=True))
            yield ""

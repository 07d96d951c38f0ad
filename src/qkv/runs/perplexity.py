"""How well a GPT, or an ELMo from both ends, foresees text: nats a token, perplexity and, of a GPT, bits per byte."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from qkv.base.errors import ConfigError
from qkv.base.hardware import choose_device
from qkv.recipe import PretrainingRecipe
from qkv.runs.encoders import EncoderRun, read_encoder
from qkv.runs.pretraining import Text, Validator, hold_out, tokenised, told_of
from qkv.text.documents import document_files, names_of
from qkv.training.progress import Progress


class Foreseen(NamedTuple):
    """What was scored, and how."""

    scores: dict[str, float]  # loss, perplexity and bits_per_byte; of an ELMo the perplexity of each direction
    documents: int
    tokens: int


def read_gpt(folder: str | Path) -> EncoderRun:
    """A run that must be a GPT's."""
    run = read_encoder(Path(folder))
    if not isinstance(run.recipe, PretrainingRecipe) or run.recipe.objective.kind != "causal":
        raise ConfigError(f"{folder} was trained for {run.recipe.objective.kind}, not from left to right; a GPT's run is wanted")
    return run


def foresee(run: EncoderRun, data: str | None = None, device: str = "auto") -> Foreseen:
    """Score a GPT or an ELMo on a text, in stretches of data.length; on the recipe's held-out one when none is given."""
    recipe: Any = run.recipe
    text = _held_out(run) if data is None and not recipe.data.dev else _given(run, (data,) if data else recipe.data.dev)
    model = run.network.model().to(choose_device(device))
    scores = Validator(recipe, text, model, Progress(quiet=True)).score()
    return Foreseen(
        {name.removeprefix("dev_"): value for name, value in scores.items()},
        len(np.unique(text.dev.document[text.held_out])),
        int(text.dev.tokens.lengths(text.held_out).sum()),
    )


def _given(run: EncoderRun, patterns: tuple[str, ...]) -> Text:
    files = document_files(patterns)
    documents, _ = tokenised(run.recipe, files, run.tokenizer)  # type: ignore[arg-type]
    return _scored(run, documents, np.arange(len(documents)), names_of(files))


def _held_out(run: EncoderRun) -> Text:
    """What training held out of its text; the text must still be there."""
    recipe: Any = run.recipe
    files = document_files(recipe.data.text)
    documents, _ = tokenised(recipe, files, run.tokenizer)
    with told_of(names_of(files)):
        return _scored(run, documents, hold_out(documents, recipe.data.held_out), names_of(files))


def _scored(run: EncoderRun, documents: Any, numbers: np.ndarray, name: str) -> Text:
    return Text(run.tokenizer, documents, numbers[:0], documents, numbers, name, name)

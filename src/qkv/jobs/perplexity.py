"""How well a model foresees text: nats a token, perplexity and bits for each byte; an ELMo from both ends.

A GPT reads stretches as in training; a UniLM and an XLNet read passages as in training, each token from those before it in its
passage. An ELMo, to which rare words are one, has no bits per byte. A T5 foresees nothing, and is scored by what it restores.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from qkv.base.errors import ConfigError
from qkv.base.hardware import choose_device
from qkv.base.rows import IGNORE_INDEX
from qkv.data.held_out import hold_out
from qkv.folder.networks import EncoderRun, read_encoder
from qkv.folder.run import read_recipe
from qkv.folder.t5 import T5Run, read_t5, t5_with_weights
from qkv.inference.text_scores import control_of
from qkv.jobs.pretraining import Text, Validator, passages, tokenised, told_of
from qkv.objectives.likelihood import teller
from qkv.objectives.tally import perplexity
from qkv.parts.heads import ModelWithHeads
from qkv.recipes import PretrainingRecipe
from qkv.text.documents import find_document_files, shorten_file_list
from qkv.training.progress import Progress

# What makes texts plain passages, of objectives with which models learn to read from left to right among other ways.
ONE_WAY: dict[str, dict[str, Any]] = {
    "unilm": {"both": 0.0, "left": 1.0, "right": 0.0, "sequence": 0.0},
    "permutation": {"sentence_pairs": False},
}
# What does some of what a GPT would, of other objectives.
INSTEAD = {
    "unilm": ", or teach this one pairs (translate-unilm) and use qkv translate",
    "translation": ", or use qkv translate",
}


class Foreseen(NamedTuple):
    """What was scored, and how."""

    scores: dict[str, float]  # loss, perplexity and bits_per_byte; of an ELMo the perplexity of each direction
    documents: int
    tokens: int


def read_gpt(folder: str | Path) -> EncoderRun:
    """A run that must be a GPT's."""
    run = read_encoder(Path(folder))
    if not isinstance(run.recipe, PretrainingRecipe) or run.recipe.objective.kind != "causal":
        kind = run.recipe.objective.kind
        instead = INSTEAD.get(kind, "")
        raise ConfigError(f"{folder} was trained for {kind}, not from left to right alone; a GPT's run is wanted{instead}")
    return run


def read_scored(folder: Path) -> EncoderRun | T5Run:
    """A run that `foresee` scores."""
    return read_t5(folder) if read_recipe(folder).model.kind == "t5" else read_encoder(folder)


def foresee(run: EncoderRun | T5Run, data: str | None = None, device: str = "auto") -> Foreseen:
    """Score a model on a text, in stretches of data.length; on the recipe's held-out one when none is given."""
    recipe: Any = run.recipe
    text = _held_out(run) if data is None and not recipe.data.dev else _given(run, (data,) if data else recipe.data.dev)
    model = (t5_with_weights(recipe, run).eval() if isinstance(run, T5Run) else run.network.model()).to(choose_device(device))
    scores = from_the_left(run, text, model) if recipe.masks else Validator(recipe, text, model, Progress(quiet=True)).score()
    return Foreseen(
        {name.removeprefix("dev_"): value for name, value in scores.items()},
        len(np.unique(text.dev.document[text.held_out])),
        int(text.dev.tokens.lengths(text.held_out).sum()),
    )


def can_foresee(recipe: Any) -> bool:
    """Whether a run's model tells tokens from those before them, or spans that were dropped out."""
    return isinstance(recipe, PretrainingRecipe) and recipe.objective.kind in ("causal", "bidirectional", "spans", *ONE_WAY)


@torch.no_grad()
def from_the_left(run: EncoderRun | T5Run, text: Text, model: ModelWithHeads) -> dict[str, float]:
    """What Validator says of a GPT, of a model that learned otherwise but can read from left to right."""
    recipe: Any = run.recipe
    objective = recipe.objective.model_copy(update=ONE_WAY[recipe.objective.kind])
    batches = passages(recipe.model_copy(update={"objective": objective}), run.tokenizer, text.dev, text.held_out)
    tell, control, device = teller(recipe.model.kind, "left"), control_of(run.tokenizer), next(model.parameters()).device
    sizes, nats, tokens, size = torch.tensor(run.tokenizer.byte_lengths(), device=device), 0.0, 0, 0
    for batch in batches.in_order():
        told = tell(model, batch.to(device).inputs[0].rows, control)
        real = told.answer != IGNORE_INDEX
        nats -= float(told.logs.sum(dtype=torch.float64))
        tokens += int(real.sum())
        size += int((sizes[told.answer.clamp(min=0)] * real).sum())
    loss = nats / tokens
    return {"loss": loss, "perplexity": perplexity(loss), "bits_per_byte": nats / math.log(2) / size}


def _given(run: EncoderRun | T5Run, patterns: tuple[str, ...]) -> Text:
    files = find_document_files(patterns)
    documents, _ = tokenised(run.recipe, files, run.tokenizer)  # type: ignore[arg-type]
    return _scored(run, documents, np.arange(len(documents)), shorten_file_list(files))


def _held_out(run: EncoderRun | T5Run) -> Text:
    """What training held out of its text; the text must still be there."""
    recipe: Any = run.recipe
    files = find_document_files(recipe.data.text)
    documents, _ = tokenised(recipe, files, run.tokenizer)
    with told_of(shorten_file_list(files)):
        return _scored(run, documents, hold_out(documents, recipe.data.held_out), shorten_file_list(files))


def _scored(run: EncoderRun | T5Run, documents: Any, numbers: np.ndarray, name: str) -> Text:
    return Text(run.tokenizer, documents, numbers[:0], documents, numbers, name, name)

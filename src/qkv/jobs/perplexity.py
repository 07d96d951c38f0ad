"""How well a model foresees text: nats a token, perplexity and bits for each byte; an ELMo from both ends.

A GPT reads stretches as in training; a UniLM and an XLNet read passages as in training, each token from those before it in its
passage. An ELMo, to which rare words are one, has no bits per byte. A T5 foresees nothing, and is scored by what it restores.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from qkv.base.hardware import choose_device
from qkv.base.rows import IGNORE_INDEX
from qkv.data.held_out import hold_out
from qkv.folder.networks import EncoderRun, TranslatorRun, read_encoder, read_translator
from qkv.folder.run import read_recipe
from qkv.inference.text_scores import control_tokens, scorer_for
from qkv.jobs.pretraining import PretrainingValidator, Text, batch_settings, named_in_errors, tokenised
from qkv.models import FAMILIES
from qkv.objectives import OBJECTIVES
from qkv.objectives.tally import perplexity
from qkv.parts.heads import ModelWithHeads
from qkv.text.documents import find_document_files, shorten_file_list
from qkv.training.progress import Progress


class Perplexity(NamedTuple):
    """What was scored, and how."""

    scores: dict[str, float]  # loss, perplexity and bits_per_byte; of an ELMo the perplexity of each direction
    documents: int
    tokens: int


def read_scored(folder: Path) -> EncoderRun | TranslatorRun:
    """Read a run that `measure_perplexity` scores."""
    whole = FAMILIES[read_recipe(folder).model.kind].pretrains_translator
    return read_translator(folder) if whole else read_encoder(folder)


def measure_perplexity(run: EncoderRun | TranslatorRun, data: str | None = None, device: str = "auto") -> Perplexity:
    """Score a model on a text, in stretches of data.length; on the recipe's held-out one when none is given."""
    recipe: Any = run.recipe
    text = _held_out(run) if data is None and not recipe.data.dev else _given(run, (data,) if data else recipe.data.dev)
    model = run.model().to(choose_device(device))
    if recipe.objective.whole_documents:
        scores = PretrainingValidator(recipe, text, model, Progress(quiet=True)).score()
    else:
        scores = left_to_right(run, text, model)
    return Perplexity(
        {name.removeprefix("dev_"): value for name, value in scores.items()},
        len(np.unique(text.dev.document[text.held_out])),
        int(text.dev.tokens.lengths(text.held_out).sum()),
    )


def has_perplexity(recipe: Any) -> bool:
    """Return whether a run's model predicts tokens from those before them, or spans that were dropped out."""
    if recipe.job != "pretraining":
        return False
    return recipe.objective.whole_documents or recipe.objective.left_to_right_passages() is not None


@torch.no_grad()
def left_to_right(run: EncoderRun | TranslatorRun, text: Text, model: ModelWithHeads) -> dict[str, float]:
    """What Validator says of a GPT, of a model that learned otherwise but can read from left to right."""
    recipe: Any = run.recipe
    plain = recipe.model_copy(update={"objective": recipe.objective.left_to_right_passages()})
    objective = OBJECTIVES[plain.objective.kind].build(plain.objective, run.tokenizer)
    batches = objective.batches(text.dev, text.held_out, batch_settings(plain, run.tokenizer))
    score_tokens, control = scorer_for(recipe.model.kind, "left"), control_tokens(run.tokenizer)
    device = next(model.parameters()).device
    sizes, nats, tokens, size = torch.tensor(run.tokenizer.byte_lengths(), device=device), 0.0, 0, 0
    for batch in batches.in_order():
        found = score_tokens(model, batch.to(device).inputs[0].rows, control)
        real = found.labels != IGNORE_INDEX
        nats -= float(found.logs.sum(dtype=torch.float64))
        tokens += int(real.sum())
        size += int((sizes[found.labels.clamp(min=0)] * real).sum())
    loss = nats / tokens
    return {"loss": loss, "perplexity": perplexity(loss), "bits_per_byte": nats / math.log(2) / size}


def _given(run: EncoderRun | TranslatorRun, patterns: tuple[str, ...]) -> Text:
    files = find_document_files(patterns)
    documents, _ = tokenised(run.recipe, files, run.tokenizer)  # type: ignore[arg-type]
    return _scored(run, documents, np.arange(len(documents)), shorten_file_list(files))


def _held_out(run: EncoderRun | TranslatorRun) -> Text:
    """What training held out of its text; the text must still be there."""
    recipe: Any = run.recipe
    files = find_document_files(recipe.data.text)
    documents, _ = tokenised(recipe, files, run.tokenizer)
    with named_in_errors(shorten_file_list(files)):
        return _scored(run, documents, hold_out(documents, recipe.data.held_out), shorten_file_list(files))


def _scored(run: EncoderRun | TranslatorRun, documents: Any, numbers: np.ndarray, name: str) -> Text:
    return Text(run.tokenizer, documents, numbers[:0], documents, numbers, name, name)

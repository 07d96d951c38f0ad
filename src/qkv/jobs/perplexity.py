"""Perplexity of a text: nats per token, perplexity and bits per byte.

A GPT reads running text as in training; a UniLM and an XLNet read passages as in training, and predict each token from those
before it in its passage. An ELMo has a perplexity for each direction, and no bits per byte, because all rare words are one <unk>.
A T5 has the loss of span corruption.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from qkv.base.hardware import choose_device
from qkv.base.rows import IGNORE_INDEX
from qkv.data.held_out import hold_out
from qkv.folder.networks import NetworkRun, TranslatorRun, read_network_run, read_translator_run
from qkv.folder.run import read_recipe
from qkv.inference.text_scores import control_tokens, scorer_for
from qkv.jobs.pretraining import PreparedText, PretrainingValidator, batch_settings, named_in_errors, tokenise_files
from qkv.models import FAMILIES
from qkv.objectives import OBJECTIVES
from qkv.objectives.tally import perplexity
from qkv.parts.heads import ModelWithHeads
from qkv.text.documents import find_document_files, shorten_file_list
from qkv.training.progress import Progress


class Perplexity(NamedTuple):
    """The scores of a text, and its size."""

    scores: dict[str, float]  # loss, perplexity and bits_per_byte; for an ELMo the perplexity of each direction
    documents: int
    tokens: int


def read_pretrained_run(folder: Path) -> NetworkRun | TranslatorRun:
    """Read a pretrained run for `measure_perplexity`; warn of one that is still in training."""
    whole = FAMILIES[read_recipe(folder).model.kind].pretrains_translator
    found: NetworkRun | TranslatorRun = read_translator_run(folder) if whole else read_network_run(folder)
    found.weights_file.warn_if_unfinished()
    return found


def measure_perplexity(run: NetworkRun | TranslatorRun, data: str | None = None, device: str = "auto") -> Perplexity:
    """Score a model on a text file; by default on the recipe's data.dev, or on the text that training held out."""
    recipe: Any = run.recipe
    patterns = (data,) if data else recipe.data.dev
    files = find_document_files(patterns or recipe.data.text)
    documents, _ = tokenise_files(recipe, files, run.tokenizer)
    name = shorten_file_list(files)
    numbers = np.arange(len(documents))
    if not patterns:
        with named_in_errors(name):
            numbers = hold_out(documents, recipe.data.held_out)
    text = PreparedText(run.tokenizer, documents, numbers[:0], documents, numbers, name, name)
    model = run.model().to(choose_device(device))
    if recipe.objective.whole_documents:
        validator = PretrainingValidator(recipe, text, model, Progress(quiet=True))
        validator.use_float32()
        scores = validator.score()
    else:
        scores = left_to_right(run, text, model)
    return Perplexity(
        {name.removeprefix("dev_"): value for name, value in scores.items()},
        text.dev.count(text.held_out),
        int(text.dev.tokens.lengths(text.held_out).sum()),
    )


@torch.no_grad()
def left_to_right(run: NetworkRun | TranslatorRun, text: PreparedText, model: ModelWithHeads) -> dict[str, float]:
    """Return the scores of a GPT for a model with another objective that can also predict left to right."""
    recipe: Any = run.recipe
    plain = recipe.model_copy(update={"objective": recipe.objective.left_to_right_passages()})
    objective = OBJECTIVES[plain.objective.kind].build(plain.objective, run.tokenizer)
    device = next(model.parameters()).device
    batches = objective.batches(text.dev, text.held_out, batch_settings(plain, run.tokenizer, device))
    score_tokens, control = scorer_for(recipe.model.kind, "left"), control_tokens(run.tokenizer)
    byte_lengths, nats, tokens, size = torch.tensor(run.tokenizer.byte_lengths(), device=device), 0.0, 0, 0
    for batch in batches.in_order():
        found = score_tokens(model, batch.to(device).inputs[0].rows, control)
        real = found.labels != IGNORE_INDEX
        nats -= float(found.logs.cpu().sum(dtype=torch.float64))
        tokens += int(real.sum())
        size += int((byte_lengths[found.labels.clamp(min=0)] * real).sum())
    loss = nats / tokens
    return {"loss": loss, "perplexity": perplexity(loss), "bits_per_byte": nats / math.log(2) / size}

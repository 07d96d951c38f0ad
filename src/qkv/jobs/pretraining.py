"""Pretraining on raw text: documents, model, validation, report."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from qkv.base.errors import ConfigError, DataError
from qkv.base.hardware import choose_device
from qkv.data.cache import cached_digests
from qkv.data.corpora import Tokenizers
from qkv.data.documents import Documents, tokenise_documents
from qkv.data.held_out import hold_out
from qkv.data.passages import TextBatchSettings
from qkv.data.trained_tokenizers import cached_pair
from qkv.data.workers import Work
from qkv.folder.run import check_texts, check_tokenizers, load_tokenizers, read_run, save_config, save_tokenizers
from qkv.folder.start import load_start, start_translator, trained_length
from qkv.inference.spelling import with_spellings
from qkv.jobs.final_weights import last_weights
from qkv.jobs.health import count_tokens
from qkv.jobs.initial_embeddings import initialise_token_embeddings
from qkv.jobs.job import Job
from qkv.jobs.run_report import write_result
from qkv.jobs.validation import Validator
from qkv.models import FAMILIES, seeded_initialisation
from qkv.objectives import OBJECTIVES
from qkv.parts.heads import ModelWithHeads
from qkv.recipes import PretrainingRecipe
from qkv.text.documents import DocumentCounts, find_document_files, read_documents, shorten_file_list
from qkv.text.input_files import WholeFile
from qkv.text.open_vocabulary import check_whole_words
from qkv.text.special_tokens import SENTINEL
from qkv.text.tokenizer import MASK, Tokenizer, train_tokenizer
from qkv.text.word_boundaries import load_segmenter
from qkv.training.loop import Trainer, Validation
from qkv.training.progress import Progress

TOKENIZER_DOCUMENTS = 200_000  # that a tokenizer is trained on


@dataclass(frozen=True)
class PreparedText:
    """The tokenised documents of a run."""

    tokenizer: Tokenizer
    train: Documents
    chosen: np.ndarray  # the documents (for long ones, parts) to train on
    dev: Documents
    held_out: np.ndarray  # those of dev that are scored
    train_name: str  # names the text in errors
    dev_name: str

    @property
    def size(self) -> str:
        """Describe how much there is to train on, and how much is held out."""
        many = self.train.count(self.chosen)
        tokens = self.train.tokens.lengths(self.chosen).sum()
        held_out = int(self.train.first.sum()) - many
        left = f", {held_out:,} held out" if held_out else ", parts held out" if len(self.chosen) < len(self.train) else ""
        return f"{tokens:,} tokens to train on, in {many:,} document{'s' * (many > 1)}{left}"

    def counts(self) -> dict[str, Any]:
        """Return the numbers of documents and tokens, of training and of what is scored."""
        parts = {"train": (self.train, self.chosen), "held-out text": (self.dev, self.held_out)}
        return {
            name: {"documents": int(documents.count(chosen)), "tokens": int(documents.tokens.lengths(chosen).sum())}
            for name, (documents, chosen) in parts.items()
        }


def pretraining(recipe: PretrainingRecipe[Any, Any], run: Path, progress: Progress, accept_changes: bool) -> Job:
    """Prepare pretraining on raw text: documents, model, batches, validation."""
    # Checked here, not in the recipe, so that finished runs of such a recipe can still be used.
    for task, (_, first_batch) in recipe.objective.passage_tasks().items():
        if recipe.training.steps is not None and first_batch >= recipe.training.steps:
            raise ConfigError(
                f"objective.tasks: {task} would begin with update {first_batch:,}, but training.steps is "
                f"{recipe.training.steps:,}; lower its first_batch, or leave it out"
            )
    text = prepare(recipe, run, progress, accept_changes)
    objective = OBJECTIVES[recipe.objective.kind].build(recipe.objective, text.tokenizer)
    device = choose_device(recipe.training.device)
    model = initial_model(recipe, text.tokenizer, progress).to(device)
    if recipe.embeddings is not None:
        initialise_token_embeddings(model, text.tokenizer, recipe.embeddings, progress)
    with named_in_errors(text.train_name):
        batches = objective.batches(text.train, text.chosen, batch_settings(recipe, text.tokenizer, device))
    validator = PretrainingValidator(recipe, text, model, progress)
    return Job(
        model=model,
        objective=objective,
        batches=batches,
        training=recipe.training,
        validator=validator,
        size=f"{text.size}; {batches.tokens_per_batch}",
        finish=lambda trainer: finish(run, recipe, trainer, validator, text),
        token_counts=count_tokens(text.train.tokens, text.chosen, len(text.tokenizer)),
    )


def initial_model(recipe: PretrainingRecipe[Any, Any], tokenizer: Tokenizer, progress: Progress) -> Any:
    """Build the model with initial weights, or with those of the run to start from; heads that it lacks are new."""
    family = FAMILIES[recipe.model.kind]

    def new_model(vocabulary: int) -> Any:
        with seeded_initialisation(recipe.seed):
            if family.pretraining_model is not None:
                return family.pretraining_model(recipe.model, vocabulary, recipe.objective)
            assert family.network is not None
            return ModelWithHeads(family.network(recipe.model, vocabulary), recipe.objective.heads)

    if recipe.start is None:
        return with_spellings(new_model(len(tokenizer)), tokenizer)
    if family.pretrains_translator:
        return start_translator(recipe, lambda: new_model(len(tokenizer)), progress)
    started = load_start(recipe.start, progress)
    model = new_model(started.network.vocab_size)  # an imported vocabulary may exceed its tokenizer's
    # Saved networks by the name of their submodule; "" is the model itself, where there is only one network.
    saved = dict(zip(family.networks or ("",), (started.network, started.generator), strict=False))
    new = []
    for name, network in saved.items():
        part = model.get_submodule(name)
        if network is not None:
            part.load(network.weights)
        new += [head for head in part.heads if network is None or head not in network.weights]
    if new:
        progress.say(f"new, as {recipe.start} has none: {', '.join(new)}")
    return model


def batch_settings(recipe: PretrainingRecipe[Any, Any], tokenizer: Tokenizer, device: torch.device) -> TextBatchSettings:
    """Return the settings of a recipe that its batches depend on."""
    return TextBatchSettings(
        seed=recipe.seed,
        tokens=recipe.training.batch_tokens,
        length=recipe.data.length,
        bos=tokenizer.bos,
        eos=tokenizer.eos,
        pad=tokenizer.pad,
        one_text_per_row=recipe.model.one_text_per_row,
        window=recipe.data.shuffle_window,
        fixed_shape=device.type == "cuda",
    )


# The text


def prepare(recipe: PretrainingRecipe[Any, Any], run: Path, progress: Progress, accept_changes: bool) -> PreparedText:
    """Tokenise the documents, and train the tokenizer if the run has none yet; the second time is fast (cached)."""
    config = recipe.data
    files, dev_files = find_document_files(config.text), find_document_files(config.dev)
    load_segmenter(config.units)  # a missing package is reported before the work
    texts = cached_digests(files)
    check_texts(run, texts, accept_changes)
    saved = load_tokenizers(run)
    tokenizer = saved.source if saved else cached_tokenizer(recipe, files, progress)
    tokenizers = Tokenizers(tokenizer, tokenizer)
    if saved is None:
        save_tokenizers(run, tokenizers)
    check_tokenizers(run, tokenizers)
    save_config(run, recipe, tokenizers, texts, trained_length=trained_length(recipe.start, config.length))
    train, counts = tokenise_files(recipe, files, tokenizer, Work(quiet=not progress.live))
    sentences = f", {counts.sentences:,} sentences" if counts.sentences > counts.documents else ""
    progress.say(f"text: {counts.documents:,} documents{sentences}")
    if counts.lines_left_out:
        file, line = counts.undecodable[0]
        progress.warn(f"{counts.lines_left_out:,} lines are not UTF-8 and are left out, the first in {file}, line {line}")
    if dev_files:
        dev, _ = tokenise_files(recipe, dev_files, tokenizer)
        return PreparedText(
            tokenizer,
            train,
            np.arange(len(train)),
            dev,
            np.arange(len(dev)),
            shorten_file_list(files),
            shorten_file_list(dev_files),
        )
    with named_in_errors(shorten_file_list(files)):
        held_out = hold_out(train, config.held_out)
    names = shorten_file_list(files), f"{shorten_file_list(files)}: the documents held out to be scored (name others in data.dev)"
    text = PreparedText(tokenizer, train, np.delete(np.arange(len(train)), held_out), train, held_out, *names)
    document = train.document
    if np.isin(document[text.held_out], document[text.chosen]).any():
        many = int(train.first.sum())
        reason = "has no blank lines between documents" if many == 1 else f"has only {many:,} documents, most of them long"
        progress.warn(
            f"the text {reason}: parts of documents are held out whose other parts are trained on, and scores are too good; "
            "for fair scores give data.dev"
        )
    return text


def tokenise_files(
    recipe: PretrainingRecipe[Any, Any], files: list[WholeFile], tokenizer: Tokenizer, work: Work | None = None
) -> tuple[Documents, DocumentCounts]:
    """Tokenise documents as the objective reads them: as running text, or in sentences with word boundaries."""
    return tokenise_documents(files, tokenizer, work or Work(), units=recipe.data.units, whole=recipe.objective.whole_documents)


@contextlib.contextmanager
def named_in_errors(name: str) -> Iterator[None]:
    """Begin the message of a DataError raised inside with the name of the text."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def cached_tokenizer(recipe: PretrainingRecipe[Any, Any], files: list[WholeFile], progress: Progress) -> Tokenizer:
    """Return the tokenizer of a recipe; one that is trained comes from the cache if it is there."""
    if recipe.start is not None or recipe.tokenizer is None or recipe.tokenizer.file is not None:
        return _make_tokenizer(recipe, files, progress)
    content = [
        recipe.tokenizer.model_dump(mode="json"),
        cached_digests(files),
        recipe.objective.whole_documents,
    ]

    def make() -> Tokenizers:
        made = _make_tokenizer(recipe, files, progress)
        return Tokenizers(made, made)

    return check_tokenizer(recipe, cached_pair(content, make).source, None)


def _make_tokenizer(recipe: PretrainingRecipe[Any, Any], files: list[WholeFile], progress: Progress) -> Tokenizer:
    """Take the tokenizer of the run to start from, or train or load that of the recipe."""
    if recipe.start is not None:
        return check_tokenizer(recipe, read_run(Path(recipe.start))[1].source, recipe.start)
    assert recipe.tokenizer is not None  # the recipe has checked this

    def sentences() -> Iterator[str]:
        for document in islice(
            read_documents(files, DocumentCounts(), whole=recipe.objective.whole_documents), TOKENIZER_DOCUMENTS
        ):
            yield from document.sentences

    if recipe.tokenizer.file is None:
        progress.say(
            f"training the tokenizer on {shorten_file_list(files)} (on {TOKENIZER_DOCUMENTS:,} documents, if there are more)"
        )
    made = check_tokenizer(recipe, train_tokenizer(recipe.tokenizer, sentences()), recipe.tokenizer.file)
    progress.say(f"tokenizer: {recipe.tokenizer.file or recipe.tokenizer.kind}, {len(made):,} pieces")
    return made


def check_tokenizer(recipe: PretrainingRecipe[Any, Any], tokenizer: Tokenizer, where: str | None) -> Tokenizer:
    """Return the tokenizer; raise ConfigError if it lacks tokens that the objective needs."""
    if recipe.model.reads_characters:
        check_whole_words(tokenizer)
    if recipe.objective.needs_mask and not tokenizer.has_mask:
        raise ConfigError(f"{where}: this tokenizer has no {MASK}, which masking needs; train one that has it")
    if recipe.objective.needs_sentinels and not tokenizer.sentinels:
        raise ConfigError(
            f"{where}: this tokenizer has no sentinel ({SENTINEL.format(0)}), which span corruption needs; "
            "train one with tokenizer.sentinels=100"
        )
    return tokenizer


# Scores


class PretrainingValidator(Validator):
    """Scores the model on held-out text: the objective's loss and its tally, with the same random draws every time."""

    def __init__(self, recipe: PretrainingRecipe[Any, Any], text: PreparedText, model: nn.Module, progress: Progress):
        super().__init__(recipe, model, OBJECTIVES[recipe.objective.kind].build(recipe.objective, text.tokenizer), progress)
        self.recipe = recipe
        with named_in_errors(text.dev_name):
            self.batches = self.objective.batches(text.dev, text.held_out, batch_settings(recipe, text.tokenizer, self.device))

    def __call__(self, step: int) -> Validation:
        """Score the model at a step of training, and show the figures."""
        scores = self.score()
        if FAMILIES[self.recipe.model.kind].pretrains_translator:
            scores |= self.source_gain(self.batches.pairs_in_order(), self.batches.pack_in_order)
        self.progress.say(f"step {step:,}: " + "  ".join(f"{name} {value:.3f}" for name, value in scores.items()))
        return Validation(scores, -scores["dev_loss"])

    def score(self) -> dict[str, float]:
        """Return the loss and the other figures over all held-out text."""
        loss = self.mean_loss(self.batches.in_order())
        return {"dev_loss": loss, **{f"dev_{name}": value for name, value in self.objective.tally.read().items()}}


def finish(
    run: Path, recipe: PretrainingRecipe[Any, Any], trainer: Trainer, validator: PretrainingValidator, text: PreparedText
) -> None:
    """Keep the last weights, score them on the held-out text, write the report."""
    which = last_weights(run, trainer, validator)
    scores = validator.score()
    write_result(
        run, recipe, trainer, validator.progress, weights=which, scores=scores, name="held-out text", scored_on="held-out text",
        data=text.counts(),
    )  # fmt: skip

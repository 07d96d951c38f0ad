"""Pretraining on raw text: documents, model, validation, report."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from qkv.base.errors import ConfigError, DataError
from qkv.base.hardware import choose_device
from qkv.data.cache import cached_digest
from qkv.data.corpora import Tokenizers
from qkv.data.documents import Documents, tokenise_documents
from qkv.data.held_out import hold_out
from qkv.folder.run import check_texts, check_tokenizers, load_tokenizers, read_run, save_config, save_tokenizers
from qkv.folder.start import load_start, start_translator, trained_length
from qkv.inference.spelling import with_spellings
from qkv.jobs.final_weights import last_weights
from qkv.jobs.initial_embeddings import initialise_token_embeddings
from qkv.jobs.job import Job
from qkv.jobs.run_report import write_result
from qkv.jobs.validation import Validator
from qkv.models import FAMILIES, seeded_initialisation
from qkv.objectives import OBJECTIVES
from qkv.objectives.objective import BatchSettings
from qkv.recipes import PretrainingRecipe
from qkv.text.documents import DocumentCounts, find_document_files, read_documents, shorten_file_list
from qkv.text.open_vocabulary import check_whole_words
from qkv.text.special_tokens import SENTINEL
from qkv.text.tokenizer import MASK, Tokenizer, train_tokenizer
from qkv.text.word_boundaries import load_segmenter
from qkv.training.loop import Trainer, Validation
from qkv.training.progress import Progress

FOR_TOKENIZER = 200_000  # documents that a tokenizer is trained on


@dataclass(frozen=True)
class Text:
    """Everything a run of pretraining reads."""

    tokenizer: Tokenizer
    train: Documents
    chosen: np.ndarray  # numbers of what is trained on: documents, of long ones their parts
    dev: Documents
    held_out: np.ndarray  # numbers of those that are scored
    train_name: str  # what mistakes in them are told with
    dev_name: str

    @property
    def size(self) -> str:
        """How much there is to train on, and how much is held out of it."""
        document = self.train.document
        many = len(np.unique(document[self.chosen]))
        tokens = self.train.tokens.lengths(self.chosen).sum()
        held_out = len(np.unique(document)) - many
        left = f", {held_out:,} held out" if held_out else ", parts held out" if len(self.chosen) < len(self.train) else ""
        return f"{tokens:,} tokens to train on, in {many:,} document{'s' * (many > 1)}{left}"


def pretraining(recipe: PretrainingRecipe[Any, Any], run: Path, progress: Progress, accept_changes: bool) -> Job:
    """Prepare pretraining on raw text: its documents, its model, its objective, its validation."""
    _check_schedule(recipe)
    text = prepare(recipe, run, progress, accept_changes)
    objective = OBJECTIVES[recipe.objective.kind].build(recipe.objective, text.tokenizer)
    model = initial_model(recipe, text.tokenizer, progress).to(choose_device(recipe.training.device))
    if recipe.embeddings is not None:
        initialise_token_embeddings(model, text.tokenizer, recipe.embeddings, progress)
    with named_in_errors(text.train_name):
        batches = objective.batches(text.train, text.chosen, batch_settings(recipe, text.tokenizer))
    validator = PretrainingValidator(recipe, text, model, progress)
    return Job(
        model=model,
        objective=objective,
        batches=batches,
        training=recipe.training,
        validator=validator,
        size=f"{text.size}; {batches.tokens_per_batch}",
        finish=lambda trainer: finish(run, recipe, trainer, validator),
    )


def initial_model(recipe: PretrainingRecipe[Any, Any], tokenizer: Tokenizer, progress: Progress) -> Any:
    """Build the model with initial weights, or with those of the run that the recipe starts from, heads where they fit."""
    family = FAMILIES[recipe.model.kind]

    def new_model(vocabulary: int) -> Any:
        with seeded_initialisation(recipe.seed):
            return family.build_pretraining(recipe.model, vocabulary, recipe.objective)

    if recipe.start is None:
        return with_spellings(new_model(len(tokenizer)), tokenizer)
    if family.pretrains_translator:
        return start_translator(recipe, lambda: new_model(len(tokenizer)), progress)
    started = load_start(recipe.start, progress)
    model = new_model(started.network.vocab_size)  # an imported one's may exceed its tokenizer's
    # Weights by the name of the network that they are for; the model itself where there is one network only.
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


def batch_settings(recipe: PretrainingRecipe[Any, Any], tokenizer: Tokenizer) -> BatchSettings:
    """Return what the batches of a recipe depend on, the text aside."""
    return BatchSettings(
        seed=recipe.seed,
        tokens=recipe.training.batch_tokens,
        length=recipe.data.length,
        bos=tokenizer.bos,
        eos=tokenizer.eos,
        pad=tokenizer.pad,
        one_text_per_row=recipe.model.one_text_per_row,
        fixed_shape=choose_device(recipe.training.device).type == "cuda",
    )


def _check_schedule(recipe: PretrainingRecipe[Any, Any]) -> None:
    """Refuse tasks that would never begin; here, so that finished runs of such a recipe can still be used."""
    for task, (_, first_batch) in recipe.objective.passage_tasks().items():
        if recipe.training.steps is not None and first_batch >= recipe.training.steps:
            raise ConfigError(
                f"objective.tasks: {task} would begin with update {first_batch:,}, but training.steps is "
                f"{recipe.training.steps:,}; lower its first_batch, or leave it out"
            )


# The text


def prepare(recipe: PretrainingRecipe[Any, Any], run: Path, progress: Progress, accept_changes: bool) -> Text:
    """Tokenise the documents, and train the tokenizer if the run has none yet; fast the second time."""
    config = recipe.data
    files, dev_files = find_document_files(config.text), find_document_files(config.dev)
    load_segmenter(config.units)  # a package that is missing shows before the work
    texts = [cached_digest(file) for file in files]
    check_texts(run, texts, accept_changes)
    known = load_tokenizers(run)
    tokenizer = known.source if known else _make_tokenizer(recipe, files, progress)
    tokenizers = Tokenizers(tokenizer, tokenizer)
    if known is None:
        save_tokenizers(run, tokenizers)
    check_tokenizers(run, tokenizers)
    save_config(run, recipe, tokenizers, texts, trained_length=trained_length(recipe.start, config.length))
    train, counts = tokenised(recipe, files, tokenizer, quiet=not progress.live)
    _report(counts, progress)
    if dev_files:
        dev, _ = tokenised(recipe, dev_files, tokenizer)
        return Text(
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
    text = Text(tokenizer, train, np.setdiff1d(np.arange(len(train)), held_out), train, held_out, *names)
    _warn_of_parts(text, progress)
    return text


def tokenised(
    recipe: PretrainingRecipe[Any, Any], files: list[Path], tokenizer: Tokenizer, quiet: bool = True
) -> tuple[Documents, DocumentCounts]:
    """Documents as the objective reads them: in sentences, whose words may be hidden, or as they stand."""
    return tokenise_documents(files, tokenizer, quiet, units=recipe.data.units, whole=recipe.objective.whole_documents)


@contextlib.contextmanager
def named_in_errors(name: str) -> Iterator[None]:
    """Inside, the message of a DataError begins with the name of the text."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def _warn_of_parts(text: Text, progress: Progress) -> None:
    """Say so where a document is both trained on and scored, which makes scores too good."""
    document = text.train.document
    if np.isin(document[text.held_out], document[text.chosen]).any():
        many = len(np.unique(document))
        what = "has no blank lines between documents" if many == 1 else f"has only {many:,} documents, most of them long"
        progress.warn(f"the text {what}: parts are held out whose neighbours are trained on; for fair scores give data.dev")


def _make_tokenizer(recipe: PretrainingRecipe[Any, Any], files: list[Path], progress: Progress) -> Tokenizer:
    """That of the run that this one starts from; else trained on the text itself, or the one that the recipe names."""
    if recipe.start is not None:
        return _suited(recipe, read_run(Path(recipe.start))[1].source, recipe.start)
    assert recipe.tokenizer is not None  # the recipe has seen to it

    def sentences() -> Iterator[str]:
        for document in islice(read_documents(files, DocumentCounts(), whole=recipe.objective.whole_documents), FOR_TOKENIZER):
            yield from document.sentences

    if recipe.tokenizer.file is None:
        progress.say(f"training the tokenizer on {shorten_file_list(files)} (on {FOR_TOKENIZER:,} documents, if there are more)")
    made = _suited(recipe, train_tokenizer(recipe.tokenizer, sentences()), recipe.tokenizer.file)
    progress.say(f"tokenizer: {recipe.tokenizer.file or recipe.tokenizer.kind}, {len(made):,} pieces")
    return made


def _suited(recipe: PretrainingRecipe[Any, Any], tokenizer: Tokenizer, where: str | None) -> Tokenizer:
    """The tokenizer, unless the objective needs what it has not."""
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


def _report(counts: DocumentCounts, progress: Progress) -> None:
    sentences = f", {counts.sentences:,} sentences" if counts.sentences > counts.documents else ""
    progress.say(f"text: {counts.documents:,} documents{sentences}")
    if counts.lines_left_out:
        file, line = counts.undecodable[0]
        progress.warn(f"{counts.lines_left_out:,} lines are not UTF-8 and are left out, the first in {file}, line {line}")


# Scores


class PretrainingValidator(Validator):
    """Scores the model on held-out passages: the objective's loss and what else it counts, with the same masks every time."""

    def __init__(self, recipe: PretrainingRecipe[Any, Any], text: Text, model: nn.Module, progress: Progress):
        super().__init__(recipe, model, OBJECTIVES[recipe.objective.kind].build(recipe.objective, text.tokenizer), progress)
        self.recipe = recipe
        with named_in_errors(text.dev_name):
            self.batches = self.objective.batches(text.dev, text.held_out, batch_settings(recipe, text.tokenizer))

    def __call__(self, step: int) -> Validation:
        """The figures at a step of training, told to the user."""
        scores = self.score()
        self.progress.say(f"step {step:,}: " + "  ".join(f"{name} {value:.3f}" for name, value in scores.items()))
        return Validation(scores, -scores["dev_loss"])

    def score(self) -> dict[str, float]:
        """The loss and the other figures over all held-out passages."""
        loss = self.mean_loss(self.batches.in_order())
        return {"dev_loss": loss, **{f"dev_{name}": value for name, value in self.objective.tally.read().items()}}


def finish(run: Path, recipe: PretrainingRecipe[Any, Any], trainer: Trainer, validator: PretrainingValidator) -> None:
    """Keep the last weights, score them on the held-out text, write the report."""
    which = last_weights(run, trainer, validator)
    scores = validator.score()
    write_result(
        run, recipe, trainer, validator.progress, weights=which, scores=scores, name="held-out text", scored_on="held-out text"
    )

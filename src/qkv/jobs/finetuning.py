"""Fine-tuning on labelled examples: examples, model, validation, report."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qkv.base.hardware import choose_device
from qkv.data.cache import cached_digests
from qkv.data.corpora import Tokenizers
from qkv.data.encoded import EncodedExamples
from qkv.data.labelled import BatchShape, LabelledBatches, in_order
from qkv.folder.networks import trained_length_of
from qkv.folder.run import check_texts, check_tokenizers, load_tokenizers, save_config, save_tokenizers
from qkv.folder.start import load_start, read_start, trained_length
from qkv.folder.summary import choose_examples
from qkv.inference.prediction import compute_outputs
from qkv.inference.spelling import add_unseen_words, tokenizer_for, with_spellings
from qkv.jobs.final_weights import choose_weights
from qkv.jobs.initial_embeddings import initialise_token_embeddings
from qkv.jobs.job import Job
from qkv.jobs.run_report import write_result
from qkv.jobs.validation import Validator
from qkv.models import FAMILIES, seeded_initialisation
from qkv.objectives.finetuning import FinetuningObjective
from qkv.parts.heads import ENCODER, ModelWithHeads
from qkv.recipes import FinetuningRecipe
from qkv.recipes.finetuning import FinetuningTraining
from qkv.text.examples import TextExample, check_labels, count_labels, read_examples
from qkv.text.files import find_input_files
from qkv.text.tokenizer import Tokenizer, train_tokenizer
from qkv.training.config import TrainingConfig
from qkv.training.loop import Trainer, Validation
from qkv.training.progress import Progress

LABELS_SHOWN = 20  # at the beginning
# Where training.batch_tokens and training.epochs are `auto`:
UPDATES_IN_EPOCH = 100  # wanted; batches of the fewest tokens may make fewer, those of the most tokens more
FEWEST_UPDATES = 300  # in all, unless that takes more epochs than allowed
FEWEST_LABELS = 8  # in an update, about
BATCH_TOKENS, EPOCHS = (256, 2048), (3, 10)  # fewest and most
STARTED_PARTS = (ENCODER, "pooler")  # taken from `start`; its other heads were trained for other tasks


@dataclass(frozen=True)
class ExampleSplit:
    """The examples of train, dev or test, as read and as token ids."""

    examples: list[Any]
    encoded: EncodedExamples


@dataclass(frozen=True)
class PreparedExamples:
    """The checked and tokenised examples of a run, and their task."""

    task: FinetuningObjective
    tokenizer: Tokenizer
    labels: tuple[str, ...]
    train: ExampleSplit
    dev: ExampleSplit
    test: ExampleSplit | None
    shape: BatchShape  # of batches in training
    scoring_shape: BatchShape  # of batches in validation and in the final scores


def finetuning(recipe: FinetuningRecipe[Any, Any], run: Path, progress: Progress, accept_changes: bool) -> Job:
    """Prepare fine-tuning on labelled examples: examples, model, batches, validation."""
    examples = prepare(recipe, run, progress, accept_changes)
    model = initial_model(recipe, examples, progress).to(choose_device(recipe.training.device))
    shape, batches = examples.shape, LabelledBatches(examples.train.encoded, recipe.seed, examples.shape)
    validator = FinetuningValidator(recipe, examples, model, progress)
    training = with_length(recipe.training, shape.rows * shape.width, batches.batches_in_epoch)
    if "auto" in (recipe.training.batch_tokens, recipe.training.epochs):
        progress.say(
            f"training.batch_tokens={training.batch_tokens}"
            + (f", training.epochs={training.epochs}" if training.epochs else "")
            + f": {batches.batches_in_epoch:,} updates an epoch"
        )
    return Job(
        model=model,
        objective=validator.objective,
        batches=batches,
        training=training,
        validator=validator,
        size=f"{len(examples.train.examples):,} examples; {shape.rows * shape.width:,} tokens a step, "
        + (f"in rows of {shape.width}" if shape.texts > 1 else "a text a row"),
        finish=lambda trainer: finish(run, recipe, trainer, validator),
    )


def auto_batch_tokens(examples: EncodedExamples) -> int:
    """Return the tokens of an update for which an epoch has about 100 updates or more, within limits.

    An update has some labels at least: a gradient from one or two of them is mostly noise.
    """
    tokens, labels = len(examples.ids), int(examples.label_counts.sum())
    fewest, most = BATCH_TOKENS
    fewest = max(fewest, FEWEST_LABELS * tokens // max(1, labels))
    return min(max(tokens // UPDATES_IN_EPOCH, fewest), most)


def with_length(config: FinetuningTraining, batch_tokens: int, batches: int) -> TrainingConfig:
    """Turn epochs into steps, with a validation and a checkpoint at the end of each epoch; an epoch has `batches` updates.

    `batch_tokens` replaces `auto`. Where steps are given, epochs that are `auto` are ignored.
    """
    epochs = config.epochs
    if epochs == "auto":
        fewest, most = EPOCHS
        epochs = None if config.steps else min(max(fewest, -(-FEWEST_UPDATES // batches)), most)
    chosen = {"batch_tokens": batch_tokens if config.batch_tokens == "auto" else config.batch_tokens, "epochs": epochs}
    if epochs is not None:
        chosen |= {"steps": epochs * batches, "validate_every": batches, "save_every": batches}
    return config.model_copy(update=chosen)


def initial_model(recipe: FinetuningRecipe[Any, Any], examples: PreparedExamples, progress: Progress) -> ModelWithHeads:
    """Build the model with the network of the run to start from, or a new one, and new heads."""
    labels = len(examples.labels) or 1
    started = None if recipe.start is None else load_start(recipe.start, progress).network
    # The vocabulary of an imported model may be larger than its tokenizer's.
    vocabulary = len(examples.tokenizer) if started is None else started.vocab_size
    with seeded_initialisation(recipe.seed):
        model = FAMILIES[recipe.model.kind].build_network(recipe.model, vocabulary, recipe.objective.heads, labels)
    if started is None:
        with_spellings(model, examples.tokenizer)
        if recipe.embeddings is not None:
            initialise_token_embeddings(model, examples.tokenizer, recipe.embeddings, progress)
    else:
        model.load({part: weights for part, weights in started.weights.items() if part in STARTED_PARTS})
        add_unseen_words(model, examples.tokenizer)
    examples.task.initialise(model, examples.train.encoded)
    return model


# The examples


def prepare(recipe: FinetuningRecipe[Any, Any], run: Path, progress: Progress, accept_changes: bool) -> PreparedExamples:
    """Read and tokenise the examples; a mistake in them is an error that names its line."""
    data, trees = recipe.data, recipe.model.reads_trees
    task: FinetuningObjective = recipe.task.build(recipe.objective, None)  # it needs no tokenizer
    train, dev = (read_examples(task.readers, data.examples(files, trees)) for files in (data.train, data.dev))
    test = read_examples(task.readers, data.examples(data.test, trees)) if data.test else []
    task.check_examples([*train, *dev, *test])
    labels = task.label_names(train)
    if labels:
        check_labels([*dev, *test], labels)
        _show_labels(labels, train, task.suspected_headers(train), progress)
    texts = cached_digests([path for pattern in data.train for path in find_input_files(pattern)])
    check_texts(run, texts, accept_changes)
    tokenizer = tokenizer_for(recipe.model, _tokenizer(recipe, run, train, progress))
    parts = [ExampleSplit(part, task.encode(part, tokenizer, data, labels)) for part in (train, dev, test) if part]
    trained = trained_length(recipe.start, int(parts[0].encoded.lengths.max()))
    save_config(run, recipe, Tokenizers(tokenizer, tokenizer), texts, labels=labels, trained_length=trained)
    if recipe.model.longest is not None:
        _warn_of_long_texts(recipe.start, [part.encoded for part in parts], progress)
    longest = max(int(part.encoded.lengths.max()) for part in parts)
    given = recipe.training.batch_tokens
    # Scores do not depend on the batches: they take the largest that training may have, which is the fastest.
    batch_tokens = (auto_batch_tokens(parts[0].encoded), BATCH_TOKENS[1]) if given == "auto" else (given, given)
    shape, scoring_shape = (
        BatchShape.holding(longest, tokens, recipe.model.one_text_per_row, tokenizer.pad) for tokens in batch_tokens
    )
    return PreparedExamples(task, tokenizer, labels, parts[0], parts[1], parts[2] if test else None, shape, scoring_shape)


def _tokenizer(recipe: FinetuningRecipe[Any, Any], run: Path, train: list[Any], progress: Progress) -> Tokenizer:
    """Return the run's tokenizer; make it first, if there is none, or take that of the run to start from."""
    saved = load_tokenizers(run)
    if saved is not None:
        check_tokenizers(run, saved)
        return saved.source
    if recipe.start is not None:
        made = read_start(Path(recipe.start)).tokenizer
    else:
        assert recipe.tokenizer is not None  # the recipe has checked this
        made = train_tokenizer(recipe.tokenizer, (text for example in train for text in example.texts))
        progress.say(f"tokenizer: {recipe.tokenizer.file or recipe.tokenizer.kind}, {len(made):,} pieces")
    save_tokenizers(run, Tokenizers(made, made))
    return made


def _show_labels(labels: tuple[str, ...], train: list[Any], headers: list[TextExample], progress: Progress) -> None:
    """Show the labels and their counts, where a wrong column shows first; warn of a header read as an example."""
    counts = count_labels(train)
    shown = ", ".join(f"{label} ({counts[label]:,})" for label in labels[:LABELS_SHOWN])
    progress.say(f"labels: {shown}" + (f" and {len(labels) - LABELS_SHOWN:,} more" if len(labels) > LABELS_SHOWN else ""))
    for example in headers:
        progress.warn(
            f"{example.where}: the label {example.label!r} is on no other line; if this is a header, name the columns: "
            "--set data.text=... --set data.label=..."
        )


def _warn_of_long_texts(start: str | None, parts: list[EncodedExamples], progress: Progress) -> None:
    """Warn of texts that are longer than any in pretraining: position embeddings beyond are untrained."""
    most = trained_length_of(Path(start)) if start is not None else None
    lengths = np.concatenate([part.lengths for part in parts])
    if most is not None and lengths.max() > most:
        progress.warn(
            f"{(lengths > most).sum():,} of {len(lengths):,} texts have more than {most:,} tokens, the most that {start} was "
            "trained on: its position embeddings beyond are untrained; lower data.length, or pretrain "
            "it further with a larger one"
        )


# Scores


class FinetuningValidator(Validator):
    """Scores the model on dev: its loss, and the metrics of what it predicts."""

    def __init__(self, recipe: FinetuningRecipe[Any, Any], examples: PreparedExamples, model: ModelWithHeads, progress: Progress):
        super().__init__(recipe, model, examples.task, progress)
        self.recipe, self.examples = recipe, examples

    def __call__(self, step: int) -> Validation:
        """Score the model at a step of training, and show the figures."""
        scores = {"dev_loss": self.loss()} | {f"dev_{name}": value for name, value in self.score(self.examples.dev).items()}
        self.progress.say(f"step {step:,}: " + "  ".join(f"{name} {value:.4f}" for name, value in scores.items()))
        return Validation(scores, scores[f"dev_{self.recipe.judged_by[0]}"])

    def final(self) -> float:
        """Return the first metric on dev."""
        return self.score(self.examples.dev)[self.recipe.judged_by[0]]

    def score(self, split: ExampleSplit) -> dict[str, float]:
        """Return every metric over a split."""
        task, labels = self.examples.task, self.examples.labels
        with self.in_precision():
            outputs = compute_outputs(self.model, task, split.encoded, split.examples, self.examples.scoring_shape)
        return {name: task.score(task.metrics[name], outputs, split.examples, labels) for name in self.recipe.judged_by}

    def loss(self) -> float:
        """Return the mean loss of a label, over all of dev."""
        return self.mean_loss(batch for batch, _ in in_order(self.examples.dev.encoded, self.examples.scoring_shape))


def finish(run: Path, recipe: FinetuningRecipe[Any, Any], trainer: Trainer, validator: FinetuningValidator) -> None:
    """Choose the weights, score them on the test set (or dev, where there is none), write the report."""
    which = choose_weights(run, trainer, validator)
    examples = validator.examples
    held_out, name = (examples.test, "test") if examples.test else (examples.dev, "dev")
    scores = validator.score(held_out)
    scored_on = f"{name}, {len(held_out.examples):,} examples"
    texts = [one.texts[0] if len(one.texts) == 1 else [*one.texts] for one in held_out.examples]
    splits = {"train": examples.train, "dev": examples.dev, "test": examples.test}
    write_result(
        run, recipe, trainer, validator.progress, weights=which, scores=scores, name=name, scored_on=scored_on,
        trained_on=f"{len(examples.train.examples):,} examples", examples=choose_examples(texts),
        data={split: {"examples": len(found.examples)} for split, found in splits.items() if found},
    )  # fmt: skip

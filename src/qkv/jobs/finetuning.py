"""Fine-tuning on labelled examples: examples, model, validation, report."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from qkv.base.errors import DataError
from qkv.base.hardware import choose_device
from qkv.data.cache import cached_digest
from qkv.data.corpora import Tokenizers
from qkv.data.encoding import EncodedExamples, encode
from qkv.data.labelled import LabelledBatches, in_order
from qkv.folder.networks import trained_length_of
from qkv.folder.run import check_texts, check_tokenizers, load_tokenizers, save_config, save_tokenizers
from qkv.folder.start import load_start, read_network, trained_length
from qkv.inference.prediction import Shape, judged, predict
from qkv.inference.spelling import add_unseen_words, tokenizer_for, with_spellings
from qkv.jobs.final_weights import choose_weights
from qkv.jobs.initial_embeddings import initialise_token_embeddings
from qkv.jobs.job import Job
from qkv.jobs.run_report import write_result
from qkv.jobs.validation import Validator
from qkv.models import FAMILIES, seeded_initialisation
from qkv.objectives import OBJECTIVES
from qkv.parts.heads import ENCODER, ModelWithHeads
from qkv.recipes import FinetuningRecipe
from qkv.text.examples import (
    TaggedExample,
    TextExample,
    check_labels,
    count_labels,
    find_headers,
    find_labels,
    read_examples,
)
from qkv.text.files import find_files
from qkv.text.metrics import METRICS
from qkv.text.squad import Question
from qkv.text.tokenizer import Tokenizer, train_tokenizer
from qkv.training.config import TrainingConfig
from qkv.training.loop import Trainer, Validation
from qkv.training.progress import Progress

LABELS_TOLD = 20  # at the beginning
TAKEN = (ENCODER, "pooler")  # of what `start` has; its other heads said other things


@dataclass(frozen=True)
class Part:
    """Some of the examples, as they are and as token ids."""

    examples: list[Any]
    encoded: EncodedExamples


@dataclass(frozen=True)
class Examples:
    """Everything a run of fine-tuning reads."""

    tokenizer: Tokenizer
    labels: tuple[str, ...]
    train: Part
    dev: Part
    test: Part | None
    shape: Shape


def finetuning(recipe: FinetuningRecipe[Any, Any], run: Path, progress: Progress, accept_changes: bool) -> Job:
    """Prepare fine-tuning on labelled examples: examples, model, objective, validation."""
    examples = prepare(recipe, run, progress, accept_changes)
    model = initial_model(recipe, examples, progress).to(choose_device(recipe.training.device))
    shape, pad = examples.shape, examples.tokenizer.pad
    batches = LabelledBatches(
        examples=examples.train.encoded, seed=recipe.seed, rows=shape.rows, length=shape.length, texts=shape.texts, pad=pad
    )
    validator = FinetuningValidator(recipe, examples, model, progress)
    return Job(
        model=model,
        objective=OBJECTIVES[recipe.objective.kind].build(recipe.objective, examples.tokenizer),
        batches=batches,
        training=by_epochs(recipe.training, batches.batches_in_epoch),
        validator=validator,
        size=f"{len(examples.train.examples):,} examples; {shape.rows * shape.length:,} tokens a step, "
        + (f"in rows of {shape.length}" if shape.texts > 1 else "a text a row"),
        finish=lambda trainer: finish(run, recipe, trainer, validator),
    )


def by_epochs(config: TrainingConfig, batches: int) -> TrainingConfig:
    """The same in steps, with a validation and a checkpoint at the end of each epoch; both are free where steps are given."""
    if config.epochs is None:
        return config
    return config.model_copy(update={"steps": config.epochs * batches, "validate_every": batches, "save_every": batches})


def initial_model(recipe: FinetuningRecipe[Any, Any], examples: Examples, progress: Progress) -> ModelWithHeads:
    """The encoder of the run that this one starts from, with new heads, of which one for numbers begins with their mean."""
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
        model.load({part: weights for part, weights in started.weights.items() if part in TAKEN})
        add_unseen_words(model, examples.tokenizer)
    if recipe.objective.kind == "regression":
        head: Any = model.heads["classes"]
        # At the learning rates of fine-tuning a bias moves by a hundredth or so: it would never get there.
        nn.init.constant_(head.output.bias, float(examples.train.encoded.labels.mean()))
    return model


# The examples


def prepare(recipe: FinetuningRecipe[Any, Any], run: Path, progress: Progress, accept_changes: bool) -> Examples:
    """Read and tokenise the examples; every mistake in them is refused with its line."""
    data, kind = recipe.data, recipe.objective.kind
    trees = recipe.model.reads_trees
    train, dev = (read_examples(kind, data.examples(files, trees)) for files in (data.train, data.dev))
    test = read_examples(kind, data.examples(data.test, trees)) if data.test else []
    labels = find_labels(kind, train) if kind in ("classification", "tagging") else ()
    if labels:
        check_labels([*dev, *test], labels)
        _tell_labels(labels, train, progress)
    if kind == "answering" and recipe.objective.all_answerable:
        _refuse_unanswered([*train, *dev, *test])
    texts = [cached_digest(path) for pattern in data.train for path in find_files(pattern)]
    check_texts(run, texts, accept_changes)
    tokenizer = tokenizer_for(recipe.model, _tokenizer(recipe, run, train, progress))
    parts = [Part(part, encode(part, tokenizer, data.length, kind, labels, data.stride)) for part in (train, dev, test) if part]
    trained = trained_length(recipe.start, int(parts[0].encoded.lengths.max()))
    save_config(run, recipe, Tokenizers(tokenizer, tokenizer), texts, labels=labels, trained_length=trained)
    if recipe.model.longest is not None:
        _tell_places(recipe.start, [part.encoded for part in parts], progress)
    longest = max(int(part.encoded.lengths.max()) for part in parts)
    shape = Shape.of(longest, recipe.training.batch_tokens, recipe.model.one_text_per_row)
    return Examples(tokenizer, labels, parts[0], parts[1], parts[2] if test else None, shape)


def _tokenizer(recipe: FinetuningRecipe[Any, Any], run: Path, train: list[Any], progress: Progress) -> Tokenizer:
    """The run's own, the one of the run that it starts from, or a new one."""
    known = load_tokenizers(run)
    if known is not None:
        check_tokenizers(run, known)
        return known.source
    if recipe.start is not None:
        made = read_network(Path(recipe.start)).tokenizer
    else:
        assert recipe.tokenizer is not None  # the recipe has seen to it
        made = train_tokenizer(recipe.tokenizer, (text for example in train for text in texts_in(example)))
        progress.say(f"tokenizer: {recipe.tokenizer.file or recipe.tokenizer.kind}, {len(made):,} pieces")
    save_tokenizers(run, Tokenizers(made, made))
    return made


def _tell_labels(labels: tuple[str, ...], train: list[Any], progress: Progress) -> None:
    """Which there are and how often: what was read wrong shows here first."""
    counts = count_labels(train)
    told = ", ".join(f"{label} ({counts[label]:,})" for label in labels[:LABELS_TOLD])
    progress.say(f"labels: {told}" + (f" and {len(labels) - LABELS_TOLD:,} more" if len(labels) > LABELS_TOLD else ""))
    for example in find_headers(train) if isinstance(train[0], TextExample) else []:
        progress.warn(
            f"{example.where}: the label {example.label!r} is on no other line; if this is a header, name the columns: "
            "--set data.text=... --set data.label=..."
        )


def _tell_places(start: str | None, parts: list[EncodedExamples], progress: Progress) -> None:
    """Say that texts have more tokens than any had in pretraining, whose weights know nothing of such places."""
    most = trained_length_of(Path(start)) if start is not None else None
    lengths = np.concatenate([part.lengths for part in parts])
    if most is not None and lengths.max() > most:
        progress.warn(
            f"{(lengths > most).sum():,} of {len(lengths):,} texts have more than {most:,} tokens, the most that {start} was "
            f"trained on: it knows nothing of places beyond; lower data.length, or pretrain it further with a larger one"
        )


def _refuse_unanswered(questions: list[Question]) -> None:
    for question in questions:
        if not question.answers:
            raise DataError(f"{question.where}: it has no answer; say --set objective.all_answerable=false if that may be")


def texts_in(example: TextExample | TaggedExample | Question) -> list[str]:
    """All text that an example holds."""
    if isinstance(example, TaggedExample):
        return [" ".join(example.words)]
    if isinstance(example, Question):
        return [example.question, example.context]
    return [example.text] if example.pair is None else [example.text, example.pair]


# Scores


class FinetuningValidator(Validator):
    """Scores the model on dev: its loss, and the metrics of what it predicts."""

    def __init__(self, recipe: FinetuningRecipe[Any, Any], examples: Examples, model: ModelWithHeads, progress: Progress):
        super().__init__(recipe, model, OBJECTIVES[recipe.objective.kind].build(recipe.objective, examples.tokenizer), progress)
        self.recipe, self.examples = recipe, examples

    def __call__(self, step: int) -> Validation:
        """The figures at a step of training, told to the user."""
        scores = {"dev_loss": self.loss()} | {f"dev_{name}": value for name, value in self.score(self.examples.dev).items()}
        self.progress.say(f"step {step:,}: " + "  ".join(f"{name} {value:.4f}" for name, value in scores.items()))
        return Validation(scores, self._better(scores[f"dev_{self.recipe.judged_by[0]}"]))

    def final(self) -> float:
        """The first metric on dev, by which finished weights are compared."""
        first = self.recipe.judged_by[0]
        return self._better(self.score(self.examples.dev)[first])

    def _better(self, value: float) -> float:
        return value if METRICS[self.recipe.judged_by[0]].higher_is_better else -value

    def score(self, part: Part) -> dict[str, float]:
        """Every metric over some examples."""
        kind, labels, pad = self.recipe.objective.kind, self.examples.labels, self.examples.tokenizer.pad
        with self.in_precision():
            said = predict(self.model, self.objective, part.encoded, part.examples, labels, self.examples.shape, pad)
        return {name: judged(kind, name, said, part.examples, labels) for name in self.recipe.judged_by}

    def loss(self) -> float:
        """Of an answer, over all of dev."""
        shape, dev, pad = self.examples.shape, self.examples.dev.encoded, self.examples.tokenizer.pad
        return self.mean_loss(
            batch for batch, _ in in_order(dev, rows=shape.rows, length=shape.length, texts=shape.texts, pad=pad)
        )


def finish(run: Path, recipe: FinetuningRecipe[Any, Any], trainer: Trainer, validator: FinetuningValidator) -> None:
    """Choose the weights, score them on the test set (or dev, where there is none), write the report."""
    which = choose_weights(run, trainer, validator)
    examples = validator.examples
    held_out, name = (examples.test, "test") if examples.test else (examples.dev, "dev")
    scores = validator.score(held_out)
    scored_on = f"{name}, {len(held_out.examples):,} examples"
    write_result(run, recipe, trainer, validator.progress, weights=which, scores=scores, name=name, scored_on=scored_on)

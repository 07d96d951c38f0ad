"""The fine-tuning of an encoder: its examples, its model, how it is scored, what is said at its end."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from qkv.base.errors import ConfigError, DataError
from qkv.base.files import whole_file
from qkv.base.hardware import choose_device, choose_precision
from qkv.build import make_finetuned, make_finetuning
from qkv.data.cache import digest_of
from qkv.data.corpora import Tokenizers
from qkv.data.encoding import Encoded, encode
from qkv.data.labelled import LabelledBatches, in_order
from qkv.parts.heads import ENCODER, Headed
from qkv.recipe import FinetuningRecipe, parse_recipe
from qkv.runs.choice import choose_weights
from qkv.runs.encoders import read_encoder
from qkv.runs.folder import RESULT, WEIGHTS, check_texts, check_tokenizers, load_tokenizers, save_config, save_tokenizers
from qkv.runs.predict import Shape, judged, predict
from qkv.runs.work import Work, facts_of
from qkv.text.files import matching
from qkv.text.judge import METRICS
from qkv.text.labelled import (
    TaggedExample,
    TextExample,
    check_labels,
    count_labels,
    headers_among,
    labels_of,
    read_examples,
)
from qkv.text.squad import Question
from qkv.text.tokenizer import Tokenizer, train_tokenizer
from qkv.training.config import TrainingConfig
from qkv.training.log import read_metrics
from qkv.training.loop import Trainer, Validation
from qkv.training.progress import Progress, duration
from qkv.training.report import write_report

LABELS_TOLD = 20  # at the beginning
TAKEN = (ENCODER, "pooler")  # of what `start` has; its other heads said other things


@dataclass(frozen=True)
class Part:
    """Some of the examples, as they are and as token ids."""

    examples: list[Any]
    encoded: Encoded


@dataclass(frozen=True)
class Examples:
    """Everything a run of fine-tuning reads."""

    tokenizer: Tokenizer
    labels: tuple[str, ...]
    train: Part
    dev: Part
    test: Part | None
    shape: Shape


def complete(recipe: FinetuningRecipe[Any, Any]) -> FinetuningRecipe[Any, Any]:
    """The recipe with the shape of the model that it starts from; of that it may change the dropout alone."""
    if recipe.start is None:
        return recipe
    begun = read_encoder(Path(recipe.start))
    model = begun.network.config.model_dump(mode="json")
    given = {} if recipe.model is None else recipe.model.model_dump(mode="json", include=recipe.model.model_fields_set)
    other = [f"model.{key} {value!r}" for key, value in given.items() if key != "dropout" and value != model.get(key)]
    if other:
        raise ConfigError(f"{', '.join(other)}: not what {recipe.start} has; leave model out, it is taken from there")
    _check_tokenizer(recipe, begun.tokenizer)
    values = {**recipe.model_dump(mode="json"), "model": {**model, **given}}
    made = parse_recipe(values, recipe.start)
    assert isinstance(made, FinetuningRecipe)
    try:
        made.check_shape()
    except ValueError as error:
        raise ConfigError(f"{recipe.start}: {error}") from None
    return made


def _check_tokenizer(recipe: FinetuningRecipe[Any, Any], begun: Tokenizer) -> None:
    """Refuse another tokenizer than that of the run that this one starts from: numbers would mean other words."""
    config = recipe.tokenizer
    if config is not None and (config.file is None or Tokenizer.load(Path(config.file)).fingerprint() != begun.fingerprint()):
        got = f"{config.file}: not" if config.file else "a new tokenizer is not"
        raise ConfigError(f"{got} the tokenizer of {recipe.start}; leave tokenizer out, it is taken from there")


def finetuning(recipe: FinetuningRecipe[Any, Any], run: Path, progress: Progress, accept_changes: bool) -> Work:
    """Everything that fine-tuning needs."""
    examples = prepare(recipe, run, progress, accept_changes)
    model = first_model(recipe, examples, progress).to(choose_device(recipe.training.device))
    shape, pad = examples.shape, examples.tokenizer.pad
    batches = LabelledBatches(
        examples=examples.train.encoded, seed=recipe.seed, rows=shape.rows, length=shape.length, texts=shape.texts, pad=pad
    )
    validator = Validator(recipe, examples, model, progress)
    return Work(
        model=model,
        objective=make_finetuning(recipe),
        batches=batches,
        training=by_epochs(recipe.training, batches.batches_in_epoch),
        validator=validator,
        size=f"{len(examples.train.examples):,} examples; {shape.rows * shape.length:,} tokens a step, in rows of {shape.length}",
        finish=lambda trainer: finish(run, recipe, trainer, validator),
    )


def by_epochs(config: TrainingConfig, batches: int) -> TrainingConfig:
    """The same in steps, with a validation and a checkpoint at the end of each epoch; both are free where steps are given."""
    if config.epochs is None:
        return config
    return config.model_copy(update={"steps": config.epochs * batches, "validate_every": batches, "save_every": batches})


def first_model(recipe: FinetuningRecipe[Any, Any], examples: Examples, progress: Progress) -> Headed:
    """The encoder of the run that this one starts from, with new heads; or all of it new."""
    labels = len(examples.labels) or 1
    if recipe.start is None:
        return make_finetuned(recipe, len(examples.tokenizer), labels)
    begun = read_encoder(Path(recipe.start)).network
    if not (Path(recipe.start) / WEIGHTS).exists():
        progress.warn(f"{recipe.start} is not finished; its newest checkpoint is taken")
    model = make_finetuned(recipe, begun.words, labels)  # an imported one may have more words than its tokenizer
    model.load({part: weights for part, weights in begun.weights.items() if part in TAKEN})
    return model


# The examples


def prepare(recipe: FinetuningRecipe[Any, Any], run: Path, progress: Progress, accept_changes: bool) -> Examples:
    """Read and tokenise the examples; every mistake in them is refused with its line."""
    data, kind = recipe.data, recipe.objective.kind
    train, dev = (read_examples(kind, data.examples(files)) for files in (data.train, data.dev))
    test = read_examples(kind, data.examples(data.test)) if data.test else []
    labels = labels_of(kind, train) if kind in ("classification", "tagging") else ()
    if labels:
        check_labels([*dev, *test], labels)
        _tell_labels(labels, train, progress)
    if kind == "answering" and recipe.objective.always:
        _refuse_unanswered([*train, *dev, *test])
    texts = [digest_of(path) for pattern in data.train for path in matching(pattern)]
    check_texts(run, texts, accept_changes)
    tokenizer = _tokenizer(recipe, run, train, progress)
    save_config(run, recipe, Tokenizers(tokenizer, tokenizer), texts, labels=labels)
    parts = [Part(part, encode(part, tokenizer, data.length, kind, labels, data.stride)) for part in (train, dev, test) if part]
    longest = max(int(part.encoded.lengths.max()) for part in parts)
    shape = Shape.of(longest, recipe.training.batch_tokens)
    return Examples(tokenizer, labels, parts[0], parts[1], parts[2] if test else None, shape)


def _tokenizer(recipe: FinetuningRecipe[Any, Any], run: Path, train: list[Any], progress: Progress) -> Tokenizer:
    """The run's own, the one of the run that it starts from, or a new one."""
    known = load_tokenizers(run)
    if known is not None:
        check_tokenizers(run, known)
        return known.source
    if recipe.start is not None:
        made = read_encoder(Path(recipe.start)).tokenizer
    else:
        assert recipe.tokenizer is not None  # the recipe has seen to it
        made = train_tokenizer(recipe.tokenizer, (text for example in train for text in texts_in(example)))
        progress.say(f"tokenizer: {recipe.tokenizer.file or recipe.tokenizer.kind}, {len(made):,} pieces")
    save_tokenizers(run, Tokenizers(made, made))
    return made


def _tell_labels(labels: tuple[str, ...], train: list[Any], progress: Progress) -> None:
    """Which there are and how often: what was read wrong shows here first."""
    counts = count_labels(train)
    told = ", ".join(f"{label} {counts[label]:,}" for label in labels[:LABELS_TOLD])
    progress.say(f"labels: {told}" + (f" and {len(labels) - LABELS_TOLD:,} more" if len(labels) > LABELS_TOLD else ""))
    for example in headers_among(train) if isinstance(train[0], TextExample) else []:
        progress.warn(
            f"{example.where}: the label {example.label!r} is on no other line; if this is a header, name the columns: "
            "--set data.text=... --set data.label=..."
        )


def _refuse_unanswered(questions: list[Question]) -> None:
    for question in questions:
        if not question.answers:
            raise DataError(f"{question.where}: it has no answer; say objective.always=false if that may be")


def texts_in(example: TextExample | TaggedExample | Question) -> list[str]:
    """All text that an example holds."""
    if isinstance(example, TaggedExample):
        return [" ".join(example.words)]
    if isinstance(example, Question):
        return [example.question, example.context]
    return [example.text] if example.pair is None else [example.text, example.pair]


# Scores


class Validator:
    """Scores the model on dev: its loss, and the metrics of what it predicts."""

    def __init__(self, recipe: FinetuningRecipe[Any, Any], examples: Examples, model: Headed, progress: Progress):
        self.recipe, self.examples, self.model, self.progress = recipe, examples, model, progress
        self.device = next(model.parameters()).device
        self.precision = choose_precision(recipe.training.precision, self.device)
        self.objective = make_finetuning(recipe)

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
        with torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32):
            said = predict(self.model, self.objective, part.encoded, part.examples, labels, self.examples.shape, pad)
        return {name: judged(kind, name, said, part.examples, labels) for name in self.recipe.judged_by}

    @torch.no_grad()
    def loss(self) -> float:
        """Of an answer, over all of dev."""
        total, answers = torch.zeros((), device=self.device), 0
        shape, pad = self.examples.shape, self.examples.tokenizer.pad
        with torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32):
            for batch, _ in in_order(self.examples.dev.encoded, rows=shape.rows, length=shape.length, texts=shape.texts, pad=pad):
                total += self.objective.loss(self.model, *batch.to(self.device).inputs)
                answers += batch.answers
        return float(total) / answers


def finish(run: Path, recipe: FinetuningRecipe[Any, Any], trainer: Trainer, validator: Validator) -> None:
    """Choose the weights, score them on the test set (or dev, where there is none), write the report."""
    which = choose_weights(run, trainer, validator)
    examples = validator.examples
    held_out, name = (examples.test, "test") if examples.test else (examples.dev, "dev")
    scores = validator.score(held_out)
    facts = facts_of(recipe, trainer, which, f"{name}, {len(held_out.examples):,} examples")
    rows = [{"metric": metric.replace("_", " "), name: f"{value:.4f}"} for metric, value in scores.items()]
    report = write_report(
        run, run.name, facts=facts, metrics=read_metrics(run), scores=[], samples=[], attention=[], corpus=[], figures=rows
    )
    with whole_file(run / RESULT) as path:
        path.write_text(json.dumps({**facts, "scores": scores}, indent=1))
    for metric, value in scores.items():
        validator.progress.say(f"{name}: {metric.replace('_', ' ')} {value:.4f}")
    validator.progress.say(f"trained in {duration(trainer.state.seconds)}; report: {report}")

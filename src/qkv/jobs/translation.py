"""Training a translator on pairs of texts: data, model, validation, report."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.markup import escape
from rich.table import Table
from torch import nn

from qkv.base.errors import ConfigError, DataError
from qkv.base.files import atomic_file, digest
from qkv.base.hardware import choose_device
from qkv.data.batches import Batch, Batches, in_order
from qkv.data.corpora import (
    Tokenizers,
)
from qkv.data.tokens import TokenPairs
from qkv.decoding.config import DecodingConfig
from qkv.folder.run import RESULT, WEIGHTS, read_run, read_source_statistics
from qkv.folder.start import start_translator
from qkv.folder.summary import choose_examples
from qkv.inference.confidence import ConfidenceModel, require_texts_to_calibrate
from qkv.inference.engines import OwnEngine
from qkv.inference.evaluation import Evaluation, Sample, calibrate, describe_detected, evaluate
from qkv.inference.translator import Translator
from qkv.jobs.before_after import format_row, save_before, start_warnings, tabulate
from qkv.jobs.final_weights import choose_weights
from qkv.jobs.health import count_tokens
from qkv.jobs.initial_embeddings import initialise_translator_embeddings
from qkv.jobs.job import Job, run_facts, training_record
from qkv.jobs.prepared_pairs import PreparedPairs, TextPairs, prepare
from qkv.jobs.run_report import write_run_report
from qkv.jobs.validation import Validator
from qkv.models import FAMILIES, seeded_initialisation
from qkv.objectives import OBJECTIVES
from qkv.parts.vocabulary_rows import change_vocabularies
from qkv.recipes import TranslationData, TranslationRecipe
from qkv.text.translation_metrics import METRICS
from qkv.text.vocabulary_growth import tokens_of_pieces
from qkv.training.checkpoints import set_weights
from qkv.training.loop import Trainer, Validation
from qkv.training.progress import Progress, duration

# Validation decodes greedily for every recipe: it is fast, and scores of different recipes can be compared.
GREEDY = {name: field.default for name, field in DecodingConfig.model_fields.items()} | {"beam": 1}
SHOWN, SHOWN_AT_END = 3, 12  # samples shown at each validation, and at the end of training
BEFORE_DEV = "before_dev.json"  # in a run's folder: scores on dev of the weights that it started from
CALIBRATION_TEXTS = 1000  # dev texts that confidence is learned on


def translation(recipe: TranslationRecipe[Any, Any], run: Path, progress: Progress, accept_changes: bool) -> Job:
    """Prepare the training of a translator: data, model, batches, validation."""
    data = prepare(recipe, run, progress, accept_changes)
    device = choose_device(recipe.training.device)
    model = _initial_translator(recipe, run, data, progress)
    if recipe.embeddings is not None:
        initialise_translator_embeddings(model, data.tokenizers, recipe.embeddings, progress)
    model = model.to(device)
    batches = Batches(
        data.train,
        mixing_rates(recipe.data, [len(pairs) for pairs in data.train]),
        seed=recipe.seed,
        tokens=recipe.training.batch_tokens,
        widths=data.widths,
        eos=data.tokenizers.target.eos,
        fixed=device.type == "cuda",
        one_text_per_row=recipe.model.one_text_per_row,
        window=recipe.data.shuffle_window,
        shards=[corpus.shards for corpus in data.tokenised],
    )
    validator = TranslationValidator(recipe, data, model, progress)
    before = validator.score_start(run) if recipe.start else None
    return Job(
        model=model,
        objective=OBJECTIVES[recipe.objective.kind].build(recipe.objective, data.tokenizers.target),
        batches=batches,
        training=recipe.training,
        validator=validator,
        size=f"{len(batches.order):,} pairs an epoch; {recipe.training.batch_tokens:,} target tokens a step, "
        + ("a text a row" if batches.one_text_per_row else f"in rows of {batches.widths[1]}"),
        finish=lambda trainer: finish(run, trainer, validator, data, before),
        token_counts=_count_targets(data),
    )


def _count_targets(data: PreparedPairs) -> np.ndarray:
    """Count the target tokens that the model learns to predict, the eos of each text among them. -> (V,)."""
    vocabulary = len(data.tokenizers.target)
    counts, texts, tokens = np.zeros(vocabulary), 0, 0
    for corpus in data.tokenised:
        counts += count_tokens(corpus.pairs.target, corpus.sample(), vocabulary)
        texts, tokens = texts + len(corpus.pairs), tokens + corpus.pairs.target.tokens
    counts[data.tokenizers.target.eos] += counts.sum() * texts / max(1, tokens)
    return counts


def new_translator(recipe: Any, tokenizers: Tokenizers) -> Any:
    """Build the translator of a recipe with initial weights."""
    source, target = tokenizers
    if getattr(recipe.model, "tied", None) == "all" and not source.same_vocabulary(target):
        raise ConfigError("model.tied=all needs one vocabulary, and these two tokenizers have two; set model.tied=target")
    build = FAMILIES[recipe.model.kind].translator
    assert build is not None
    with seeded_initialisation(recipe.seed):
        return build(recipe.model, len(source), len(target), target.mask if target.has_mask else None)


def _initial_translator(recipe: Any, run: Path, data: PreparedPairs, progress: Progress) -> Any:
    """Build the translator of a recipe with initial weights, or with those of its start and rows for new pieces.

    A new piece begins as the mean of the old pieces that it consists of. Translations of the start itself are saved.
    """
    if recipe.start is None:
        return new_translator(recipe, data.tokenizers)
    old, device = read_run(Path(recipe.start))[1], choose_device(recipe.training.device)
    model = start_translator(recipe, lambda: new_translator(recipe, old), progress).to(device)
    before = Translator(OwnEngine(model, old.target), old, recipe, sources=read_source_statistics(Path(recipe.start)))
    save_before(run, before, data.held_out)
    if all(was.fingerprint() == now.fingerprint() for was, now in zip(old, data.tokenizers, strict=True)):
        return model
    source, target = (tokens_of_pieces(was, now) for was, now in zip(old, data.tokenizers, strict=True))
    grown = new_translator(recipe, data.tokenizers)
    set_weights(grown, change_vocabularies(model, source, target), recipe.start)
    return grown


def mixing_rates(data: TranslationData, sizes: list[int]) -> list[float]:
    """Return how often an epoch shows each pair of a corpus, for corpora of these sizes (Raffel et al. 2020, section 3.5.2)."""
    limits = [data.mixing_limit or size for size in sizes]
    rates = [min(1.0, limit / max(1, size)) for limit, size in zip(limits, sizes, strict=True)]
    return [corpus.weight * rate for corpus, rate in zip(data.train, rates, strict=True)]


# Scores


class TranslationValidator(Validator):
    """Scores the model on dev: the loss over all of it, metrics and samples from greedy translations of its first texts."""

    def __init__(self, recipe: TranslationRecipe[Any, Any], data: PreparedPairs, model: nn.Module, progress: Progress):
        super().__init__(
            recipe, model, OBJECTIVES[recipe.objective.kind].build(recipe.objective, data.tokenizers.target), progress
        )
        self.recipe, self.data = recipe, data

    def translator(self) -> Translator:
        """Return a translator with the model's present weights."""
        engine, data = OwnEngine(self.model, self.data.tokenizers.target), self.data
        return Translator(engine, data.tokenizers, self.recipe, sources=data.sources)

    def __call__(self, step: int) -> Validation:
        """Score the model at a step of training, and show the figures with a few samples."""
        found, samples = self.score(self.data.dev[: self.recipe.score_dev], seed=step)
        found.scores.update(self.source_gain(self.data.dev_pairs, self.batches))
        for source, references, output in samples:
            self.progress.say(f"    {source}\n  = {' | '.join(references)}\n  > {output}")
        self.progress.say(f"step {step:,}: " + "  ".join(f"{name} {value:.3f}" for name, value in found.scores.items()))
        return found

    def final(self) -> float:
        """Return the first metric over all of dev."""
        return self.score_dev().selection_score

    def score_dev(self) -> Validation:
        """Return the loss on dev, and metrics over all of it unless the recipe translates no dev texts."""
        return self.score(self.data.dev if self.recipe.score_dev else [], seed=0)[0]

    def score_start(self, run: Path) -> Validation:
        """Score the weights of the start as the kept ones are scored at the end: in float32. A resumed run knows the scores."""
        path = run / BEFORE_DEV
        if path.exists():
            return Validation(**json.loads(path.read_text()))
        precision, self.precision = self.precision, torch.float32
        self.model.eval()
        found = self.score_dev()
        self.precision = precision
        with atomic_file(path) as aside:
            aside.write_text(json.dumps(vars(found)))
        self.progress.say("before training: " + "  ".join(f"{name} {value:.3f}" for name, value in found.scores.items()))
        return found

    @torch.no_grad()
    def score(self, texts: TextPairs, seed: int) -> tuple[Validation, list[Sample]]:
        """Return the loss on dev, metrics of the translations of `texts`, and a few samples."""
        with self.in_precision():
            scores = {"dev_loss": self.loss()}
            if not texts:
                return Validation(scores, -scores["dev_loss"]), []
            found = evaluate(self.translator(), texts, self.recipe.metrics, target_language=self.data.detected_language, **GREEDY)
        scores |= {f"dev_{score.name}": score.value for score in found.scores}
        first = found.scores[0]
        better = first.value if METRICS[first.name].higher_is_better else -first.value
        return Validation(scores, better), found.samples(SHOWN, seed)

    def loss(self) -> float:
        """Return the loss in nats per target token, over all of dev."""
        return self.mean_loss(self.batches(self.data.dev_pairs))

    def batches(self, pairs: TokenPairs) -> Iterator[Batch]:
        """Yield batches of these pairs, in rows like those of training."""
        budget, eos = self.recipe.training.batch_tokens, self.data.tokenizers.target.eos
        one_text_per_row = self.recipe.model.one_text_per_row
        return in_order(pairs, tokens=budget, widths=self.data.widths, eos=eos, one_text_per_row=one_text_per_row)


def finish(
    run: Path, trainer: Trainer, validator: TranslationValidator, data: PreparedPairs, before: Validation | None = None
) -> None:
    """Choose the weights, score them on the test set (on dev without one), write the report.

    `before` is the validation of the start's weights; warnings say so where the kept ones are no better.
    """
    recipe, progress = validator.recipe, validator.progress
    which = choose_weights(run, trainer, validator)
    translator = validator.translator()
    evaluations = {
        name: evaluate(translator, pairs, recipe.metrics, confidence=True, target_language=data.detected_language)
        for name, pairs in data.held_out.items()
    }
    name, found = next(iter(evaluations.items()))
    facts = run_facts(recipe, trainer, which, f"{name}, {len(found.sources):,} texts")
    facts["trained on"] = f"{sum(map(len, data.train)):,} pairs"
    if data.detected_language is not None:
        facts["detected language"] = describe_detected(data.detected_language)
    rows = tabulate(run, data.held_out, evaluations) if len(evaluations) > 1 or recipe.start else []
    warnings = start_warnings(recipe.start, before, validator.score_dev(), rows) if before and recipe.start else []
    facts["warnings"] = [*facts["warnings"], *warnings]
    confidence = _calibrate(run, translator, evaluations.get("dev"), data, progress)
    report = write_run_report(run, facts, found, translator, data.reports, rows, confidence)
    with atomic_file(run / RESULT) as path:
        scores = {"scores": [vars(score) for score in found.scores], "held-out sets": rows}
        scores["examples"] = choose_examples(found.sources)
        record = {"data": data.counts(), "training": training_record(trainer)}
        path.write_text(json.dumps({**facts, **scores, **record}, indent=1))
    progress.say(_table(found.samples(SHOWN_AT_END, recipe.seed), name))
    for score in found.scores:
        progress.say(f"{name}: {score}  ({score.signature})")
    for row in map(format_row, rows):
        change = " (before {before}, difference {difference}, p = {p})".format_map(row) if "before" in row else ""
        progress.say(f"{row['held-out set']}: {row['score']}{change}")
    for warning in warnings:
        progress.warn(warning)
    progress.say(f"trained in {duration(trainer.state.seconds)}; report: {report}")


def _calibrate(
    run: Path, translator: Translator, dev: Evaluation | None, data: PreparedPairs, progress: Progress
) -> ConfidenceModel | None:
    """Learn confidence from the translations of dev, and save it; say so where dev does not suffice."""
    try:
        if dev is None:
            require_texts_to_calibrate(len({source for source, _ in data.dev}))  # before they are translated
            dev = evaluate(translator, data.dev[:CALIBRATION_TEXTS], ("chrf",))
        found = calibrate(translator, dev.first(CALIBRATION_TEXTS), digest(run / WEIGHTS))
    except DataError as error:
        progress.say(f"confidence was not calibrated: {error}")
        return None
    found.save(run)
    progress.say(f"confidence of translations: {found.reliability}, predicted from the others")
    return found


def _table(samples: list[Sample], name: str) -> Table:
    """Make a table of sources, references and outputs; a tick marks outputs that equal a reference."""
    table = Table(name, "wanted", "got", "")
    for source, references, output in samples:
        table.add_row(escape(source), escape(" | ".join(references)), escape(output), "✓" if output in references else "")
    return table

"""Training a translator on pairs of texts: data, model, validation, report."""

import json
from pathlib import Path
from typing import Any

import torch
from rich.markup import escape
from rich.table import Table
from torch import nn

from qkv.base.errors import ConfigError
from qkv.base.files import atomic_file
from qkv.base.hardware import choose_device
from qkv.data.batches import Batches, in_order
from qkv.data.corpora import Tokenizers
from qkv.decoding.config import DecodingConfig
from qkv.folder.run import RESULT
from qkv.folder.start import start_translator
from qkv.inference.engines import OwnEngine
from qkv.inference.evaluation import Sample, evaluate
from qkv.inference.translator import Translator
from qkv.jobs.final_weights import choose_weights
from qkv.jobs.initial_embeddings import initialise_translator_embeddings
from qkv.jobs.job import Job, run_facts
from qkv.jobs.run_report import write_run_report
from qkv.jobs.translation_data import Data, TextPairs, prepare
from qkv.jobs.validation import Validator
from qkv.models import FAMILIES, seeded_initialisation
from qkv.objectives import OBJECTIVES
from qkv.recipes import TranslationData, TranslationRecipe
from qkv.text.translation_metrics import METRICS
from qkv.training.loop import Trainer, Validation
from qkv.training.progress import Progress, duration

# Validation decodes greedily, whatever the recipe says: fast, and the same for every recipe.
GREEDY = {name: field.default for name, field in DecodingConfig.model_fields.items()} | {"beam": 1}
SHOWN, SHOWN_AT_END = 3, 12  # samples shown at each validation, and when training is over


def translation(recipe: TranslationRecipe[Any, Any], run: Path, progress: Progress, accept_changes: bool) -> Job:
    """Prepare the training of a translator: its data, its model, its objective, its validation."""
    data = prepare(recipe, run, progress, accept_changes)
    device = choose_device(recipe.training.device)
    if recipe.start is None:
        model = new_translator(recipe, data.tokenizers)
    else:
        model = start_translator(recipe, lambda: new_translator(recipe, data.tokenizers), progress)
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
    )
    validator = TranslationValidator(recipe, data, model, progress)
    return Job(
        model=model,
        objective=OBJECTIVES[recipe.objective.kind].build(recipe.objective, data.tokenizers.target),
        batches=batches,
        training=recipe.training,
        validator=validator,
        size=f"{len(batches.order):,} pairs an epoch; {recipe.training.batch_tokens:,} target tokens a step, "
        + ("a text a row" if batches.one_text_per_row else f"in rows of {batches.widths[1]}"),
        finish=lambda trainer: finish(run, trainer, validator, data),
    )


def new_translator(recipe: Any, tokenizers: Tokenizers) -> Any:
    """Build the translator of a recipe with initial weights."""
    source, target = tokenizers
    if getattr(recipe.model, "tied", None) == "all" and not source.same_vocabulary(target):
        raise ConfigError("model.tied=all needs one vocabulary, and these two tokenizers have two; say model.tied=target")
    build = FAMILIES[recipe.model.kind].translator
    assert build is not None
    with seeded_initialisation(recipe.seed):
        return build(recipe.model, len(source), len(target), target.mask if target.has_mask else None)


def mixing_rates(data: TranslationData, sizes: list[int]) -> list[float]:
    """Return how often an epoch shows each pair of corpora of these sizes (the limit: Raffel et al. 2020, section 3.5.2)."""
    limits = [data.mixing_limit or size for size in sizes]
    rates = [min(1.0, limit / max(1, size)) for limit, size in zip(limits, sizes, strict=True)]
    return [corpus.weight * rate for corpus, rate in zip(data.train, rates, strict=True)]


class TranslationValidator(Validator):
    """Scores the model on dev: loss over all of it, metrics and samples from greedy translations of its first texts."""

    def __init__(self, recipe: TranslationRecipe[Any, Any], data: Data, model: nn.Module, progress: Progress):
        super().__init__(
            recipe, model, OBJECTIVES[recipe.objective.kind].build(recipe.objective, data.tokenizers.target), progress
        )
        self.recipe, self.data = recipe, data

    def translator(self) -> Translator:
        """Return a translator with the model's present weights."""
        return Translator(OwnEngine(self.model, self.data.tokenizers.target), self.data.tokenizers, self.recipe)

    def __call__(self, step: int) -> Validation:
        """Score the model at a step of training, and show the figures with a few samples."""
        found, samples = self.score(self.data.dev[: self.recipe.score_dev], seed=step)
        for source, references, output in samples:
            self.progress.say(f"    {source}\n  = {' | '.join(references)}\n  > {output}")
        self.progress.say(f"step {step:,}: " + "  ".join(f"{name} {value:.3f}" for name, value in found.scores.items()))
        return found

    def final(self) -> float:
        """Return the first metric over all of dev, by which finished weights are compared."""
        return self.score(self.data.dev if self.recipe.score_dev else [], seed=0)[0].selection_score

    @torch.no_grad()
    def score(self, texts: TextPairs, seed: int) -> tuple[Validation, list[Sample]]:
        with self.in_precision():
            scores = {"dev_loss": self.loss()}
            if not texts:
                return Validation(scores, -scores["dev_loss"]), []
            found = evaluate(self.translator(), texts, self.recipe.metrics, **GREEDY)
        scores |= {f"dev_{score.name}": score.value for score in found.scores}
        first = found.scores[0]
        better = first.value if METRICS[first.name].higher_is_better else -first.value
        return Validation(scores, better), found.samples(SHOWN, seed)

    def loss(self) -> float:
        """Return the loss in nats per target token, over all of dev."""
        budget, eos = self.recipe.training.batch_tokens, self.data.tokenizers.target.eos
        one_text_per_row = self.recipe.model.one_text_per_row
        return self.mean_loss(
            in_order(self.data.dev_pairs, tokens=budget, widths=self.data.widths, eos=eos, one_text_per_row=one_text_per_row)
        )


def finish(run: Path, trainer: Trainer, validator: TranslationValidator, data: Data) -> None:
    """Choose the weights, score them on the test set (on dev without one), write the report."""
    recipe, progress = validator.recipe, validator.progress
    which = choose_weights(run, trainer, validator)
    translator = validator.translator()
    held_out, name = (data.test, "test") if data.test else (data.dev, "dev")
    found = evaluate(translator, held_out, recipe.metrics, confidence=True)
    facts = run_facts(recipe, trainer, which, f"{name}, {len(found.sources):,} texts")
    report = write_run_report(run, facts, found, translator, data.reports)
    with atomic_file(run / RESULT) as path:
        path.write_text(json.dumps({**facts, "scores": [vars(score) for score in found.scores]}, indent=1))
    progress.say(_table(found.samples(SHOWN_AT_END, recipe.seed), name))
    for score in found.scores:
        progress.say(f"{name}: {score}  ({score.signature})")
    progress.say(f"trained in {duration(trainer.state.seconds)}; report: {report}")


def _table(samples: list[Sample], name: str) -> Table:
    """Lay out sources, references and outputs; a tick marks outputs that equal a reference."""
    table = Table(name, "wanted", "got", "")
    for source, references, output in samples:
        table.add_row(escape(source), escape(" | ".join(references)), escape(output), "✓" if output in references else "")
    return table

"""A translator's run: its data, its model, how it is scored, what is said at its end."""

import json
from pathlib import Path
from typing import Any

import torch
from rich.markup import escape
from rich.table import Table
from torch import nn

from qkv.base.files import atomic_file
from qkv.base.hardware import choose_device
from qkv.data.batches import Batches, in_order
from qkv.decoding.config import DecodingConfig
from qkv.folder.run import RESULT
from qkv.folder.start import begin_with
from qkv.folder.t5 import initial_t5
from qkv.inference.engines import OwnEngine
from qkv.inference.evaluation import Sample, evaluate
from qkv.inference.translator import Translator
from qkv.jobs.final_weights import choose_weights
from qkv.jobs.initial_embeddings import begin_sides
from qkv.jobs.job import Work, facts_of
from qkv.jobs.run_report import write_run_report
from qkv.jobs.translation_data import Data, TextPairs, prepare
from qkv.jobs.validation import OnDev
from qkv.models.t5 import T5Config
from qkv.models.unilm_translator import UnilmTranslator
from qkv.recipes import TranslationData, TranslationRecipe
from qkv.recipes.build import make_translation, make_translator
from qkv.text.translation_metrics import METRICS
from qkv.training.loop import Trainer, Validation
from qkv.training.progress import Progress, duration

# Whatever the recipe says of decoding: fast, and the same for every recipe.
GREEDY = {name: field.default for name, field in DecodingConfig.model_fields.items()} | {"beam": 1}
SHOWN, SHOWN_AT_END = 3, 12  # samples shown at each validation, and when training is over


def translation(recipe: TranslationRecipe[Any], run: Path, progress: Progress, accept_changes: bool) -> Work:
    """Everything that training a translator needs."""
    data = prepare(recipe, run, progress, accept_changes)
    device = choose_device(recipe.training.device)
    model = _first_model(recipe, data, progress).to(device)
    batches = Batches(
        data.train,
        mixing_rates(recipe.data, [len(pairs) for pairs in data.train]),
        seed=recipe.seed,
        tokens=recipe.training.batch_tokens,
        widths=data.widths,
        eos=data.tokenizers.target.eos,
        fixed=device.type == "cuda",
        one_text_per_row=model.one_text_per_row,
    )
    validator = Validator(recipe, data, model, progress)
    return Work(
        model=model,
        objective=make_translation(recipe, data.tokenizers),
        batches=batches,
        training=recipe.training,
        validator=validator,
        size=f"{len(batches.order):,} pairs an epoch; {recipe.training.batch_tokens:,} target tokens a step, "
        + ("a text a row" if model.one_text_per_row else f"in rows of {batches.widths[1]}"),
        finish=lambda trainer: finish(run, trainer, validator, data),
    )


def _first_model(recipe: TranslationRecipe[Any], data: Data, progress: Progress) -> Any:
    is_t5, tokenizers = isinstance(recipe.model, T5Config), data.tokenizers
    model: Any = initial_t5(recipe, tokenizers.target, progress) if is_t5 else make_translator(recipe, tokenizers)
    if isinstance(model, UnilmTranslator) and recipe.start is not None:
        weights = begin_with(recipe.start, progress).network.weights
        model.load(weights)
        for head in model.heads.keys() - weights.keys():
            progress.say(f"new, as {recipe.start} has none: {head}")
    if recipe.embeddings is not None:
        begin_sides(model, tokenizers, recipe.embeddings, progress)
    return model


def mixing_rates(data: TranslationData, sizes: list[int]) -> list[float]:
    """How often each pair of corpora of such sizes is seen in an epoch (for the limit: Raffel et al. 2020, section 3.5.2)."""
    limits = [data.mixing_limit or size for size in sizes]
    rates = [min(1.0, limit / max(1, size)) for limit, size in zip(limits, sizes, strict=True)]
    return [corpus.weight * rate for corpus, rate in zip(data.train, rates, strict=True)]


class Validator(OnDev):
    """Scores the model on dev: loss over all of it, metrics and samples from greedy translations of its first texts."""

    def __init__(self, recipe: TranslationRecipe[Any], data: Data, model: nn.Module, progress: Progress):
        super().__init__(recipe, model, make_translation(recipe, data.tokenizers), progress)
        self.recipe, self.data = recipe, data

    def translator(self) -> Translator:
        """Return a translator with the model's present weights."""
        return Translator(OwnEngine(self.model, self.data.tokenizers.target), self.data.tokenizers, self.recipe)

    def __call__(self, step: int) -> Validation:
        """The figures at a step of training, told to the user with a few samples."""
        found, samples = self.score(self.data.dev[: self.recipe.score_dev], seed=step)
        for source, references, output in samples:
            self.progress.say(f"    {source}\n  = {' | '.join(references)}\n  > {output}")
        self.progress.say(f"step {step:,}: " + "  ".join(f"{name} {value:.3f}" for name, value in found.scores.items()))
        return found

    def final(self) -> float:
        """The figure by which finished weights are compared, over all of dev."""
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
        """Nats per target token, over all of dev."""
        budget, eos = self.recipe.training.batch_tokens, self.data.tokenizers.target.eos
        one_text_per_row = bool(self.model.one_text_per_row)
        return self.mean_loss(
            in_order(self.data.dev_pairs, tokens=budget, widths=self.data.widths, eos=eos, one_text_per_row=one_text_per_row)
        )


def finish(run: Path, trainer: Trainer, validator: Validator, data: Data) -> None:
    """Choose the weights, score them on the test set (or dev, where there is none), write the report."""
    recipe, progress = validator.recipe, validator.progress
    which = choose_weights(run, trainer, validator)
    translator = validator.translator()
    held_out, name = (data.test, "test") if data.test else (data.dev, "dev")
    found = evaluate(translator, held_out, recipe.metrics, confidence=True)
    facts = facts_of(recipe, trainer, which, f"{name}, {len(found.sources):,} texts")
    report = write_run_report(run, facts, found, translator, data.reports)
    with atomic_file(run / RESULT) as path:
        path.write_text(json.dumps({**facts, "scores": [vars(score) for score in found.scores]}, indent=1))
    progress.say(_table(found.samples(SHOWN_AT_END, recipe.seed), name))
    for score in found.scores:
        progress.say(f"{name}: {score}  ({score.signature})")
    progress.say(f"trained in {duration(trainer.state.seconds)}; report: {report}")


def _table(samples: list[Sample], name: str) -> Table:
    """Sources beside what was wanted and what came out; a tick where the two are the same."""
    table = Table(name, "wanted", "got", "")
    for source, references, output in samples:
        table.add_row(escape(source), escape(" | ".join(references)), escape(output), "✓" if output in references else "")
    return table

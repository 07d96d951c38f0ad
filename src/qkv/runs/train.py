"""From a recipe to a finished run: prepare the data, train, choose the weights, score, report."""

import contextlib
import json
import signal
import time
from pathlib import Path

import torch
from rich.markup import escape
from rich.table import Table
from torch import Tensor, nn

from qkv.base.files import whole_file
from qkv.base.hardware import choose_device, choose_precision, describe
from qkv.build import Recipe, make_model, make_objective
from qkv.data.batches import Batches, in_order
from qkv.decoding.config import DecodingConfig
from qkv.runs.engines import OwnEngine
from qkv.runs.evaluate import Sample, evaluate
from qkv.runs.folder import RESULT, WEIGHTS, alone_in, claim
from qkv.runs.prepare import Data, TextPairs, prepare
from qkv.runs.report import write_run_report
from qkv.runs.translator import Translator
from qkv.text.score import METRICS
from qkv.training import checkpoints, processes
from qkv.training.loop import Trainer, Validation
from qkv.training.progress import Progress, duration

# Whatever the recipe says of decoding: fast, and the same for every recipe.
GREEDY = {name: field.default for name, field in DecodingConfig.model_fields.items()} | {"beam": 1}
SHOWN, SHOWN_AT_END = 3, 12  # samples shown at each validation, and when training is over


def train(recipe: Recipe, out: str | Path, accept_changes: bool = False) -> Path:
    """Train what the recipe says into the folder `out`; the same call again goes on where it stopped."""
    run = Path(out)
    rank, _ = processes.join()
    progress = Progress(quiet=rank > 0)
    try:
        with alone_in(run) if rank == 0 else contextlib.nullcontext():
            if rank == 0:
                for change in claim(run, recipe, accept_changes):
                    progress.say(f"changed: {change}")
            processes.wait()
            if (run / RESULT).exists():
                progress.say(f"{run} is finished; choose another --out to train again, or a larger training.steps to go on")
            else:
                _train(recipe, run, progress, rank, accept_changes)
    finally:
        progress.close()
        processes.leave()
    return run


def _train(recipe: Recipe, run: Path, progress: Progress, rank: int, accept_changes: bool) -> None:
    if rank == 0:
        data = prepare(recipe, run, progress, accept_changes)
    processes.wait()
    if rank > 0:
        data = prepare(recipe, run, progress, accept_changes)
    device = choose_device(recipe.training.device)
    model = make_model(recipe, data.tokenizers).to(device)
    batches = Batches(
        data.train,
        [corpus.weight for corpus in recipe.data.train],
        seed=recipe.seed,
        tokens=recipe.training.batch_tokens,
        widths=data.widths,
        eos=data.tokenizers.target.eos,
        fixed=device.type == "cuda",
    )
    _announce(recipe, model, batches, device, progress)
    validator = Validator(recipe, data, model, progress)
    objective = make_objective(recipe, data.tokenizers)
    trainer = Trainer(
        run, model, objective, batches, recipe.training,
        seed=recipe.seed, width=recipe.model.width, validate=validator, progress=progress,
    )  # fmt: skip
    state = trainer.train()
    progress.close()
    if trainer.signals.number is not None:
        progress.say(f"saved at step {state.step:,}; the same command goes on from there")
        if trainer.signals.number == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        raise KeyboardInterrupt
    if rank == 0:
        finish(run, trainer, validator, data)


def _announce(recipe: Recipe, model: nn.Module, batches: Batches, device: torch.device, progress: Progress) -> None:
    """Say what is about to happen."""
    config = recipe.training
    if config.steps and config.warmup >= config.steps:
        progress.warn(
            f"training.warmup {config.warmup} is not below training.steps {config.steps}: "
            "the learning rate will not reach its peak"
        )
    limits = [f"{config.steps:,} steps"] * bool(config.steps) + [f"{config.minutes} minutes"] * bool(config.minutes)
    progress.say(
        f"{recipe.model.kind}, {count_parameters(model)} parameters; {len(batches.order):,} pairs an epoch; "
        f"{config.batch_tokens:,} target tokens a step, in rows of {batches.widths[1]}; {' or '.join(limits)} on "
        f"{describe(device)}, {name_of_precision(recipe, device)}"
    )


def count_parameters(model: nn.Module) -> str:
    return f"{sum(p.numel() for p in model.parameters()):,}"


def name_of_precision(recipe: Recipe, device: torch.device) -> str:
    return {torch.bfloat16: "bf16", torch.float32: "float32"}[choose_precision(recipe.training.precision, device)]


class Validator:
    """Scores the model on dev: loss over all of it, metrics and samples from greedy translations of its first texts."""

    def __init__(self, recipe: Recipe, data: Data, model: nn.Module, progress: Progress):
        self.recipe, self.data, self.model, self.progress = recipe, data, model, progress
        engine = OwnEngine(model)
        self.translator, self.device = Translator(engine, data.tokenizers, recipe), engine.device
        self.objective = make_objective(recipe, data.tokenizers)
        self.precision = choose_precision(recipe.training.precision, self.device)

    def __call__(self, step: int) -> Validation:
        """The figures at a step of training, told to the user with a few samples."""
        found, samples = self.score(self.data.dev[: self.recipe.score_dev], seed=step)
        for source, references, output in samples:
            self.progress.say(f"    {source}\n  = {' | '.join(references)}\n  > {output}")
        self.progress.say(f"step {step:,}: " + "  ".join(f"{name} {value:.3f}" for name, value in found.scores.items()))
        return found

    def final(self) -> float:
        """The figure by which finished weights are compared, over all of dev."""
        return self.score(self.data.dev if self.recipe.score_dev else [], seed=0)[0].better

    @torch.no_grad()
    def score(self, texts: TextPairs, seed: int) -> tuple[Validation, list[Sample]]:
        with torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32):
            scores = {"dev_loss": self.loss()}
            if not texts:
                return Validation(scores, -scores["dev_loss"]), []
            found = evaluate(self.translator, texts, self.recipe.metrics, **GREEDY)
        scores |= {f"dev_{score.name}": score.value for score in found.scores}
        first = found.scores[0]
        better = first.value if METRICS[first.name].higher_is_better else -first.value
        return Validation(scores, better), found.samples(SHOWN, seed)

    def loss(self) -> float:
        """Nats per target token, over all of dev."""
        total, tokens = torch.zeros((), device=self.device), 0
        budget, eos = self.recipe.training.batch_tokens, self.data.tokenizers.target.eos
        for batch in in_order(self.data.dev_pairs, tokens=budget, widths=self.data.widths, eos=eos):
            total += self.objective.loss(self.model, *batch.to(self.device).inputs).float()
            tokens += batch.tokens
        return float(total) / tokens


def finish(run: Path, trainer: Trainer, validator: Validator, data: Data) -> None:
    """Choose the weights, score them on the test set (or dev, where there is none), write the report."""
    recipe, translator, progress = validator.recipe, validator.translator, validator.progress
    which = choose_weights(run, trainer, validator)
    held_out, name = (data.test, "test") if data.test else (data.dev, "dev")
    found = evaluate(translator, held_out, recipe.metrics, confidence=True)
    facts = {
        "model": recipe.model.kind,
        "parameters": count_parameters(validator.model),
        "weights": which,
        "steps": f"{trainer.state.step:,}",
        "training time": duration(trainer.state.seconds),
        "device": describe(validator.device),
        "precision": name_of_precision(recipe, validator.device),
        "seed": str(recipe.seed),
        "date": time.strftime("%Y-%m-%d"),
        "scored on": f"{name}, {len(found.sources):,} texts",
    }
    report = write_run_report(run, facts, found, translator, data.reports)
    with whole_file(run / RESULT) as path:
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


def choose_weights(run: Path, trainer: Trainer, validator: Validator) -> str:
    """Of the last weights, the best ones and the mean of the last checkpoints: those that do best on dev."""
    folders = {checkpoints.step_of(folder): folder for folder in checkpoints.folders(run)}
    last, best = max(folders), trainer.state.best_step
    candidates: dict[str, dict[str, Tensor]] = {}
    averaged = [folders[step] / checkpoints.MODEL for step in trainer.averaged_steps()]
    if trainer.config.averaging == "checkpoints" and len(averaged) > 1:
        candidates[f"mean of the last {len(averaged)} checkpoints"] = checkpoints.average(averaged)
    for step in dict.fromkeys(step for step in (best, last) if step in folders):
        path = checkpoints.validated(folders[step])
        name = "average over training" if path.name == checkpoints.AVERAGE else "checkpoint"
        candidates[f"{name} at step {step:,}"] = checkpoints.read_weights(path)
    model = validator.model.eval()
    scores = {}
    for name, weights in candidates.items():
        checkpoints.set_weights(model, weights, name)
        scores[name] = validator.final() if len(candidates) > 1 else 0.0
    chosen = max(scores, key=lambda name: scores[name])
    checkpoints.set_weights(model, candidates[chosen], chosen)
    with whole_file(run / WEIGHTS) as path:
        checkpoints.save_weights(path, checkpoints.own_weights(model))
    validator.progress.say(f"weights kept: {chosen}")
    return chosen

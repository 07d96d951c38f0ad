"""From a recipe to a finished run: prepare the data, train, choose the weights, score, report."""

import contextlib
import signal
from pathlib import Path

from qkv.base.errors import QkvError
from qkv.base.hardware import choose_device, describe_device
from qkv.folder.run import RESULT, abandon, alone_in, claim
from qkv.folder.start import complete
from qkv.jobs.finetuning import finetuning
from qkv.jobs.job import Work, count_parameters, name_of_precision
from qkv.jobs.pretraining import pretraining
from qkv.jobs.translation import translation
from qkv.parts.attention_kinds import AttentiveConfig, Full
from qkv.recipes import FinetuningRecipe, Recipe, TranslationRecipe
from qkv.training import distributed
from qkv.training.loop import Trainer
from qkv.training.progress import Progress


def train(recipe: Recipe, out: str | Path, accept_changes: bool = False) -> Path:
    """Train what the recipe says into the folder `out`; the same call again goes on where it stopped."""
    run = Path(out)
    recipe = complete(recipe)
    new = not run.exists()
    rank, _ = distributed.init_processes()
    progress = Progress(quiet=rank > 0)
    try:
        with alone_in(run) if rank == 0 else contextlib.nullcontext():
            if rank == 0:
                for change in claim(run, recipe, accept_changes):
                    progress.say(f"changed: {change}")
            distributed.barrier()
            if (run / RESULT).exists():
                progress.say(f"{run} is finished; choose another --out to train again, or a larger training.steps to go on")
                return run
            try:
                _train(recipe, run, progress, rank, accept_changes)
            except QkvError:
                if new and rank == 0:
                    abandon(run)
                raise
    finally:
        progress.close()
        distributed.destroy_processes()
    return run


def _train(recipe: Recipe, run: Path, progress: Progress, rank: int, accept_changes: bool) -> None:
    if rank == 0:
        work = work_of(recipe, run, progress, accept_changes)
    distributed.barrier()
    if rank > 0:  # what the first process has prepared lies in the cache
        work = work_of(recipe, run, progress, accept_changes)
    _announce(recipe, work, progress)
    trainer = Trainer(
        run, work.model, work.objective, work.batches, work.training,
        seed=recipe.seed, width=recipe.model.width, validate=work.validator, progress=progress,
    )  # fmt: skip
    state = trainer.train()
    progress.close()
    if trainer.signals.number is not None:
        progress.say(f"saved at step {state.step:,}; the same command goes on from there")
        if trainer.signals.number == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        raise KeyboardInterrupt
    if rank == 0:
        work.finish(trainer)


def work_of(recipe: Recipe, run: Path, progress: Progress, accept_changes: bool) -> Work:
    """What there is to do, by the kind of the recipe."""
    if isinstance(recipe, TranslationRecipe):
        return translation(recipe, run, progress, accept_changes)
    if isinstance(recipe, FinetuningRecipe):
        return finetuning(recipe, run, progress, accept_changes)
    return pretraining(recipe, run, progress, accept_changes)


def _warn_of_attention(recipe: Recipe, progress: Progress) -> None:
    """Say where attention that was to be spared is full after all."""
    longest = recipe.data.max_tokens if isinstance(recipe, TranslationRecipe) else recipe.data.length
    attention = recipe.model.attention if isinstance(recipe.model, AttentiveConfig) else Full()
    if attention.kind != "full" and attention.covers(longest):
        progress.warn(
            f"model.attention={attention.kind} shows every place all of a text of up to {longest} tokens, as full attention "
            "does; to spare something there, lower its reach (and first)"
        )


def _announce(recipe: Recipe, work: Work, progress: Progress) -> None:
    """Say what is about to happen."""
    config = work.training
    if config.steps and config.warmup >= config.steps:
        progress.warn(
            f"training.warmup {config.warmup:g} is not below training.steps {config.steps}: "
            "the learning rate will not reach its peak"
        )
    _warn_of_attention(recipe, progress)
    limits = [f"{config.steps:,} steps"] if config.steps else []
    limits += [f"{config.minutes:.3g} minutes"] if config.minutes else []
    device = choose_device(config.device)
    progress.say(
        f"{recipe.model.kind}, {count_parameters(work.model)} parameters; {work.size}; {' or '.join(limits)} on "
        f"{describe_device(device)}, {name_of_precision(recipe, device)}"
    )

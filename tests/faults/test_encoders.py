"""Pretraining and fine-tuning give the same result when killed, stopped, or split into parts or processes."""

import functools
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from encoder_recipes import PRETRAINING, WRITERS, finetuning_values, pretraining_values, save_recipe, write_examples, write_text
from interruptions import DIE_AT, KilledRun, assert_same, leftovers, results, together
from workbench import Commands, UninterruptedRun, metrics_without_times, step_reached, wait_until, weights

# Values that depend on rounding: weights that add nearly the same to the scores of all positions, whose gradient is rounding,
# and the order of nearly equal numbers.
ROUNDING = {
    "causal": {"perplexity", "dev_perplexity"},  # in the hundreds, so that absolute rounding is larger
    "answering": {
        "heads.span.output.bias",
        "encoder.layers.1.around_feedforward.norm.bias",
        "token_similarity/encoder.layers.1",  # this bias is in all states of the layer
        "text_similarity/encoder.layers.1",
    },
    "permutation": {f"encoder.layers.{layer}.attention.distance.weight" for layer in (0, 1)},
    "regression": {"dev_spearman", "dev_pearson"},
}
Made = Callable[[str], UninterruptedRun]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the text, in which recipes and runs are written under their names."""
    folder = tmp_path_factory.mktemp("encoders")
    write_text(folder / "text.txt")
    return folder


def recipe_of(kind: str, folder: Path, start: Path | None = None, **training: Any) -> Path:
    """Write a recipe of pretraining or, for one of WRITERS, of fine-tuning."""
    if kind in PRETRAINING:
        values = pretraining_values(kind, folder / "text.txt")
    else:
        values = finetuning_values(kind, write_examples(folder, kind), start)
    values["training"] = {**values["training"], **training, "keep_checkpoints": True}  # a killed run may have to finish again
    name = "-".join([kind, *(f"{key}-{value}" for key, value in training.items())])
    return save_recipe(folder / f"{name}.yaml", values)


@pytest.fixture(scope="module")
def whole(commands: Commands, folder: Path) -> Made:
    """An uninterrupted run of each kind; fine-tuning starts from a pretrained encoder."""

    @functools.cache
    def made(kind: str) -> UninterruptedRun:
        start = None if kind in PRETRAINING else made("masked").run
        recipe, run, cache = recipe_of(kind, folder, start), folder / kind, folder / "cache"
        before = time.monotonic()
        done = commands.run("train", recipe, "--out", run, QKV_CACHE=str(cache))
        assert done.code == 0, done.err
        return UninterruptedRun(recipe, run, cache, weights(run), metrics_without_times(run), 0.0, time.monotonic() - before)

    return made


@pytest.mark.parametrize("kind", ["next", "replaced", "ernie", "causal", "classification", "answering"])
def test_killed_at_random_moments(commands: Commands, whole: Made, tmp_path: Path, kind: str) -> None:
    known, rng, lives = whole(kind), random.Random(kind), KilledRun(commands, whole(kind).recipe, tmp_path)
    last = known.metrics[-1]["step"]
    started = lives.start()
    time.sleep(rng.uniform(0, known.seconds_after / 4))  # while the text is read
    lives.kill(started)
    for target in sorted(rng.sample(range(1, last), 4)):
        target = min(last, max(target, step_reached(lives.run) + 1))  # further than any start before
        started = lives.start()
        wait_until(lambda target=target: step_reached(lives.run) >= target)
        time.sleep(rng.uniform(0, 0.02))  # some updates, a validation or a checkpoint
        lives.kill(started)
    done = lives.start().result()
    assert done.code == 0, done.err
    assert known.equals(lives.run) and not leftovers(tmp_path)


@pytest.mark.parametrize("kind", ["order", "tagging"])
def test_killed_at_random_writes(commands: Commands, whole: Made, tmp_path: Path, kind: str) -> None:
    known, rng, codes = whole(kind), random.Random(kind), [-signal.SIGKILL]
    cache = {"QKV_CACHE": str(tmp_path / "cache")}
    for count in (3, 9, 15):  # the recipe, the tokenizer, the text in the cache
        done = commands.run("train", known.recipe, "--out", tmp_path / "run", first=DIE_AT.format(count=count), **cache)
        assert done.code == -signal.SIGKILL, done.err
    while codes[-1]:
        count = rng.randint(60, 160)
        done = commands.run("train", known.recipe, "--out", tmp_path / "run", first=DIE_AT.format(count=count), **cache)
        codes.append(done.code)
        assert done.code in (0, -signal.SIGKILL), done.err
    assert known.equals(tmp_path / "run") and not leftovers(tmp_path)


@pytest.mark.parametrize("kind", ["replaced", "permutation", "bidirectional", "regression"])
def test_a_signal_saves_and_the_same_command_goes_on(commands: Commands, whole: Made, tmp_path: Path, kind: str) -> None:
    known, run = whole(kind), tmp_path / "run"
    for step in (3, 8):
        started = commands.start("train", known.recipe, "--out", run, QKV_CACHE=str(known.cache))
        wait_until(lambda step=step: step_reached(run) >= step)
        started.signal(signal.SIGTERM)
        done = started.result()
        assert done.code == 143 and "Traceback" not in done.err, done.err
        assert f"saved at step {step_reached(run)}; run the same command to resume" in done.err
    assert commands.run("train", known.recipe, "--out", run, QKV_CACHE=str(known.cache)).code == 0
    assert known.equals(run)


# In parts


@pytest.mark.parametrize("kind", ["next", "ernie", "causal", *WRITERS])
def test_a_batch_in_two_parts_is_the_same_but_for_rounding(commands: Commands, folder: Path, tmp_path: Path, kind: str) -> None:
    cache = {"QKV_CACHE": str(folder / "cache")}
    for parts in (1, 2):
        recipe = recipe_of(kind, folder, None, accumulate=parts, learning_rate=0.002)
        done = commands.run("train", recipe, "--out", tmp_path / str(parts), **cache)
        assert done.code == 0, done.err
    assert_same(tmp_path / "1", tmp_path / "2", but=ROUNDING.get(kind, ()))


@pytest.mark.parametrize(("kind", "count"), [("order", 3), ("replaced", 2), ("unilm", 2), ("permutation", 3), ("tagging", 2)])
def test_several_processes_are_one(commands: Commands, folder: Path, tmp_path: Path, kind: str, count: int) -> None:
    recipe, cache = recipe_of(kind, folder, None, accumulate=1, learning_rate=0.002), folder / "cache"
    done = commands.run("train", recipe, "--out", tmp_path / "one", QKV_CACHE=str(cache))
    assert done.code == 0, done.err
    done, *others = results(together(commands, recipe, tmp_path / "several", cache, count))
    assert [done.code, *(other.code for other in others)] == [0] * count, done.err + others[0].err
    assert_same(tmp_path / "one", tmp_path / "several", but=ROUNDING.get(kind, ()))
    assert all(other.err == "" for other in others)

"""After kill -9 at any moment, the same command resumes and gives the same result."""

import random
import signal
import time
from pathlib import Path

from interruptions import DIE_AT, KilledRun, leftovers
from workbench import Commands, UninterruptedRun, step_reached, wait_until

STEPS = 60


def test_twenty_kills_at_random_moments(commands: Commands, whole: UninterruptedRun, tmp_path: Path) -> None:
    rng, lives = random.Random(20), KilledRun(commands, whole.recipe, tmp_path)
    delay = whole.seconds_before
    while lives.kills < 4:  # while text is checked, the tokenizer trained and the model made
        started = lives.start()
        time.sleep(rng.uniform(0, delay))
        lives.kill(started)
    for target in sorted(rng.sample(range(1, STEPS), 12)):
        target = min(STEPS, max(target, step_reached(lives.run) + 1))  # further than any start before
        started = lives.start()
        wait_until(lambda target=target: step_reached(lives.run) >= target)
        time.sleep(rng.uniform(0, 0.02))  # a few updates, a validation or a checkpoint
        lives.kill(started)
    delay = whole.seconds_after
    while lives.kills < 20:  # while weights are chosen and scored, and the report is written
        started = lives.start()
        wait_until((lives.run / "checkpoints" / f"step-{STEPS:08d}" / "state.json").exists)
        time.sleep(rng.uniform(0, delay))
        lives.kill(started)
        delay *= 0.9
    done = lives.start().result()
    assert done.code == 0, done.err
    assert whole.equals(lives.run) and not leftovers(tmp_path)


def test_killed_at_each_of_the_first_writes(commands: Commands, whole: UninterruptedRun, tmp_path: Path) -> None:
    run, cache = tmp_path / "run", {"QKV_CACHE": str(tmp_path / "cache")}
    for count in range(1, 31):
        done = commands.run("train", whole.recipe, "--out", run, first=DIE_AT.format(count=count), **cache)
        assert done.code == -signal.SIGKILL, f"at write {count}: {done.err}"
    assert commands.run("train", whole.recipe, "--out", run, **cache).code == 0
    assert whole.equals(run) and not leftovers(tmp_path)


def test_killed_at_random_writes(commands: Commands, whole: UninterruptedRun, tmp_path: Path) -> None:
    rng, run, cache = random.Random(1), tmp_path / "run", {"QKV_CACHE": str(tmp_path / "cache")}
    codes = []
    while not codes or codes[-1]:
        done = commands.run("train", whole.recipe, "--out", run, first=DIE_AT.format(count=rng.randint(40, 160)), **cache)
        codes.append(done.code)
        assert done.code in (0, -signal.SIGKILL), done.err
    assert len(codes) > 3
    assert whole.equals(run) and not leftovers(tmp_path)

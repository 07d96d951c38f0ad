"""kill -9 at any moment, then the same command: the run goes on and ends as if nothing had happened."""

import random
import signal
import time
from pathlib import Path

from workbench import Commands, Started, Whole, step_reached, wait_until

STEPS = 60

# Each way in which something reaches the disk counts as one; at a certain one of them, the process dies.
DIE_AT = """
import os, pathlib, shutil, signal
import qkv.base.files, qkv.training.events, qkv.training.log
left = {count}
def counted(act):
    def first(*args, **options):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return act(*args, **options)
    return first
qkv.base.files._flush = counted(qkv.base.files._flush)
qkv.training.log.append = qkv.training.events.append = counted(qkv.training.events.append)
for name in ("replace", "rename", "unlink", "mkdir", "write_text"):
    setattr(pathlib.Path, name, counted(getattr(pathlib.Path, name)))
shutil.rmtree = counted(shutil.rmtree)
"""


def leftovers(folder: Path) -> list[Path]:
    """What was begun and never finished, in the run or in the cache; a note of 32 bytes is not looked for."""
    return [path for path in folder.rglob("*.partial") if path.parent.name != "digests"]


class Lives:
    """A run that is started and killed again and again."""

    def __init__(self, commands: Commands, recipe: Path, folder: Path):
        self.commands, self.recipe, self.run, self.cache = commands, recipe, folder / "run", folder / "cache"
        self.kills = 0

    def start(self) -> Started:
        return self.commands.start("train", self.recipe, "--out", self.run, QKV_CACHE=str(self.cache))

    def kill(self, started: Started) -> None:
        started.signal(signal.SIGKILL)
        done = started.result()
        self.kills += done.code == -signal.SIGKILL
        assert done.code in (0, -signal.SIGKILL), done.err
        # A run that came to its end before the kill must come to its end once more.
        (self.run / "result.json").unlink(missing_ok=True)


def test_twenty_kills_at_random_moments(commands: Commands, whole: Whole, tmp_path: Path) -> None:
    rng, lives = random.Random(20), Lives(commands, whole.recipe, tmp_path)
    delay = whole.seconds_before
    while lives.kills < 4:  # while text is checked, the tokenizer trained and the model made
        started = lives.start()
        time.sleep(rng.uniform(0, delay))
        lives.kill(started)
    for target in sorted(rng.sample(range(1, STEPS), 12)):
        target = min(STEPS, max(target, step_reached(lives.run) + 1))  # no life before this one has come so far
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


def test_killed_at_each_of_the_first_writes(commands: Commands, whole: Whole, tmp_path: Path) -> None:
    run, cache = tmp_path / "run", {"QKV_CACHE": str(tmp_path / "cache")}
    for count in range(1, 31):
        done = commands.run("train", whole.recipe, "--out", run, first=DIE_AT.format(count=count), **cache)
        assert done.code == -signal.SIGKILL, f"at write {count}: {done.err}"
    assert commands.run("train", whole.recipe, "--out", run, **cache).code == 0
    assert whole.equals(run) and not leftovers(tmp_path)


def test_killed_at_random_writes(commands: Commands, whole: Whole, tmp_path: Path) -> None:
    rng, run, cache = random.Random(1), tmp_path / "run", {"QKV_CACHE": str(tmp_path / "cache")}
    codes = []
    while not codes or codes[-1]:
        done = commands.run("train", whole.recipe, "--out", run, first=DIE_AT.format(count=rng.randint(40, 160)), **cache)
        codes.append(done.code)
        assert done.code in (0, -signal.SIGKILL), done.err
    assert len(codes) > 3
    assert whole.equals(run) and not leftovers(tmp_path)

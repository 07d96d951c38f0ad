"""Workers and rounds: the protocol, whose turn it is, and systems that fail."""

from pathlib import Path

import pytest

from qkv.bench.measure import Measurement, WorkerError, WorkerProcess, measure_losses, measure_rounds
from qkv.bench.systems import System
from qkv.bench.workload import SIZES, caption_pairs, length_batches, write_job

# A system that needs neither torch nor qkv: it writes its name into a diary at each update, and prints as libraries do.
FAKE = """
import os
from pathlib import Path

class Fake:
    version = "fake 1.0"
    def __init__(self, job):
        self.job = job
        print("a library says hello")
    def update(self, batch, rate):
        pass
    def train(self, turns):
        while turns.more():
            {trouble}
            with (Path(self.job.folder) / "diary").open("a") as diary:
                diary.write(self.job.options["name"])
            turns.count(100)

def make(job):
    return Fake(job)
"""
FINE, RAISES, DIES = "pass", "raise ValueError('no such\\n kernel')", "os.write(2, b'it hurts\\n'); os._exit(3)"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    pairs = caption_pairs(200, 50, seed=1)
    batches = length_batches(pairs, 64, 2, seed=1)
    write_job(tmp_path, pairs, batches, kind="speed", size=SIZES["tiny"], device="cpu", seed=1, peak=1e-3, warmup=2)
    return tmp_path


def fake(job: Path, name: str, trouble: str = FINE) -> System:
    path = job / f"{name}.py"
    path.write_text(FAKE.format(trouble=trouble))
    return System(name, str(path), {"precision": "float32", "name": name})


def quiet(what: str) -> None:
    pass


def test_a_worker_answers_command_by_command(job: Path) -> None:
    worker = WorkerProcess(fake(job, "A"), job)
    try:
        assert worker.wait_until_ready() == "fake 1.0"
        answers = [worker.send(updates=2), worker.send(updates=3)]
    finally:
        worker.close()
    assert all(answer["rate"] > 0 and answer["memory"] > 1 << 20 for answer in answers)
    assert (job / "diary").read_text() == "AAAAA"
    assert worker.process.returncode == 0


def test_systems_take_turns(job: Path) -> None:
    found = [Measurement(fake(job, name)) for name in "ABC"]
    measure_rounds(found, job, {"": {"updates": 2}}, 2, {"updates": 1}, quiet)
    assert (job / "diary").read_text() == "ABC" + "AABBCC" * 2
    assert [len(m.rates[""]) for m in found] == [2, 2, 2]
    assert all(m.memory[""] > 0 and not m.error and m.version == "fake 1.0" for m in found)


@pytest.mark.parametrize(("trouble", "told"), [(RAISES, "ValueError: no such kernel"), (DIES, "ended with code 3: it hurts")])
def test_one_that_fails_says_why_and_the_others_go_on(job: Path, trouble: str, told: str) -> None:
    found = [Measurement(fake(job, "A")), Measurement(fake(job, "B", trouble)), Measurement(fake(job, "C"))]
    measure_rounds(found, job, {"": {"updates": 1}}, 2, {}, quiet)
    assert found[1].error == told
    assert not found[1].rates
    assert (job / "diary").read_text() == "AC" * 3


def test_one_that_cannot_start_says_why(job: Path) -> None:
    broken = job / "broken.py"
    broken.write_text("import no_such_package")
    worker = WorkerProcess(System("broken", str(broken), {"precision": "float32"}), job)
    with pytest.raises(WorkerError, match=r"^ModuleNotFoundError: No module named 'no_such_package'$"):
        worker.wait_until_ready()
    worker.close()


def test_losses_come_update_by_update(tmp_path: Path) -> None:
    pairs = caption_pairs(50, 50, seed=1)
    facts = {"kind": "curve", "size": SIZES["tiny"], "device": "cpu", "seed": 1, "peak": 1.0, "warmup": 2}
    write_job(tmp_path, pairs, length_batches(pairs, 64, 8, seed=1), **facts)
    path = tmp_path / "rates.py"
    path.write_text("class S:\n  version = ''\n  def update(self, batch, rate): return rate\nmake = lambda job: S()\n")
    found = [Measurement(System("rates", str(path), {"precision": "float32"}, learns=True))]
    measure_losses(found, tmp_path, quiet)
    assert found[0].losses[:2] == [0.5, 1.0]
    assert found[0].losses[7] == 0.5, "the rate falls with the square root of the updates"

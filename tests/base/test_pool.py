"""A pool does every task once, whatever dies."""

import sys
from pathlib import Path
from typing import Any

import pytest

from qkv.base.errors import ConfigError, QkvError, QkvWarning
from qkv.base.pool import LocalWorkers, TaskResult, run_tasks

WORK = Path(__file__).parents[1] / "distributed"  # the folder of pool_work.py


@pytest.fixture(autouse=True)
def _workers_find_their_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(WORK))


def run(folder: Path, tasks: list[dict[str, Any]], count: int = 2, **setup: Any) -> list[TaskResult]:
    workers = LocalWorkers("pool_work:counting", {"folder": str(folder), **setup})
    return list(run_tasks(workers, count, tasks))


def test_each_task_is_done_once_and_warnings_are_given_once(tmp_path: Path) -> None:
    with pytest.warns(QkvWarning, match="set up") as warned:
        found = run(tmp_path, [{"number": number} for number in range(20)])
    assert sorted(one.task for one in found) == list(range(20))
    assert all(one.result["square"] == one.task**2 for one in found)
    assert len(warned) == 1
    assert {path.read_text() for path in tmp_path.iterdir()} == {"x"}


@pytest.mark.filterwarnings("ignore:set up")
@pytest.mark.needs_fork
def test_a_worker_that_dies_is_replaced_and_its_task_done_again(tmp_path: Path) -> None:
    found = {one.task: one for one in run(tmp_path, [{"number": n, "deaths": {2: 2, 5: 9}.get(n, 0)} for n in range(8)])}
    assert sorted(found) == list(range(8))
    assert {task for task, one in found.items() if one.lost} == {5}  # it kills whoever does it
    assert "3 workers died at it (killed by signal 9; is there enough memory?)" in found[5].lost
    assert found[2].result["square"] == 4
    assert (tmp_path / "2").read_text() == (tmp_path / "5").read_text() == "xxx"


def test_an_error_of_the_set_up_ends_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such model"):
        run(tmp_path, [{"number": 1}], refuse=True)


@pytest.mark.filterwarnings("ignore:set up")
def test_a_bug_is_shown_with_its_traceback(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError: a bug"):
        run(tmp_path, [{"number": 1, "bug": True}])


def test_workers_that_cannot_start_are_not_tried_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(QkvError, match="3 workers died before they did anything: exit code 1"):
        run(tmp_path, [{"number": 1}])

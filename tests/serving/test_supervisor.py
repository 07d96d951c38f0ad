"""What the supervisor does when processes cannot be started, or a change comes while it stops."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from qkv.base.errors import ConfigError
from qkv.serving.service_config import ServiceConfig
from qkv.serving.supervisor import Supervisor

FAILURES = [OSError("too many open files"), ConfigError("a new process ended before it was ready")]


class BareSupervisor(Supervisor):
    """A supervisor whose processes fail at first, one after another, and are objects without a process."""

    def __init__(self) -> None:
        self.config, self.stopping, self.failures = ServiceConfig(models={"la": "folder"}), False, list(FAILURES)
        self.template: Any = SimpleNamespace(ended=asyncio.Event())
        self.workers, self.processes = [], set()
        self.changing, self.switching = asyncio.Lock(), asyncio.Lock()
        self.metrics: Any = SimpleNamespace(
            replaced=SimpleNamespace(inc=lambda: None), workers=SimpleNamespace(set=lambda count: None)
        )

    async def _start_worker(self, template: Any) -> Any:
        self._fail()
        ready = asyncio.get_running_loop().create_future()
        ready.set_result({})
        return SimpleNamespace(ready=ready, pid=1)

    async def change(self, update: Callable[[ServiceConfig], ServiceConfig]) -> None:
        self._fail()
        self.template = SimpleNamespace(ended=asyncio.Event())

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in ("SHORT_LIFE", "NEXT_TRY"):
        monkeypatch.setattr(f"qkv.serving.supervisor.{pause}", 0.0)


def run(work: Callable[[BareSupervisor], Coroutine[Any, Any, None]]) -> None:
    async def all_of_it() -> None:
        await work(BareSupervisor())

    asyncio.run(all_of_it())


def test_a_worker_that_cannot_be_started_is_tried_again() -> None:
    async def replace(supervisor: BareSupervisor) -> None:
        dead: Any = SimpleNamespace(started=0.0)
        await supervisor._replace(dead)
        assert len(supervisor.workers) == 1 and not supervisor.failures

    run(replace)


def test_a_template_that_cannot_be_loaded_is_tried_again() -> None:
    async def replace(supervisor: BareSupervisor) -> None:
        dead = supervisor.template
        await supervisor._replace_template(dead)
        assert supervisor.template is not dead and not supervisor.failures

    run(replace)


def test_a_change_that_waits_for_another_does_not_begin_in_a_service_that_stops() -> None:
    async def change(supervisor: BareSupervisor) -> None:
        await supervisor.changing.acquire()
        waiting = asyncio.create_task(Supervisor.change(supervisor, lambda config: config))
        await asyncio.sleep(0)
        supervisor.stopping = True
        supervisor.changing.release()
        with pytest.raises(ConfigError, match="is stopping"):
            await waiting

    run(change)

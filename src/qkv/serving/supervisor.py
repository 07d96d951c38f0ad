"""The supervisor of a service: it starts worker processes, replaces dead ones, and moves all of them to a new config at once.

It loads no model and imports no torch. A change of the config makes a new template (worker_process.py) and new workers; only when
all of them are ready do the old ones stop accepting, finish their requests and end. If anything fails, the new ones end instead.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prometheus_client.multiprocess import mark_process_dead

from qkv.base.errors import ConfigError, QkvError
from qkv.serving.downloads import PREFIX
from qkv.serving.metrics import SupervisorMetrics, share_metrics
from qkv.serving.process import Process
from qkv.serving.service_config import ServiceConfig, check_change, with_model, without_model
from qkv.serving.shared_limits import SharedLimits
from qkv.serving.temporary_folder import make_temporary_folder
from qkv.serving.worker_process import NEW_TEMPLATE, NEW_WORKER, Inherited, run_process

log = logging.getLogger("qkv.serving")
NUMBERS = 4  # for each worker, since old workers that finish their requests have a number too
PATIENCE = 15.0  # seconds beyond a request's time limit until a worker that stops is killed
NEXT_TRY = 10.0  # seconds until a template that could not be loaded is loaded again
SHORT_LIFE = 2.0  # seconds; a worker that ends sooner is replaced after a pause of as long
MEMORY = Path("/dev/shm")  # metrics lie in memory where they can, so that a full disk stops nobody


class Supervisor:
    """The processes of a service, and its config."""

    def __init__(self, config: ServiceConfig, read_config: Callable[[], ServiceConfig], listening: socket.socket):
        self.config, self.read_config = config, read_config
        self.folder = str(make_temporary_folder("qkv-serve-metrics-", MEMORY if os.access(MEMORY, os.W_OK) else None))
        self.downloads = str(make_temporary_folder(PREFIX))
        share_metrics(self.folder, "supervisor")
        self.metrics = SupervisorMetrics()
        self.inherited = Inherited(listening, SharedLimits(NUMBERS * config.workers), self.folder, self.downloads)
        self.template: Process | None = None
        self.workers: list[Process] = []  # that serve the config
        self.processes: set[Process] = set()  # all that have not ended
        self.described: list[str] = []  # a line for each model that is served
        self.time_limit = 240.0  # seconds after which every request is answered or given up
        self.stopping = False
        self.changing, self.switching = asyncio.Lock(), asyncio.Lock()
        self.tasks: set[asyncio.Task[Any]] = set()

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then let the workers answer what they have accepted, and return."""
        loop, stop = asyncio.get_running_loop(), asyncio.Event()

        def ask_to_stop() -> None:
            if stop.is_set():  # for the second time
                for process in self.processes:
                    process.kill()
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ask_to_stop)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._spawn(self._try(self.reload)))
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children end by closing their channel; nobody waits for them
        try:
            first = self._spawn(self.change(lambda config: config))
            await asyncio.wait({first, self._spawn(stop.wait())}, return_when=asyncio.FIRST_COMPLETED)
            if first.done():
                first.result()
                host, port = self.inherited.listening.getsockname()[:2]
                log.info("qkv listens on http://%s:%d", f"[{host}]" if ":" in host else host, port)
                await stop.wait()
        finally:
            await self._stop()
            for folder in (self.folder, self.downloads):
                shutil.rmtree(folder, ignore_errors=True)

    async def reload(self) -> None:
        """Read the config, the files of keys, and folders with new files again."""

        def again(_: ServiceConfig) -> ServiceConfig:
            new = self.read_config()
            check_change(self.config, new)
            return new

        await self.change(again)

    async def change(self, update: Callable[[ServiceConfig], ServiceConfig]) -> None:
        """Move all workers to a new config; if that fails, all stay with the old one.

        It returns when every request that begins from now on is answered by the new workers.
        """
        async with self.changing:
            if self.stopping:
                raise ConfigError("the service is stopping")
            config = update(self.config)
            template = await self._start(NEW_TEMPLATE, self.template, config.model_dump(mode="json"))
            try:
                time_limit = (await template.ready)["time_limit"]
                async with self.switching:
                    fresh = await self._start_all(template, config.workers)
                    old, old_template = self.workers, self.template
                    self.workers, self.template, self.config, self.time_limit = fresh, template, config, time_limit
            except BaseException:
                template.kill()
                self.metrics.changes.labels("failed").inc()
                raise
            if old_template is not None:
                old_template.close()
            described = fresh[0].ready.result()["models"]
            for line in described:
                if line not in self.described:
                    log.info("%s", line)
            self.described = described
            self._tell_all()
            for worker in old:
                self._spawn(self._stop_worker(worker, "replaced"))
            await asyncio.gather(*(worker.drained.wait() for worker in old))
            self.metrics.changes.labels("done").inc()

    async def _start_all(self, template: Process, count: int) -> list[Process]:
        """Start workers, and return them when all are ready; if one fails, all end."""
        workers = [await self._start_worker(template) for _ in range(count)]
        try:
            await asyncio.gather(*(worker.ready for worker in workers))
        except BaseException:
            for worker in workers:  # some may have accepted requests
                self._spawn(self._stop_worker(worker, "replaced"))
            raise
        return workers

    async def _start_worker(self, template: Process) -> Process:
        while not (free := set(range(self.inherited.limits.processes)) - {each.number for each in self.processes}):
            await asyncio.sleep(0.1)
        return await self._start(NEW_WORKER, template, {"number": min(free)}, min(free))

    async def _start(self, kind: bytes, parent: Process | None, first: dict[str, Any], number: int | None = None) -> Process:
        """Let a template fork, or fork here where there is none, and send the new process its first message."""
        ours, theirs = socket.socketpair()
        with theirs:
            if parent is not None and not parent.ended.is_set():
                with contextlib.suppress(OSError):  # the parent has just died, and the new process ends with its channel
                    socket.send_fds(parent.channel, [kind], [theirs.fileno()])
            elif os.fork() == 0:
                signal.set_wakeup_fd(-1)  # else signals to the fork would wake this process
                for process in self.processes:  # else they would not notice that this process ends
                    process.channel.close()
                ours.close()
                run_process(self.inherited, theirs)
        process = Process(ours, number)
        self.processes.add(process)
        await process.connect()
        process.send(**first)
        self._spawn(self._watch(process))
        return process

    async def _watch(self, process: Process) -> None:
        """Answer what a process asks until it ends; replace it if it should not have ended."""
        async for question in process.questions():
            self._spawn(self._answer(process, question))
        self.processes.discard(process)
        if process.number is not None:
            self.inherited.limits.forget_process(process.number)
            mark_process_dead(str(process.number), self.folder)
        if process in self.workers:
            self.workers.remove(process)
            self._tell_all()
        elif process is not self.template:
            return
        if not self.stopping:
            kind = "the template" if process is self.template else "a worker"
            log.error("%s (process %d) has ended; another takes its place", kind, process.pid)
            await (self._replace_template(process) if process is self.template else self._replace(process))

    async def _replace_template(self, dead: Process) -> None:
        """Load another template, and start its workers, until that succeeds."""
        while not self.stopping and dead is self.template:
            if await self._try(lambda: self.change(lambda config: config)):
                await asyncio.sleep(NEXT_TRY)

    async def _replace(self, dead: Process) -> None:
        """Start a worker in the place of a dead one, until one is there."""
        self.metrics.replaced.inc()
        pause = SHORT_LIFE if time.monotonic() - dead.started < SHORT_LIFE else 0.0
        while True:
            await asyncio.sleep(pause)
            pause = SHORT_LIFE
            async with self.switching:
                enough = len(self.workers) >= self.config.workers  # a change has started all of them
                if self.stopping or enough or self.template is None or self.template.ended.is_set():
                    return
                try:
                    worker = await self._start_worker(self.template)
                    await worker.ready
                except (QkvError, OSError) as error:
                    log.error("no worker could be started, which is tried again: %s", error)
                    continue
                self.workers.append(worker)
                self._tell_all()
                log.info("a new worker (process %d) serves", worker.pid)
                return

    async def _answer(self, process: Process, question: dict[str, Any]) -> None:
        """Do what an administrator asks of a worker, and answer it."""
        number, what = question.pop("asks"), question.pop("what")
        changes: dict[str, Callable[..., ServiceConfig]] = {"add": with_model, "remove": without_model}
        failure = {}
        if what == "reload":
            failure = await self._try(self.reload)
        elif what in changes:
            failure = await self._try(lambda: self.change(lambda config: changes[what](config, **question)))
        config = self.config
        models, adapters = ({name: str(Path(each[name]).resolve()) for name in each} for each in (config.models, config.adapters))
        process.send(answers=number, served={"models": models, "adapters": adapters}, **failure)

    async def _try(self, change: Callable[[], Any]) -> dict[str, Any]:
        """Make a change; if it failed, return the reason, and whether that is a fault of qkv."""
        try:
            await change()
        except QkvError as error:
            if self.stopping:
                return {"failed": "the service is stopping"}
            log.error("nothing has changed, the service goes on as before: %s", error)
            return {"failed": str(error)}
        except Exception as error:
            where = "".join(traceback.format_tb(error.__traceback__))
            log.error("a change failed, an error of qkv itself: %s: %s\n%s", type(error).__name__, error, where)
            return {"failed": "an error of qkv itself", "fault": True}
        log.info("all %d workers have changed", self.config.workers)
        return {}

    async def _stop_worker(self, worker: Process, why: str) -> None:
        """Let a worker finish its requests, and kill it if that takes too long."""
        worker.send(stop=why)
        try:
            async with asyncio.timeout(self.time_limit + PATIENCE):
                await worker.ended.wait()
        except TimeoutError:
            worker.kill()

    async def _stop(self) -> None:
        self.stopping = True
        workers = [process for process in self.processes if process.number is not None]
        # Nobody else may hold the listening socket when workers close it: a connection that nobody accepts would wait in vain.
        for template in self.processes.difference(workers):
            template.kill()
            await template.ended.wait()
        self.inherited.listening.close()
        await asyncio.gather(*(self._stop_worker(worker, "stopping") for worker in workers))
        for task in self.tasks - {asyncio.current_task()}:
            task.cancel()

    def _tell_all(self) -> None:
        """Tell all workers, and the metrics, how many serve."""
        self.metrics.workers.set(len(self.workers))
        for process in self.processes:
            if process.number is not None:
                process.send(alive=len(self.workers))

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task


def supervise(config: ServiceConfig, read_config: Callable[[], ServiceConfig], listening: socket.socket) -> None:
    """Serve a config from several processes until a signal stops them."""

    async def run() -> None:
        await Supervisor(config, read_config, listening).run()

    asyncio.run(run())

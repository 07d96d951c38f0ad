"""Workers of a pool as actors of a Ray cluster: the one that RAY_ADDRESS names, or one that starts here for one command.

Ray sends arguments and results between its processes in its own way; ours are texts of JSON.
"""

import json
import logging
import os
import re
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any

from qkv.base.errors import ConfigError, QkvError
from qkv.base.hardware import cpu_cores
from qkv.base.pool import WorkerEvent
from qkv.base.worker import Work, answer, set_up

SAY_AFTER = 60  # seconds without a worker until a line says that the cluster has none to give
GIVE_UP_AFTER = 600  # seconds without a replacement for any of the workers, all of which have died
REACHABLE = 10  # seconds to wait for an answer from the address of a cluster


class RayWorker:
    """The class of the actors."""

    def __init__(self, first_line: str):
        self.first_line = first_line
        self.work: Work | None = None

    def begin(self) -> str:
        """Set the work up."""

        def begin() -> None:
            self.work = set_up(self.first_line)

        return answer(begin)

    def do(self, task: str) -> str:
        """Do a task."""
        return answer(lambda: self.work and self.work(**json.loads(task)))


class RayWorkers:
    """Workers on a Ray cluster, one CPU each; with `gpus`, one GPU each; `variables` are added to their environment."""

    def __init__(self, work: str, setup: dict[str, Any], gpus: bool = False, variables: Mapping[str, str] | None = None):
        self.ray = connect()
        options: dict[str, Any] = {"num_cpus": 1, "num_gpus": 1 if gpus else 0, "max_restarts": 0}
        if variables:
            options["runtime_env"] = {"env_vars": dict(variables)}
        self.actor = self.ray.remote(RayWorker).options(**options)
        self.first_line = json.dumps({"work": work, "setup": setup})
        self.actors: dict[int, Any] = {}
        self.awaited: dict[Any, int] = {}  # worker of each answer that is to come
        self.started = 0
        self.ready: set[int] = set()  # workers that have answered
        self.resource = "GPU" if gpus else "CPU"

    def start(self) -> int:
        worker = self.started
        self.started += 1
        self.actors[worker] = self.actor.remote(self.first_line)
        self.awaited[self.actors[worker].begin.remote()] = worker
        return worker

    def send(self, worker: int, task: str) -> None:
        self.awaited[self.actors[worker].do.remote(task)] = worker

    def wait(self) -> list[WorkerEvent]:
        done: list[Any] = []
        began, said = time.monotonic(), False
        while not done:
            done, _ = self.ray.wait(list(self.awaited), timeout=1)
            if self.ready & {*self.awaited.values()}:  # at work
                continue
            waited = time.monotonic() - began
            if not done and self.ready and waited > GIVE_UP_AFTER:
                raise QkvError(
                    f"all workers of the Ray cluster died, and it had no free {self.resource} for others in {waited / 60:.0f} "
                    "minutes; run the same command again when it has some: what is done is kept"
                )
            if not (done or said) and waited > SAY_AFTER:
                print(f"qkv: waiting for a free {self.resource} of the Ray cluster", file=sys.stderr)
                said = True
        return [self._event(answered) for answered in done]

    def close(self) -> None:
        for actor in self.actors.values():
            self.ray.kill(actor)

    def _event(self, answered: Any) -> WorkerEvent:
        worker = self.awaited.pop(answered)
        try:
            event = WorkerEvent(worker, self.ray.get(answered))
            self.ready.add(worker)
            return event
        except self.ray.exceptions.RayError as error:
            # One that cannot be reached may still be alive; what it writes after this is what its successor writes too.
            self.ray.kill(self.actors.pop(worker))
            return WorkerEvent(worker, None, " ".join(str(error).split())[:200])


def connect() -> Any:
    """Return the package ray, connected to a cluster; start one here if RAY_ADDRESS names none."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise ConfigError("--on ray needs ray: pip install 'qkv[cluster]'; or leave --on out to work on this machine") from None
    if ray.is_initialized():
        return ray
    address = os.environ.get("RAY_ADDRESS")
    here: dict[str, Any] = {} if address else {"num_cpus": cpu_cores(), "include_dashboard": False}
    try:
        if address and (found := re.fullmatch(r"(?:ray://)?\[?(.+?)\]?:(\d+)", address)):
            # Ray itself would try for minutes.
            socket.create_connection((found[1], int(found[2])), timeout=REACHABLE).close()
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **here)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"no Ray cluster at {address or 'this machine'}: {reason}; check RAY_ADDRESS") from None
    return ray


def cluster_size(gpus: bool) -> int:
    """Return the number of CPUs of the cluster, or of its GPUs."""
    return int(connect().cluster_resources().get("GPU" if gpus else "CPU", 0))

"""The processes that a supervisor starts: templates, which load the models of one config and fork, and workers, which serve.

Workers are forks of a template, so all of them have its pages of memory: weights, decoding weights, tokenizers. A template
computes on one thread and has no event loop, since a fork copies only the thread that forks. The template of the next config is
a fork too, and loads only what differs.
"""

import contextlib
import gc
import logging
import os
import signal
import socket
import traceback
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from qkv.base.errors import ConfigError, QkvError
from qkv.serving.admission import LONGEST
from qkv.serving.metrics import share_metrics
from qkv.serving.server import serve
from qkv.serving.service_config import ServiceConfig
from qkv.serving.shared_limits import SharedLimits
from qkv.serving.supervisor_link import SupervisorLink, read_message, write_message
from qkv.serving.temporary_folder import delete_if_last
from qkv.serving.worker_server import WorkerServer

log = logging.getLogger("qkv.serving")
NEW_WORKER, NEW_TEMPLATE = b"w", b"t"  # what a template is asked to fork; the new process's channel comes with it


class Inherited(NamedTuple):
    """What all processes of a service inherit from its supervisor."""

    listening: socket.socket
    limits: SharedLimits
    metrics: str  # folder of the metrics that all processes share
    downloads: str  # folder of translated files, unless the settings name one


def run_process(inherited: Inherited, channel: socket.socket) -> NoReturn:
    """Be the first template, then whatever the forks of it are asked to be; never returns."""
    code = 1
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # the supervisor says when to end
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for forks of a template
        template = Template(inherited, channel)
        while not template.asked_for_worker():
            pass
        template.work()
        code = 0
    except QkvError as error:
        _report(template.channel, str(error))
    except Exception as error:
        log.error("%s in a process:\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
        _report(template.channel, f"an error of qkv itself ({type(error).__name__}); the log says where")
    finally:
        os._exit(code)


def _report(channel: socket.socket, failed: str) -> None:
    with contextlib.suppress(OSError):  # nobody may be there to read it
        channel.setblocking(True)
        write_message(channel, failed=failed)


class Template:
    """A process that has loaded what its forks share."""

    def __init__(self, inherited: Inherited, channel: socket.socket):
        self.inherited, self.channel = inherited, channel
        self.loaded: dict[Any, Any] = {}  # models by group
        self.threads = 0  # that computations of all workers together use
        self.loading = True

    def asked_for_worker(self) -> bool:
        """Load what the config names, if it is new, and wait; return in a fork: whether it is a worker, or else a template."""
        if self.loading:
            self.load()
            self.loading = False
        data, descriptors, _, _ = socket.recv_fds(self.channel, 1, 1)
        if not data:  # the supervisor has ended, or needs this template no more
            os._exit(0)
        if os.fork():
            os.close(descriptors[0])
            return False
        self.channel.close()
        self.channel = socket.socket(fileno=descriptors[0])
        self.loading = data == NEW_TEMPLATE
        return data == NEW_WORKER

    def load(self) -> None:
        """Load the models of a config that forks can share, try them, and tell the supervisor."""
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads would not be there after a fork
        write_message(self.channel, pid=os.getpid())
        self.config = ServiceConfig.model_validate(read_message(self.channel))
        self.config.settings()  # before the long work
        self.groups = self._groups()
        import torch

        import qkv.serving.app  # noqa: F401  (forks need not import it)

        self.threads = self.threads or torch.get_num_threads()
        torch.set_num_threads(1)
        device_type = _device_type(self.config.device)
        settings = self.config.settings(device_type)
        self.settings = settings.model_copy(update={"downloads": settings.downloads or self.inherited.downloads})
        # Models that are replaced leave the memory before others enter it.
        self.loaded = {group: self.loaded[group] for group in self.groups if group in self.loaded}
        for group in self.groups:
            if group not in self.loaded and device_type == "cpu" and group.can_be_shared:
                self.loaded[group] = group.load()
        gc.collect()
        gc.freeze()  # the collector of a fork does not touch, and so copy, pages of what is here now
        write_message(self.channel, ready=True, time_limit=LONGEST * self.settings.time_limit)

    def _groups(self) -> list[Any]:
        from qkv.serving.registry import model_groups

        c = self.config
        models, adapters = ([(name, Path(folder)) for name, folder in each.items()] for each in (c.models, c.adapters))
        return model_groups(models, adapters, c.device, c.engine, c.precision)

    def work(self) -> None:
        """Serve as a worker until the supervisor says to stop, or ends."""
        import torch

        from qkv.serving.app import create_app
        from qkv.serving.registry import ModelRegistry

        number = read_message(self.channel).get("number")
        if number is None:
            return
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(each, signal.SIG_DFL)
        write_message(self.channel, pid=os.getpid())
        torch.set_num_threads(max(1, self.threads // self.config.workers))
        torch.seed()
        models = [model for group in self.groups for model in self.loaded.get(group) or group.load()]
        self.inherited.limits.process = number
        share_metrics(self.inherited.metrics, str(number))
        link = SupervisorLink(self.channel, self.config.workers)
        app = create_app(ModelRegistry(models, self.config.languages), self.settings, self.inherited.limits, link)
        serve(WorkerServer(app, link), self.inherited.listening)
        if not link.alive:  # the supervisor was killed
            for folder in (self.inherited.metrics, self.inherited.downloads):
                delete_if_last(Path(folder))  # other workers may still answer


def _device_type(device: str) -> str:
    """Return cpu or cuda; a fork finds out, since CUDA does not work in forks of a process that has looked for GPUs."""
    from qkv.base.hardware import choose_device

    ours, theirs = socket.socketpair()
    with ours, theirs:
        if os.fork() == 0:
            try:
                write_message(theirs, found=choose_device(device).type)
            except QkvError as error:
                write_message(theirs, failed=str(error))
            finally:
                os._exit(0)
        theirs.close()
        answer = read_message(ours)
    if "found" not in answer:
        raise ConfigError(answer.get("failed", "looking for GPUs ended the process that did it; give --device cpu or cuda"))
    return answer["found"]

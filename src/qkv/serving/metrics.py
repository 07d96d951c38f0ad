"""Prometheus metrics of the service, in a registry of their own, or in files that all processes of a service share."""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, values
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client.multiprocess import MultiProcessCollector

__all__ = ["CONTENT_TYPE", "Metrics", "SupervisorMetrics", "share_metrics"]

log = logging.getLogger("qkv.serving")
SHARED = "PROMETHEUS_MULTIPROC_DIR"  # the client library's name

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)

# Without this call the client adds a `_created` series to every counter and histogram.
prometheus_client.disable_created_metrics()


def share_metrics(folder: str, process: str) -> None:
    """Keep the metrics that are made from now on in files of a folder, by the name of this process.

    A process that ends leaves its counts there. The next one of the same name continues them, so two that live at the same time
    need different names.
    """
    os.environ[SHARED] = folder
    values.ValueClass = values.MultiProcessValue(lambda: process)


class SupervisorMetrics:
    """Metrics of the processes of a service."""

    def __init__(self) -> None:
        own = CollectorRegistry()
        self.workers = Gauge("qkv_workers", "Worker processes that serve.", registry=own, multiprocess_mode="livesum")
        self.replaced = Counter("qkv_workers_replaced_total", "Workers that ended by themselves.", registry=own)
        self.changes = Counter("qkv_changes_total", "Changes of models, keys or limits, by result.", ["result"], registry=own)


class Metrics:
    """Counters, histograms and gauges of one service; every method may be called from any thread.

    What cannot be counted, as when the files of shared metrics are gone, is left out: serving goes on.
    """

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        self.requests = Counter("qkv_requests_total", "Requests answered, by path and status.", ["path", "status"], registry=own)
        self.seconds = Histogram(
            "qkv_request_seconds", "Time from a request to its response.", ["path"], buckets=SECONDS, registry=own
        )
        self.refused = Counter(
            "qkv_refused_total", "Requests that a model did not take on, by the error's code.", ["model", "reason"], registry=own
        )
        self.batch_sizes = Histogram(
            "qkv_batch_units", "Pieces of text computed together.", ["model"], buckets=SIZES, registry=own
        )
        self.computing = Counter("qkv_compute_seconds_total", "Time spent computing.", ["model"], registry=own)
        self.prompt_tokens = Counter(
            "qkv_prompt_tokens_total", "Tokens of prompts, sources and other texts that were read.", ["model"], registry=own
        )
        self.generated_tokens = Counter(
            "qkv_generated_tokens_total", "Tokens of completions and translations.", ["model"], registry=own
        )
        self.active = Gauge(
            "qkv_requests_inside",
            "Requests that wait or are being computed.",
            ["model"],
            registry=own,
            multiprocess_mode="livesum",
        )
        self.waiting = Gauge(
            "qkv_units_waiting", "Pieces of text that wait.", ["model"], registry=own, multiprocess_mode="livesum"
        )
        self.incomplete = False  # whether something could not be counted
        self.queues: list[tuple[str, Callable[[], float], Callable[[], float]]] = []

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count a finished request."""
        with self._counting():
            self.requests.labels(path, status).inc()
            self.seconds.labels(path).observe(seconds)

    def count_refusal(self, model: str, reason: str) -> None:
        """Count a request that a model did not take on; the reason is the code of its error."""
        with self._counting():
            self.refused.labels(model, reason).inc()

    def count_generated(self, model: str, tokens: int) -> None:
        """Count tokens that were handed on, in a stream or in a result."""
        with self._counting():
            self.generated_tokens.labels(model).inc(tokens)

    def count_batch(self, model: str, size: int, prompt_tokens: int, seconds: float) -> None:
        """Count a computed batch; the tokens are those of texts that are done."""
        with self._counting():
            self.batch_sizes.labels(model).observe(size)
            self.prompt_tokens.labels(model).inc(prompt_tokens)
            self.computing.labels(model).inc(seconds)

    def watch_queue(self, model: str, active: Callable[[], float], waiting: Callable[[], float]) -> None:
        """Read a model's queue at every `refresh`: its active requests and its waiting items."""
        self.queues.append((model, active, waiting))

    def refresh(self) -> None:
        """Set the metrics of queues to what is in them now."""
        with self._counting():
            for model, active, waiting in self.queues:
                self.active.labels(model).set(active())
                self.waiting.labels(model).set(waiting())

    def text(self) -> str:
        """Return all metrics in Prometheus' text format, of all processes if they share them."""
        self.refresh()
        registry = self.registry
        if SHARED in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry, os.environ[SHARED])
        return prometheus_client.generate_latest(registry).decode()

    @contextlib.contextmanager
    def _counting(self) -> Iterator[None]:
        """Go on where the files of shared metrics cannot be written; the log says so once."""
        try:
            yield
        except OSError as error:
            if not self.incomplete:
                log.warning("metrics are incomplete, their files cannot be written: %s", error.strerror or error)
            self.incomplete = True

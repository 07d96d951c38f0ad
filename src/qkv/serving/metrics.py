"""Prometheus metrics of the service, in a registry of their own."""

from collections.abc import Callable

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE

__all__ = ["CONTENT_TYPE", "Metrics"]

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)

# Without this call the client adds a `_created` series to every counter and histogram.
prometheus_client.disable_created_metrics()


class Metrics:
    """Counters, histograms and gauges of one service; every method may be called from any thread."""

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        self.requests = Counter("qkv_requests_total", "Requests answered, by path and status.", ["path", "status"], registry=own)
        self.seconds = Histogram(
            "qkv_request_seconds", "Time from a request to its response.", ["path"], buckets=SECONDS, registry=own
        )
        self.refused = Counter("qkv_refused_total", "Requests refused because the queue was full.", ["model"], registry=own)
        self.batch_sizes = Histogram(
            "qkv_batch_units", "Pieces of text computed together.", ["model"], buckets=SIZES, registry=own
        )
        self.computing = Counter("qkv_compute_seconds_total", "Time spent computing.", ["model"], registry=own)
        self.tokens = Counter("qkv_tokens_total", "Tokens in texts that were computed.", ["model"], registry=own)
        self.active = Gauge("qkv_requests_inside", "Requests that wait or are being computed.", ["model"], registry=own)
        self.waiting = Gauge("qkv_units_waiting", "Pieces of text that wait.", ["model"], registry=own)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count a finished request."""
        self.requests.labels(path, status).inc()
        self.seconds.labels(path).observe(seconds)

    def count_refusal(self, model: str) -> None:
        """Count a request that found the queue full."""
        self.refused.labels(model).inc()

    def count_batch(self, model: str, size: int, tokens: int, seconds: float) -> None:
        """Count a computed batch."""
        self.batch_sizes.labels(model).observe(size)
        self.tokens.labels(model).inc(tokens)
        self.computing.labels(model).inc(seconds)

    def watch_queue(self, model: str, active: Callable[[], float], waiting: Callable[[], float]) -> None:
        """Read a model's queue whenever the metrics are read: its active requests and its waiting items."""
        self.active.labels(model).set_function(active)
        self.waiting.labels(model).set_function(waiting)

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        return prometheus_client.generate_latest(self.registry).decode()

"""What is counted, as Prometheus reads it."""

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
Labels = tuple[tuple[str, str], ...]


class Counter:
    """Numbers that only grow, one for each set of labels."""

    kind = "counter"

    def __init__(self, name: str, meaning: str):
        self.name, self.meaning = name, meaning
        self.values: dict[Labels, float] = {}

    def add(self, amount: float = 1, **labels: str) -> None:
        key = tuple(labels.items())
        self.values[key] = self.values.get(key, 0) + amount

    def lines(self) -> Iterable[str]:
        for labels, value in self.values.items():
            yield f"{self.name}{_braces(labels)} {_number(value)}"


class Gauge(Counter):
    """Numbers as they are now."""

    kind = "gauge"

    def set(self, value: float, **labels: str) -> None:
        self.values[tuple(labels.items())] = value


class Histogram:
    """How often values were at most so high."""

    kind = "histogram"

    def __init__(self, name: str, meaning: str, bounds: tuple[float, ...]):
        self.name, self.meaning, self.bounds = name, meaning, bounds
        self.counts: dict[Labels, list[int]] = {}
        self.sums: dict[Labels, float] = {}

    def add(self, value: float, **labels: str) -> None:
        key = tuple(labels.items())
        self.counts.setdefault(key, [0] * (len(self.bounds) + 1))[bisect_left(self.bounds, value)] += 1
        self.sums[key] = self.sums.get(key, 0.0) + value

    def lines(self) -> Iterable[str]:
        for labels, counts in self.counts.items():
            below = 0
            for bound, count in zip((*self.bounds, "+Inf"), counts, strict=True):
                below += count
                yield f"{self.name}_bucket{_braces((*labels, ('le', str(bound))))} {below}"
            yield f"{self.name}_sum{_braces(labels)} {_number(self.sums[labels])}"
            yield f"{self.name}_count{_braces(labels)} {below}"


class Metrics:
    """All that a service counts; workers and requests add to it from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests = Counter("qkv_requests_total", "Requests answered, by path and status.")
        self.seconds = Histogram("qkv_request_seconds", "Time from a request to its answer.", SECONDS)
        self.refusals = Counter("qkv_refused_total", "Requests refused because the queue was full.")
        self.sizes = Histogram("qkv_batch_units", "Pieces of text computed together.", SIZES)
        self.computing = Counter("qkv_compute_seconds_total", "Time spent computing.")
        self.tokens = Counter("qkv_tokens_total", "Tokens read, of texts that were computed.")
        self.inside = Gauge("qkv_requests_inside", "Requests that wait or are computed.")
        self.waiting = Gauge("qkv_units_waiting", "Pieces of text that wait.")

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        with self._lock:
            self.requests.add(path=path, status=str(status))
            self.seconds.add(seconds, path=path)

    def refused(self, model: str) -> None:
        """Count a request for which there was no place."""
        with self._lock:
            self.refusals.add(model=model)

    def batch(self, model: str, size: int, tokens: int, seconds: float) -> None:
        """Count a batch that was computed."""
        with self._lock:
            self.sizes.add(size, model=model)
            self.tokens.add(tokens, model=model)
            self.computing.add(seconds, model=model)

    def text(self, queues: Mapping[str, tuple[int, int]]) -> str:
        """Everything as Prometheus reads it; queues are, by model, requests inside and units waiting now."""
        with self._lock:
            for model, (inside, waiting) in queues.items():
                self.inside.set(inside, model=model)
                self.waiting.set(waiting, model=model)
            lines: list[str] = []
            for one in (
                self.requests, self.seconds, self.refusals, self.sizes, self.computing, self.tokens, self.inside, self.waiting,
            ):  # fmt: skip
                lines += [f"# HELP {one.name} {one.meaning}", f"# TYPE {one.name} {one.kind}", *one.lines()]
        return "\n".join(lines) + "\n"


def _braces(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}" if labels else ""


def _number(value: float) -> str:
    """All digits: a counter that is rounded stands still, and then jumps."""
    return f"{value:.15g}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

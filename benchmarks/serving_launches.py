"""What a busy lane would ask of a GPU, counted on a CPU: operations one by one, graphs recorded, and graphs launched.

    python benchmarks/serving_launches.py [--callers 64] [--seconds 4] [--before CHECKOUT]

A GPT of four layers with random weights computes what callers ask for, with completions of 10 to 200 tokens (1:20), through the
worker and its schedule. Steps take the way that they take on a GPU, with a stand-in for CUDA graphs, and the clock is simulated:
each operation outside a graph, each launch and each recording takes a time of its own (see the constants, which are round numbers
for a GPU of today, not measurements). So the count is exact, and the speed an estimate that shows proportions.
"""

import argparse
import asyncio
import heapq
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

# Microseconds of the host's thread.
OPERATION, VIEW = 8.0, 2.0  # an operation that launches a kernel, and one that does not
LAUNCH, KERNEL = 30.0, 3.0  # of a graph, and of each kernel in it
RECORDING = 3000.0  # of a graph, beside its operations
PYTHON = {"step": 250.0, "reading": 500.0}  # everything else that a turn does
ROUND_TRIP = 0.004  # seconds between an answer and the caller's next request
VIEWS = {
    "view", "_unsafe_view", "select", "slice", "expand", "transpose", "permute", "unsqueeze", "squeeze", "split",
    "split_with_sizes", "t", "as_strided", "alias", "detach", "unbind", "unfold", "_reshape_alias", "view_as", "lift_fresh",
    "empty", "new_empty",
}  # fmt: skip


class Clock(TorchDispatchMode):
    """Counts operations, and lets simulated time pass for each."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.paused, self.counts = 0.0, False, Counter[str]()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function._schema.name.partition("::")[2].rstrip("_")
        self.spend("operations", OPERATION) if name not in VIEWS else self.spend("views", VIEW)
        return function(*args, **(kwargs or {}))

    def spend(self, what: str, microseconds: float) -> None:
        self.counts[what] += 1
        self.now += 1e-6 * microseconds


clock = Clock()


class CountedGraph:
    """Stands in for a CUDA graph: it computes again in the same memory, and counts."""

    def __init__(self, function: Callable[..., Any], *inputs: Tensor, **_: Any):
        self.function, self.inputs, self.result, self.kernels = function, inputs, None, 0
        clock.spend("recordings", RECORDING)

    def __call__(self, *inputs: Tensor) -> Any:
        if self.result is None:  # here it computes for the first time; each operation was launched into the recording
            before = clock.counts["operations"]
            self.result = self.function(*self.inputs)
            self.kernels = clock.counts["operations"] - before
        else:
            with _disable_current_modes():
                for own, given in zip(self.inputs, inputs, strict=True):
                    if own.data_ptr() != given.data_ptr():
                        own.copy_(given)
                for old, new in zip(_tensors(self.result), _tensors(self.function(*self.inputs)), strict=True):
                    old.copy_(new)
        clock.spend("launches", LAUNCH + KERNEL * self.kernels)
        return self.result


def _tensors(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else [tensor for part in value for tensor in _tensors(part)]


def as_on_a_gpu() -> None:
    """Let decoding take the way of a GPU."""
    from qkv.base import graphs
    from qkv.decoding import sampling
    from qkv.inference import growing
    from qkv.parts import decoding_weights

    graphs.usable = lambda x: True
    graphs.GraphedFunction = CountedGraph  # type: ignore[misc, assignment]
    decoding_weights._packs = lambda dtype: False
    sampling.worth_leaving = lambda active, device: 2 * int(active.sum()) <= len(active)
    step = growing.GrowingOutputs.step
    growing.GrowingOutputs.step = lambda self, between_layers=None: step(self, None)  # type: ignore[method-assign]


def measure(run: Path, callers: int, seconds: float) -> dict[str, Any]:
    """Return what callers were answered in so much simulated time, and what it took."""
    from qkv.inference.load import load
    from qkv.inference.text_generator import Prompt
    from qkv.serving import batching, worker
    from qkv.serving.handlers import GenerationHandler
    from qkv.serving.metrics import Metrics
    from qkv.serving.settings import DEVICE_DEFAULTS, ServiceSettings

    as_on_a_gpu()
    rng, handler = random.Random(1), GenerationHandler(load(str(run), "cpu"))
    worker.time = batching.time = SimpleNamespace(monotonic=lambda: clock.now)  # type: ignore[assignment]
    config = handler.decoding(256, sampling=True)
    turns: Counter[str] = Counter()
    tokens = 0

    class Worker(worker.BatchWorker):
        def _run(self) -> None:
            pass

    async def simulate() -> None:
        nonlocal tokens
        one = Worker("gpt", handler, ServiceSettings(**DEVICE_DEFAULTS["cuda"]), Metrics())
        asking = [(ROUND_TRIP * rng.random(), number) for number in range(callers)]
        heapq.heapify(asking)
        asked: dict[Any, int] = {}
        number = 0
        start = None
        while clock.now < seconds:
            while asking and asking[0][0] <= clock.now:
                _, caller = heapq.heappop(asking)
                number += 1
                prompt = Prompt(
                    [rng.randrange(10, 300) for _ in range(rng.randint(8, 30))], number, (), lambda piece: None,
                    round(10 * 20 ** rng.random()),
                )  # fmt: skip
                prepared = handler.complete([prompt], config)
                asked[one.put(prepared.key, prepared.items, f"caller {caller}")] = caller
            turn = one.schedule.next_turn(clock.now)
            if turn is None:
                clock.now = asking[0][0]
                continue
            kind = "reading" if turn.reads else "step"
            clock.spend(f"{kind}s", PYTHON[kind])
            rows = len(turn.items or turn.lane.items)
            turns[kind] += rows
            with clock:
                one._take(turn)
            tokens += rows
            for request in [request for request in asked if not request.remaining]:
                heapq.heappush(asking, (clock.now + ROUND_TRIP, asked.pop(request)))
            if start is None and clock.now > seconds / 4:  # after a warm-up
                start, tokens, before = clock.now, 0, (clock.counts.copy(), turns.copy())
        counts, rows = clock.counts - before[0], turns - before[1]
        steps, readings = counts["steps"], counts["readings"]
        found.update(
            {
                "tokens a second (estimate)": round(tokens / (clock.now - start)),
                "ms from step to step (estimate)": round(1000 * (clock.now - start) / steps, 2),
                "steps": steps,
                "texts in a step": round(rows["step"] / steps, 1),
                "readings in a step": round(readings / steps, 3),
                "texts in a reading": round(rows["reading"] / max(1, readings), 2),
                "graphs recorded in 100 steps": round(100 * counts["recordings"] / steps, 2),
                "graphs launched in a step": round(counts["launches"] / steps, 2),
                "operations outside graphs in a step": round(counts["operations"] / steps, 1),
            }
        )

    found: dict[str, Any] = {}
    asyncio.run(simulate())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=4, help="of simulated time")
    parser.add_argument("--before", type=Path, help="a checkout of another version")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)  # given to the process that measures
    given = parser.parse_args()
    if given.run is not None:
        print(json.dumps(measure(given.run, given.callers, given.seconds)))
        return
    from serving_overhead import write_gpt

    checkouts = {"now": Path(__file__).resolve().parents[1], **({"before": given.before.resolve()} if given.before else {})}
    with tempfile.TemporaryDirectory() as folder:
        run = write_gpt(Path(folder) / "gpt", layers=4)
        for name, checkout in checkouts.items():
            environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
            options = ["--callers", str(given.callers), "--seconds", str(given.seconds), "--run", str(run)]
            command = [sys.executable, "-W", "ignore", __file__, *options]
            answer = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
            print(name, json.dumps(json.loads(answer), indent=1), flush=True)


if __name__ == "__main__":
    main()

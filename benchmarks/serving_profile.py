"""Where a service's time goes on a device: completions and translations of 64 callers, beside offline, with a profile of a step.

    python benchmarks/serving_profile.py --translator RUN --gpt RUN --sentences FILE --out FOLDER --device cuda [--seconds 6]

For each of both: offline, 64 prompts or texts at a time; then 64 callers (as in `serving_load.py`) of `qkv serve` with 1 and
with 4 workers; then the same callers of a service in this process, whose model's thread is timed. Every part of that thread has
its time without the parts inside it: by the clock, and of the processor; the difference is waiting, for the device or for
Python. On a GPU torch's profiler then adds up the kernels of a second. Takes less than 5 minutes with `--seconds 6`.
Writes FOLDER/serving-profile.json and prints it as it comes.
"""

import argparse
import asyncio
import json
import multiprocessing
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from serving_latency import service
from serving_load import CLIENTS, Found, Loads, ask_again, many, offline
from serving_overhead import WARM_UP, own_thread_times

from qkv.base import graphs
from qkv.decoding import beam, sampling
from qkv.inference import growing
from qkv.models.gpt import CausalLM
from qkv.parts import stepping
from qkv.parts.decoding_weights import PreparedModel
from qkv.serving import handlers, schedule, worker
from qkv.serving.app import create_app
from qkv.serving.registry import ModelRegistry, model_groups
from qkv.serving.server import SWITCH, ServiceServer, bind
from qkv.serving.settings import DEVICE_DEFAULTS, ServiceSettings
from qkv.text.files import read_lines

PATHS = {"completions, 1:20": "/v1/completions", "translations, 1:20": "/translate"}
# What is timed: the name in the report, where it is, and its name there.
PARTS: list[tuple[str, Any, str]] = [
    ("waiting for requests", worker.BatchWorker, "_next_turn"),
    ("schedule", schedule.Schedule, "next_turn"),
    ("turn, all else", worker.BatchWorker, "_take"),
    ("reading: preparation", handlers.GenerationHandler, "begin"),
    ("reading: preparation", handlers.TranslationHandler, "begin"),
    ("reading: model", CausalLM, "_read"),
    ("reading: model", PreparedModel, "start"),
    ("joining", growing.GrowingOutputs, "join"),
    ("step: search, all else", sampling.TokenSearch, "step"),
    ("step: search, all else", beam.BeamSearch, "step"),
    ("step: model without a graph", stepping.AttentionState, "step"),
    ("step: new static memory", stepping.AttentionState, "_make_static"),
    ("step: choice without a graph", graphs.FunctionRecorder, "__call__"),
    ("step: tokens on the host", sampling.TokenSearch, "_add"),
    ("graphs: recording", graphs.GraphedFunction, "__init__"),
    ("graphs: launching", graphs.GraphedFunction, "__call__"),
    ("waiting for the device", torch.Tensor, "cpu"),
]


class Profile:
    """Times of the parts of the models' threads."""

    def __init__(self) -> None:
        self.here = threading.local()
        self.reset()
        for name, owner, attribute in PARTS:
            setattr(owner, attribute, self.timed(name, getattr(owner, attribute)))

    def reset(self) -> None:
        """Forget what was timed."""
        self.calls: dict[str, int] = defaultdict(int)
        self.clock: dict[str, float] = defaultdict(float)
        self.processor: dict[str, float] = defaultdict(float)
        self.threads = own_thread_times()
        self.started = time.perf_counter()

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose calls are timed, without what is timed inside them."""

        def call(*given: Any, **options: Any) -> Any:
            stack = self.here.__dict__.setdefault("stack", [])
            stack.append([0.0, 0.0])  # of what is timed inside
            started, spent = time.perf_counter(), time.thread_time()
            try:
                return function(*given, **options)
            finally:
                passed, spent = time.perf_counter() - started, time.thread_time() - spent
                inside = stack.pop()
                self.calls[name] += 1
                self.clock[name] += passed - inside[0]
                self.processor[name] += spent - inside[1]
                if stack:
                    stack[-1][0] += passed
                    stack[-1][1] += spent

        return call

    def summary(self) -> dict[str, Any]:
        """Return microseconds a step of each part, and the time of each thread."""
        passed, steps = time.perf_counter() - self.started, max(1, self.calls["step: search, all else"])
        threads = [later - earlier for later, earlier in zip(own_thread_times(), self.threads, strict=False)]
        parts = {
            name: {
                "calls a step": round(self.calls[name] / steps, 3),
                "us a step": round(1e6 * self.clock[name] / steps, 1),
                "of the processor": round(1e6 * self.processor[name] / steps, 1),
            }
            for name in sorted(self.clock, key=lambda name: -self.clock[name])
        }
        return {
            "steps and readings a second": round(steps / passed, 1),
            "ms a step or reading": round(1000 * passed / steps, 3),
            "parts": parts,
            "busy part of each thread (first the event loop)": [
                round(each / passed, 3) for each in threads if each > 0.01 * passed
            ],
        }


def call(port: int, path: str, sentences: list[str], seconds: float) -> None:
    """Be all callers, in a process of their own."""
    loads = Loads(sentences)
    bodies = loads.spread_completion if path == PATHS["completions, 1:20"] else loads.spread_text

    async def all_callers() -> None:
        found, ends = Found(), time.perf_counter() + seconds
        await asyncio.gather(*(ask_again(port, 10 + number, path, bodies, ends, found) for number in range(CLIENTS)))

    asyncio.run(all_callers())


def profiled(profile: Profile, runs: list[str], path: str, sentences: list[str], device: str, seconds: float) -> dict[str, Any]:
    """Serve in this process, and return the profile of the models' threads while all call."""
    named = [(name, Path(folder)) for name, _, folder in (run.partition("=") for run in runs)]
    models = [model for group in model_groups(named, device=device) for model in group.load()]
    app = create_app(ModelRegistry(models), ServiceSettings(logs="none", **DEVICE_DEFAULTS.get(device.partition(":")[0], {})))
    server, listening, found = ServiceServer(app), bind("127.0.0.1", 0), dict[str, Any]()
    listening.listen(1024)
    callers = multiprocessing.get_context("spawn").Process(
        target=call, args=(listening.getsockname()[1], path, sentences, WARM_UP + seconds + 2)
    )

    def watch() -> None:
        profile.reset()
        callers.start()
        while callers.is_alive() and not profile.calls["step: search, all else"]:
            time.sleep(0.05)
        time.sleep(WARM_UP)
        profile.reset()
        time.sleep(seconds)
        found.update(profile.summary())
        if device.startswith("cuda"):
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as kernels:
                time.sleep(1)
            spent = {each.key: each.self_device_time_total for each in kernels.key_averages()}
            found["busy part of the device"] = round(sum(spent.values()) / 1e6, 3)
            found["ms a second of kernels"] = {
                name[:80]: round(each / 1000, 1) for name, each in sorted(spent.items(), key=lambda pair: -pair[1])[:12]
            }
        callers.join()
        server.should_exit = True

    sys.setswitchinterval(SWITCH)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    asyncio.run(server.serve([listening]))
    watcher.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for role in ("translator", "gpt"):
        parser.add_argument(f"--{role}", type=Path, required=True)
    parser.add_argument("--sentences", type=Path, required=True, help="a sentence a line, or pairs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--workers", type=int, action="append", help="numbers of processes to try, by default 1 and 4; 0: none")
    parser.add_argument("--phase", action="append", default=[], help="only phases with this in their name")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    sentences = [line.split("\t")[0].strip() for line in read_lines(given.sentences) if line][:1000]
    runs = [f"{role}={getattr(given, role).resolve()}" for role in ("translator", "gpt")]
    result: dict[str, Any] = {"device": torch.cuda.get_device_name() if given.device.startswith("cuda") else given.device}

    def tell(name: str, what: str, value: Any) -> None:
        result.setdefault(name, {})[what] = value
        print(f"{name}: {what}: {json.dumps(value)}", flush=True)
        given.out.joinpath("serving-profile.json").write_text(json.dumps(result, indent=1) + "\n")

    for name, value in offline(Loads(sentences), given).items() if given.workers != [0] else ():
        tell(name, "offline", value)
    phases = [name for name in PATHS if not given.phase or any(phase in name for phase in given.phase)]
    for name in phases:
        for workers in filter(None, given.workers or (1, 4)):
            with service(
                [Path(run) for run in runs], Path(__file__).resolve().parents[1], "logs=none", device=given.device,
                options=["--workers", str(workers)],
            ) as port:  # fmt: skip
                loads = Loads(sentences)
                bodies = loads.spread_completion if name.startswith("completions") else loads.spread_text
                tell(name, f"{workers} workers", asyncio.run(many(port, PATHS[name], bodies, given.seconds, CLIENTS)))
    profile = Profile()  # from here on: it makes everything a little slower
    for name in phases:
        tell(name, "profile", profiled(profile, runs, PATHS[name], sentences, given.device, given.seconds))


if __name__ == "__main__":
    main()

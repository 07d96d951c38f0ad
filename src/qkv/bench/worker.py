"""The process of one system of a benchmark. It imports nothing of qkv, so that it also runs where qkv is not installed.

    python worker.py SYSTEM.py JOB_FOLDER OPTIONS

Each line on stdin is a command, each line on stdout a reply, both in JSON; output of libraries goes to stderr. The first reply
is {"ready": version}; an error is {"error": one line} and ends the process. Between commands the process sleeps.

SYSTEM.py has `make(job)`, which returns an object for one kind of job:
  speed     train(rounds): update while rounds.more(), and call rounds.count(target tokens); or only update(batch, rate)
  pretrain  the same with batches of masked texts instead of pairs
  curve     update(batch, rate) -> label-smoothed loss per target token, as a tensor
  decode    translate(sources, beam, length, batch) -> tokens of each output; `batch` sources at a time
  length    measure(encoder, length, training) -> the reply: seconds and memory of a pass
"""

import contextlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

Command = dict[str, Any]


@dataclass
class PaddedPairs:
    """Pairs of similar length, padded; targets end in eos."""

    source: Any  # (B, S) token ids
    target: Any  # (B, T)
    read: Any  # (B, T) input of the decoder: bos, then the target without its last token
    source_lengths: Any  # (B,)
    tokens: int  # of the targets, without padding


@dataclass
class MaskedTexts:
    """Texts of the same length with some tokens masked."""

    ids: Any  # (B, T) token ids
    read: Any  # (B, T) the same with some tokens masked
    labels: Any  # (B, T) the masked tokens; IGNORE_INDEX elsewhere
    tokens: int


IGNORE_INDEX = -100


class BenchmarkJob:
    """A job: the keys of job.json as attributes, the options of this system, and the texts."""

    def __init__(self, folder: Path, options: Command):
        values = json.loads((folder / "job.json").read_text())
        self.__dict__.update(values)
        self.kind: str = values["kind"]
        self.device: str = values["device"]
        self.size: dict[str, Any] = values["size"]
        self.options, self.folder = options, folder
        if self.kind == "length":
            return  # texts are drawn at random
        if self.kind == "pretrain":
            self.documents = np.load(folder / "documents.npy")
            return
        with np.load(folder / "pairs.npz") as stored:
            self.source = _texts(stored["source"], stored["source_ends"])
            self.target = _texts(stored["target"], stored["target_ends"])
            self.chosen = _texts(stored["batches"], stored["batch_ends"])  # indices of the pairs of each batch

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"job.json has no {name}")

    @cached_property
    def batches(self) -> list[Any]:
        """The batches as tensors on the device."""
        if self.kind == "pretrain":
            return [self._masked(number) for number in range(self.updates)]
        return [self._padded(numbers) for numbers in self.chosen]

    def _padded(self, numbers: np.ndarray) -> PaddedPairs:
        sources = [self.source[n] for n in numbers]
        targets = [np.append(self.target[n], self.eos) for n in numbers]
        reads = [np.append(self.bos, self.target[n]) for n in numbers]
        lengths = self.tensor(np.array([len(s) for s in sources]))
        return PaddedPairs(
            self.pad_texts(sources), self.pad_texts(targets), self.pad_texts(reads), lengths, sum(map(len, targets))
        )

    def _masked(self, number: int) -> MaskedTexts:
        """Mask some rows in advance: a data loader would do it on other cores, at no cost to the update."""
        rng = np.random.default_rng([self.seed, number])
        words = self.documents[number * self.rows : (number + 1) * self.rows]
        ids = np.pad(words.astype(np.int64), ((0, 0), (1, 1)), constant_values=((0, 0), (self.bos, self.eos)))
        drawn = rng.random(ids.shape) / self.masked  # below 1: masked
        drawn[:, [0, -1]] = 1
        other = np.where(drawn < self.mask + self.random, rng.integers(self.first, self.size["vocab"], ids.shape), ids)
        read = np.where(drawn < self.mask, self.mask_token, other)
        return MaskedTexts(self.tensor(ids), self.tensor(read), self.tensor(np.where(drawn < 1, ids, IGNORE_INDEX)), ids.size)

    def pad_texts(self, texts: list[np.ndarray]) -> Any:
        """Pad texts to one tensor; on a GPU its width is a multiple of 8, for fast matrix products."""
        step = 8 if self.device == "cuda" else 1
        rows = np.full((len(texts), -(-max(map(len, texts)) // step) * step), self.pad, dtype=np.int64)
        for row, text in zip(rows, texts, strict=True):
            row[: len(text)] = text
        return self.tensor(rows)

    def tensor(self, values: np.ndarray) -> Any:
        import torch

        return torch.from_numpy(values).to(self.device)

    def rate(self, step: int) -> float:
        """Return the learning rate of an update, counted from 1: linear warmup, then inverse square root decay."""
        return float(self.peak * min(step / self.warmup, (self.warmup / step) ** 0.5))

    def autocast(self) -> Any:
        """Return the autocast context of the precision in the options."""
        import torch

        return torch.autocast(self.device, torch.bfloat16, enabled=self.options["precision"] == "bf16")

    def plain_update(self, model: Any, optimiser: Any, loss: Callable[[], Any], rate: float) -> Any:
        """Run an update as in torch's documentation, for systems without a trainer, and return the loss."""
        import torch

        for group in optimiser.param_groups:
            group["lr"] = rate
        with self.autocast():
            found = loss()
        found.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), self.clip)
        optimiser.step()
        optimiser.zero_grad()
        return found.detach()

    def synchronise(self) -> None:
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()


def _texts(ids: np.ndarray, ends: np.ndarray) -> list[np.ndarray]:
    return np.split(ids.astype(np.int64), ends[:-1]) if len(ends) else []


class Rounds:
    """Rounds of updates: `more` says whether to run another update; at the end of a round it replies and waits for a command."""

    def __init__(self, job: BenchmarkJob, commands: Iterator[Command], reply: Callable[[Command], None]):
        self.job, self.commands, self.reply = job, commands, reply
        self.left = self.timed = self.tokens = 0
        self.started = 0.0

    def more(self) -> bool:
        if self.left == 0 and not self._next_round():
            return False
        if self.left == self.timed:
            self.job.synchronise()
            self.tokens, self.started = 0, time.perf_counter()
        self.left -= 1
        return True

    def count(self, tokens: int) -> None:
        self.tokens += tokens

    def _next_round(self) -> bool:
        """Reply for the finished round, if there is one, and start the next."""
        if self.timed:
            self.job.synchronise()
            seconds = time.perf_counter() - self.started
            self.reply({"rate": self.tokens / seconds, "memory": peak_memory(self.job.device)})
        command = next(self.commands, None)
        if command is None:
            return False
        self.timed = command["updates"]
        reset_peak_memory(self.job.device)
        self.left = self.timed + _free_cache(self.job.device)
        return True


def _free_cache(device: str) -> int:
    """Free a GPU's cached memory for the other systems.

    Return how many updates are then not timed, since they allocate it anew.
    """
    if device != "cuda":
        return 0
    import torch

    torch.cuda.empty_cache()
    return 1


def speed(system: Any, job: BenchmarkJob, commands: Iterator[Command], reply: Callable[[Command], None]) -> None:
    rounds = Rounds(job, commands, reply)
    if hasattr(system, "train"):
        system.train(rounds)
        return
    step = 0
    while rounds.more():
        batch = job.batches[step % len(job.batches)]
        step += 1
        system.update(batch, job.rate(step))
        rounds.count(batch.tokens)


def curve(system: Any, job: BenchmarkJob, commands: Iterator[Command], reply: Callable[[Command], None]) -> None:
    for _ in commands:
        losses = [system.update(batch, job.rate(step)) for step, batch in enumerate(job.batches, 1)]
        reply({"losses": [float(loss) for loss in losses]})


def decode(system: Any, job: BenchmarkJob, commands: Iterator[Command], reply: Callable[[Command], None]) -> None:
    for command in commands:
        beam, batch, length = command["beam"], command["batch"], command["length"]
        sources = [job.source[i] for i in range(command["sentences"])]
        _free_cache(job.device)
        reset_peak_memory(job.device)
        start = time.perf_counter()
        lengths = [len(words) for words in system.translate(sources, beam, length, batch)]
        job.synchronise()
        rate = len(sources) / (time.perf_counter() - start)
        # An eos as the last token is not in the output.
        if not all(length - 1 <= n <= length for n in lengths):
            raise ValueError(f"outputs of {min(lengths)} to {max(lengths)} tokens instead of {length}")
        reply({"rate": rate, "memory": peak_memory(job.device)})


def lengths(system: Any, job: BenchmarkJob, commands: Iterator[Command], reply: Callable[[Command], None]) -> None:
    for command in commands:
        reply(system.measure(**command))


def reset_peak_memory(device: str) -> None:
    """Reset the peak of main memory, where the system can do that."""
    # Not on a GPU: the memory of a CUDA graph is counted only while the graph is captured.
    if device == "cpu":
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: str) -> int:
    """Return the peak in bytes: of torch's memory on the GPU, or of this process since `reset_peak_memory`."""
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status")
    if sys.platform == "win32":
        return 0
    if not status.exists():
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # getrusage would also count the parent's memory at the time of the fork.
    return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM"))


def main() -> None:
    # Replies have a descriptor of their own, so that output of libraries cannot mix with them.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def reply(values: Command) -> None:
        print(json.dumps(values), file=out, flush=True)

    try:
        path, folder, options = sys.argv[1:]
        job = BenchmarkJob(Path(folder), json.loads(options))
        spec = importlib.util.spec_from_file_location("system", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        system = module.make(job)
        reply({"ready": system.version})
        commands = (json.loads(line) for line in sys.stdin)
        kinds = {"speed": speed, "pretrain": speed, "curve": curve, "decode": decode, "length": lengths}
        kinds[job.kind](system, job, commands, reply)
    except Exception as error:
        reply({"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"})
        sys.exit(1)


if __name__ == "__main__":
    main()

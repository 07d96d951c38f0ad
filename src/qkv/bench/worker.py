"""One system of a benchmark in a process of its own. Stands alone: it also runs where qkv is not installed.

    python worker.py SYSTEM.py JOB_FOLDER OPTIONS

A command a line comes in on stdin, an answer a line goes out on stdout, both JSON; whatever a library prints goes to stderr. The
first answer is {"ready": version}; an error is {"error": one line}, and the end. Between commands the process sleeps.

SYSTEM.py has `make(job)`, which gives an object for one kind of job:
  speed     train(turns): update while turns.more(), telling turns.count(target tokens); or only update(batch, rate)
  pretrain  the same with batches of masked texts instead of pairs
  curve     update(batch, rate) -> loss per target token, smoothed, as a tensor
  decode    translate(sources, beam, length, batch) -> tokens of each output, so many sources at a time
  length    measure(encoder, length, training) -> what it answers, seconds and memory of a pass
"""

import contextlib
import importlib.util
import json
import os
import resource
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
class Batch:
    """Pairs of like length, padded; targets end in eos."""

    source: Any  # (B, S) token ids
    target: Any  # (B, T)
    read: Any  # (B, T) what a decoder reads: bos, then the target without its last token
    source_lengths: Any  # (B,)
    tokens: int  # of the targets, padding left out


@dataclass
class Masked:
    """Whole texts of the same length; some words are to be guessed."""

    ids: Any  # (B, T) token ids
    read: Any  # (B, T) the same with masks
    labels: Any  # (B, T) what stood there; SKIP where nothing is to be guessed
    tokens: int


IGNORE_INDEX = -100


class Job:
    """What is to be done: the keys of job.json as attributes, the options of this system, and the texts."""

    def __init__(self, folder: Path, options: Command):
        values = json.loads((folder / "job.json").read_text())
        self.__dict__.update(values)
        self.kind: str = values["kind"]
        self.device: str = values["device"]
        self.size: dict[str, Any] = values["size"]
        self.options, self.folder = options, folder
        if self.kind == "length":
            return  # it needs no texts
        if self.kind == "pretrain":
            self.documents = np.load(folder / "documents.npy")
            return
        with np.load(folder / "pairs.npz") as stored:
            self.source = _texts(stored["source"], stored["source_ends"])
            self.target = _texts(stored["target"], stored["target_ends"])
            self.chosen = _texts(stored["batches"], stored["batch_ends"])  # pairs of each batch

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"job.json has no {name}")

    @cached_property
    def batches(self) -> list[Any]:
        """The batches as tensors, ready on the device."""
        if self.kind == "pretrain":
            return [self._masked(number) for number in range(self.updates)]
        return [self._padded(numbers) for numbers in self.chosen]

    def _padded(self, numbers: np.ndarray) -> Batch:
        sources = [self.source[n] for n in numbers]
        targets = [np.append(self.target[n], self.eos) for n in numbers]
        reads = [np.append(self.bos, self.target[n]) for n in numbers]
        lengths = self.tensor(np.array([len(s) for s in sources]))
        return Batch(self.pad_texts(sources), self.pad_texts(targets), self.pad_texts(reads), lengths, sum(map(len, targets)))

    def _masked(self, number: int) -> Masked:
        """Some rows, masked here once: a data loader would do it on other cores, at no cost to the update."""
        rng = np.random.default_rng([self.seed, number])
        words = self.documents[number * self.rows : (number + 1) * self.rows]
        ids = np.pad(words.astype(np.int64), ((0, 0), (1, 1)), constant_values=((0, 0), (self.bos, self.eos)))
        drawn = rng.random(ids.shape) / self.masked  # below 1: to be guessed
        drawn[:, [0, -1]] = 1
        other = np.where(drawn < self.mask + self.random, rng.integers(self.first, self.size["vocab"], ids.shape), ids)
        read = np.where(drawn < self.mask, self.mask_token, other)
        return Masked(self.tensor(ids), self.tensor(read), self.tensor(np.where(drawn < 1, ids, IGNORE_INDEX)), ids.size)

    def pad_texts(self, texts: list[np.ndarray]) -> Any:
        """Texts as rows of one tensor; on a GPU its width is a multiple of 8, as its matrix products like it."""
        step = 8 if self.device == "cuda" else 1
        rows = np.full((len(texts), -(-max(map(len, texts)) // step) * step), self.pad, dtype=np.int64)
        for row, text in zip(rows, texts, strict=True):
            row[: len(text)] = text
        return self.tensor(rows)

    def tensor(self, values: np.ndarray) -> Any:
        import torch

        return torch.from_numpy(values).to(self.device)

    def rate(self, step: int) -> float:
        """The learning rate at an update, counted from 1: up in a straight line, then down with the inverse square root."""
        return float(self.peak * min(step / self.warmup, (self.warmup / step) ** 0.5))

    def autocast(self) -> Any:
        """The precision that the options ask for."""
        import torch

        return torch.autocast(self.device, torch.bfloat16, enabled=self.options["precision"] == "bf16")

    def plain_update(self, model: Any, optimiser: Any, loss: Callable[[], Any], rate: float) -> Any:
        """An update as torch's documentation shows it, for systems that leave it to their users. -> the loss."""
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


class Turns:
    """Says before each update whether there is to be one; answers when those of a round are done, and waits for the next."""

    def __init__(self, job: Job, commands: Iterator[Command], answer: Callable[[Command], None]):
        self.job, self.commands, self.answer = job, commands, answer
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
        """Answer for the round that is over, if there was one, and take up the next."""
        if self.timed:
            self.job.synchronise()
            seconds = time.perf_counter() - self.started
            self.answer({"rate": self.tokens / seconds, "memory": peak_memory(self.job.device)})
        command = next(self.commands, None)
        if command is None:
            return False
        self.timed = command["updates"]
        forget_peak(self.job.device)
        self.left = self.timed + _leave_room(self.job.device)
        return True


def _leave_room(device: str) -> int:
    """Give a GPU's unused memory back, for the other systems; the update that has to fetch it again is not timed. -> 1 or 0."""
    if device != "cuda":
        return 0
    import torch

    torch.cuda.empty_cache()
    return 1


def speed(system: Any, job: Job, commands: Iterator[Command], answer: Callable[[Command], None]) -> None:
    turns = Turns(job, commands, answer)
    if hasattr(system, "train"):
        system.train(turns)
        return
    step = 0
    while turns.more():
        batch = job.batches[step % len(job.batches)]
        step += 1
        system.update(batch, job.rate(step))
        turns.count(batch.tokens)


def curve(system: Any, job: Job, commands: Iterator[Command], answer: Callable[[Command], None]) -> None:
    for _ in commands:
        losses = [system.update(batch, job.rate(step)) for step, batch in enumerate(job.batches, 1)]
        answer({"losses": [float(loss) for loss in losses]})


def decode(system: Any, job: Job, commands: Iterator[Command], answer: Callable[[Command], None]) -> None:
    for command in commands:
        beam, batch, length = command["beam"], command["batch"], command["length"]
        sources = [job.source[i] for i in range(command["sentences"])]
        _leave_room(job.device)
        forget_peak(job.device)
        start = time.perf_counter()
        lengths = [len(words) for words in system.translate(sources, beam, length, batch)]
        job.synchronise()
        rate = len(sources) / (time.perf_counter() - start)
        # An end as the last of the tokens is not among the words.
        if not all(length - 1 <= n <= length for n in lengths):
            raise ValueError(f"outputs of {min(lengths)} to {max(lengths)} tokens instead of {length}")
        answer({"rate": rate, "memory": peak_memory(job.device)})


def lengths(system: Any, job: Job, commands: Iterator[Command], answer: Callable[[Command], None]) -> None:
    for command in commands:
        answer(system.measure(**command))


def forget_peak(device: str) -> None:
    """Let the highest use of main memory be counted from here on, where the system can do that."""
    # Not on a GPU: what a CUDA graph works in is counted only while it is recorded.
    if device == "cpu":
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: str) -> int:
    """Bytes: what torch had in use on the GPU, at most so far; or this process in main memory, at most since `forget_peak`."""
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Where it is there: getrusage would also count what the parent had when it started this process.
    return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM"))


def one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}"


def main() -> None:
    # Answers have a way of their own, so that what libraries print cannot get between them.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(values: Command) -> None:
        print(json.dumps(values), file=out, flush=True)

    try:
        path, folder, options = sys.argv[1:]
        job = Job(Path(folder), json.loads(options))
        spec = importlib.util.spec_from_file_location("system", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        system = module.make(job)
        answer({"ready": system.version})
        commands = (json.loads(line) for line in sys.stdin)
        kinds = {"speed": speed, "pretrain": speed, "curve": curve, "decode": decode, "length": lengths}
        kinds[job.kind](system, job, commands, answer)
    except Exception as error:
        answer({"error": one_line(error)})
        sys.exit(1)


if __name__ == "__main__":
    main()

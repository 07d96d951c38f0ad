"""Time and memory of one pass of an encoder over rows of one length.

The encoders are those of qkv's models, built with random weights for each length. On a GPU a pass is captured as a CUDA graph
before it is timed, as in training, so that the host's time to launch kernels does not hide how short passes grow. Long passes
are not captured; there the launches are a small part, except in an RNN, which consists of short kernels.
B rows, T length, D width, H heads, K head width.
"""

import contextlib
import ctypes
import functools
import gc
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import qkv
from qkv.base.rows import Rows, padded_rows
from qkv.bench.worker import peak_memory, reset_peak_memory
from qkv.models.bert import Bert, BertConfig
from qkv.models.convolution import Convolution, ConvolutionConfig
from qkv.models.rnn import Rnn, RnnConfig
from qkv.parts.attention import SelfAttention
from qkv.parts.attention_kinds import KINDS, Linformer
from qkv.parts.cache import LayerCache
from qkv.parts.context import AttentionContext
from qkv.training.gradients import is_out_of_memory

LONG = 1.0  # seconds; a first pass that takes longer counts, since its allocations are a small part
ENOUGH, MOST = 0.1, 10  # seconds and passes over which shorter ones are averaged
TRIM, MMAP = -1, -3  # glibc's M_TRIM_THRESHOLD and M_MMAP_THRESHOLD
SMALL, USUAL = 1 << 16, 1 << 25  # bytes; glibc's dynamic threshold grows up to the second
USED = 0.9  # of the free main memory; the rest is left to other processes


@dataclass(frozen=True)
class MeasuredEncoder:
    """The encoder of a model."""

    model: nn.Module
    layers: nn.Module  # with the modules that they share
    encode: Callable[[Rows], Tensor]  # rows (B, T) -> (B, T, D)


class OpenAttention(SelfAttention):
    """Attention with explicit scores and weights, step by step: the baseline that Linformer was measured against."""

    def forward(self, x: Tensor, context: AttentionContext, cache: LayerCache | None = None) -> Tensor:
        """x (B, T, D) -> (B, T, D). Rows hold one text without padding, so there is nothing to mask."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # each (B, H, T, K)
        weights = ((q * q.size(-1) ** -0.5) @ k.mT).softmax(-1)
        return self.out((weights.to(v.dtype) @ v).transpose(1, 2).flatten(-2))


def recurrent(size: dict[str, Any], length: int, dropout: float) -> MeasuredEncoder:
    config = RnnConfig(width=size["width"], embedding_width=size["width"], layers=size["layers"], dropout=dropout)
    model = Rnn(config, size["vocab"], size["vocab"])
    return MeasuredEncoder(model, model.encoder, lambda rows: model.encode(rows)[0])


def convolution(size: dict[str, Any], length: int, dropout: float) -> MeasuredEncoder:
    config = ConvolutionConfig(
        width=size["width"], embedding_width=size["width"], encoder_layers=size["layers"], decoder_layers=1,
        dropout=dropout, positions="sinusoidal", tied="all",
    )  # fmt: skip
    model = Convolution(config, size["vocab"], size["vocab"])
    return MeasuredEncoder(model, model.encoder, lambda rows: model.encode(rows)[1])


def attention(size: dict[str, Any], length: int, dropout: float, kind: str = "full") -> MeasuredEncoder:
    shape = {name: size[name] for name in ("width", "feedforward", "heads", "layers")}
    looks: Any = KINDS[kind]()
    if isinstance(looks, Linformer) and length < looks.projected_length:
        looks = Linformer(projected_length=length)  # a text cannot be projected to more positions than it has
    model = Bert(BertConfig(**shape, attention=looks, dropout=dropout, max_positions=length), size["vocab"])
    return MeasuredEncoder(model, nn.ModuleList([model.layers, model.mask_builder]), model)


def open_attention(size: dict[str, Any], length: int, dropout: float) -> MeasuredEncoder:
    made = attention(size, length, dropout)
    for layer in made.model.layers:  # type: ignore[union-attr]
        layer.attention = OpenAttention(size["width"], size["heads"])
    return made


ENCODERS: dict[str, Callable[[dict[str, Any], int, float], MeasuredEncoder]] = {
    "RNN": recurrent,
    "convolution": convolution,
    "full": attention,
    "full, open": open_attention,
    "window": functools.partial(attention, kind="window"),
    "BigBird": functools.partial(attention, kind="bigbird"),
    "Linformer": functools.partial(attention, kind="linformer"),
}


def attention_settings() -> str:
    """Return the default settings of sparse and low-rank attention."""
    kinds = {name: KINDS[name.lower()]() for name in ENCODERS if name.lower() in KINDS}
    listed = {name: [f"{key} {value}" for key, value in config if key not in ("kind", "seed")] for name, config in kinds.items()}
    return "; ".join(f"{name}: {', '.join(values)}" for name, values in listed.items() if values)


class EncoderPasses:
    """Measures passes of any encoder at any length."""

    def __init__(self, job: Any):
        self.job, self.version = job, f"qkv {qkv.__version__}"
        self.known: set[tuple[str, int, bool]] = set()  # passes whose memory is reported, and whose kernels are compiled

    def measure(self, encoder: str, length: int, training: bool) -> dict[str, Any]:
        """Return the seconds of a pass; in the first one also its peak memory beyond the weights, and the layers' parameters."""
        self._release_memory()  # the memory of the previous pass
        try:
            return self._measured(encoder, length, training)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        return {"ended": "out of memory"}

    def _measured(self, encoder: str, length: int, training: bool) -> dict[str, Any]:
        torch.manual_seed(self.job.seed)
        with torch.device(self.job.device):
            made = ENCODERS[encoder](self.job.size, length, self.job.dropout)
            ids = torch.randint(self.job.size["vocab"], (self.job.rows, length))
            rows = padded_rows(ids, torch.ones_like(ids, dtype=torch.bool))
        made.model.train(training)
        run = functools.partial(self._training_step if training else self._forward_pass, made, rows)
        reply: dict[str, Any] = {}
        if (encoder, length, training) not in self.known:
            self.known.add((encoder, length, training))
            weights = sum(weight.numel() for weight in made.layers.parameters())
            reply = {"memory": self._memory(run), "weights": weights}
        seconds, recorded = self._timed(run)
        return {"seconds": seconds, "recorded": recorded, **reply}

    def _forward_pass(self, made: MeasuredEncoder, rows: Rows) -> None:
        with torch.no_grad(), self.job.autocast():
            made.encode(rows)

    def _training_step(self, made: MeasuredEncoder, rows: Rows) -> None:
        made.model.zero_grad()
        with self.job.autocast():
            loss = made.encode(rows).float().square().mean()
        loss.backward()

    def _memory(self, run: Callable[[], None]) -> int:
        """Return the peak memory of a pass beyond the memory in use before it."""
        if self.job.device == "cpu":
            run()  # libraries keep some memory after their first pass, which must not count
        self._release_memory()
        if self.job.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        reset_peak_memory(self.job.device)
        before = peak_memory(self.job.device)
        with _freed_at_once():
            run()
        self.job.synchronise()
        return peak_memory(self.job.device) - before

    def _timed(self, run: Callable[[], None]) -> tuple[float, bool]:
        """Return the mean seconds of some passes after a first, or of a long first one; and whether it was a CUDA graph."""
        first = self._clocked(run, 1)
        if first > LONG:
            return first, False
        on_gpu = self.job.device == "cuda"
        if on_gpu:
            run = self._recorded(run)
            first = self._clocked(run, 1)
        return self._clocked(run, min(MOST, math.ceil(ENOUGH / first))), on_gpu

    def _recorded(self, run: Callable[[], None]) -> Callable[[], None]:
        """Capture the pass as a CUDA graph."""
        self._release_memory()  # a graph has memory of its own
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        return graph.replay

    def _clocked(self, run: Callable[[], None], times: int) -> float:
        self.job.synchronise()
        if self.job.device == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(times):
                run()
            end.record()
            end.synchronize()
            return start.elapsed_time(end) / 1e3 / times
        began = time.perf_counter()
        for _ in range(times):
            run()
        return (time.perf_counter() - began) / times

    def _release_memory(self) -> None:
        """Return unused memory to the system."""
        gc.collect()
        if self.job.device == "cuda":
            torch.cuda.empty_cache()
            return
        _libc("malloc_trim", 0)
        _limit_memory()


@contextlib.contextmanager
def _freed_at_once() -> Iterator[None]:
    """Return a tensor's main memory to the system as soon as it is freed; glibc would keep much of it."""
    _libc("mallopt", MMAP, SMALL)
    try:
        yield
    finally:
        _libc("mallopt", MMAP, USUAL)
        _libc("mallopt", TRIM, 2 * USUAL)


def _libc(name: str, *values: int) -> None:
    with contextlib.suppress(OSError, AttributeError):  # other C libraries have no such function
        getattr(ctypes.CDLL(None), name)(*values)


def _limit_memory() -> None:
    """Limit this process to the free main memory, so that it fails before the system kills some process."""
    free, own = _kilobytes("/proc/meminfo", "MemAvailable"), _kilobytes("/proc/self/status", "VmData")
    if sys.platform != "win32" and free and own:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (int(own + USED * free) * 1024, hard))


def _kilobytes(path: str, name: str) -> int:
    """Return a number from a file in /proc; 0 where there is none."""
    lines = Path(path).read_text().splitlines() if Path(path).exists() else []
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


def make(job: Any) -> EncoderPasses:
    return EncoderPasses(job)

"""A trainer of a Transformer on random texts, in one or several processes, for the benchmarks of processes."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.multiprocessing as multiprocessing

from qkv.data.batches import Batches
from qkv.data.tokens import TokenPairs, token_texts
from qkv.models.transformer import Transformer, TransformerConfig
from qkv.objectives.translation import Translation, TranslationConfig
from qkv.training.config import TrainingConfig
from qkv.training.loop import Trainer, Validation
from qkv.training.progress import Progress

BOS, EOS = 2, 3
TINY = {"width": 32, "feedforward": 64, "heads": 2, "encoder_layers": 2, "decoder_layers": 2}
SIZES: dict[str, tuple[dict[str, Any], int]] = {
    "tiny": (TINY, 100),
    "base": ({}, 32000),
    "big": ({"width": 1024, "feedforward": 4096, "heads": 16}, 32000),
}


def make_trainer(run: Path, size: str, **training: Any) -> Trainer:
    """Return a trainer of a model of this size; texts are of 5 to 30 tokens, and the target is the reversed source."""
    shape, vocabulary = SIZES[size]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rng = np.random.default_rng(0)
    texts = [rng.integers(4, vocabulary, size=rng.integers(5, 31)).tolist() for _ in range(4000)]
    corpus = TokenPairs(token_texts(texts), token_texts([text[::-1] for text in texts]))
    config = TrainingConfig(**{"steps": 1000, "batch_tokens": 2048, "save_every": 10**6, "validate_every": 10**6, **training})
    torch.manual_seed(1)
    model = Transformer(TransformerConfig(**shape), vocabulary, vocabulary).to(device)
    batches = Batches([corpus], [1.0], seed=1, tokens=config.batch_tokens, widths=(64, 64), eos=EOS, fixed=device == "cuda")
    return Trainer(
        run, model, Translation(TranslationConfig(), BOS), batches, config, seed=1, width=model.config.width,
        validate=lambda step: Validation({}, 0.0), progress=Progress(quiet=True),
    )  # fmt: skip


def in_processes(count: int, work: Callable[..., None], *args: Any) -> None:
    """Run work(rank, ...) in so many processes that torch.distributed can join."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    multiprocessing.spawn(_work, (count, port, work, *args), count)


def _work(rank: int, count: int, port: str, work: Callable[..., None], *args: Any) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.set_num_threads(1)
    work(rank, *args)

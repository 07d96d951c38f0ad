"""qkv's decoding: the engine of `qkv translate` with a model of random weights."""

from typing import Any

import numpy as np
import torch

import qkv
from qkv.bench.workers.training import build_model
from qkv.decoding.config import DecodingConfig
from qkv.inference.engines import OwnEngine


class QkvDecoding:
    def __init__(self, job: Any):
        self.job, self.version = job, f"qkv {qkv.__version__}"
        self.engine = OwnEngine(build_model(job).eval())

    def translate(self, sources: list[np.ndarray], beam: int, length: int, batch: int) -> list[list[int]]:
        # The length includes eos, so that all systems take the same number of steps.
        config = DecodingConfig(
            beam=beam, min_length=length - 1, max_length=length, max_extra=length, batch_tokens=1 << 30,
            precision=self.job.options["precision"],
        )  # fmt: skip
        found = []
        for first in range(0, len(sources), batch):
            texts = [text.tolist() for text in sources[first : first + batch]]
            found += [hypotheses[0].ids for hypotheses in self.engine.decode(texts, config)]
        return found


def make(job: Any) -> QkvDecoding:
    torch.set_grad_enabled(False)
    return QkvDecoding(job)

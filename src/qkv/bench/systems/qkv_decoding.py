"""qkv's own engine, as `qkv translate` uses it, over a model with random weights."""

from typing import Any

import numpy as np
import torch

import qkv
from qkv.bench.systems.qkv_training import model_of
from qkv.decoding.config import DecodingConfig
from qkv.inference.engines import OwnEngine


class System:
    def __init__(self, job: Any):
        self.job, self.version = job, f"qkv {qkv.__version__}"
        self.engine = OwnEngine(model_of(job).eval())

    def translate(self, sources: list[np.ndarray], beam: int, length: int, batch: int) -> list[list[int]]:
        # The length counts the end; as many steps as all the others make.
        config = DecodingConfig(
            beam=beam, min_length=length - 1, max_length=length, max_extra=length, batch_tokens=1 << 30,
            precision=self.job.options["precision"],
        )  # fmt: skip
        found = []
        for first in range(0, len(sources), batch):
            texts = [text.tolist() for text in sources[first : first + batch]]
            found += [hypotheses[0].ids for hypotheses in self.engine.decode(texts, config)]
        return found


def make(job: Any) -> System:
    torch.set_grad_enabled(False)
    return System(job)

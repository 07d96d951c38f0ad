"""qkv's generation: the search of `qkv generate` with a GPT of random weights."""

from typing import Any

import numpy as np
import torch

import qkv
from qkv.bench.workers.pretraining import build_model
from qkv.decoding.config import DecodingConfig
from qkv.decoding.search import decode
from qkv.models.gpt import CausalLM
from qkv.parts.decoding_weights import PreparedModel


class QkvGeneration:
    def __init__(self, job: Any):
        self.job, self.version = job, f"qkv {qkv.__version__}"
        torch.manual_seed(job.seed)
        model: Any = build_model(job.size, max_positions=job.max_positions)
        self.model = PreparedModel(CausalLM(model.encoder.to(job.device)).eval())
        self.allowed = torch.arange(job.first, job.size["vocab"])  # ordinary tokens only

    def translate(self, sources: list[np.ndarray], beam: int, length: int, batch: int) -> list[list[int]]:
        """Continue prompts, `batch` at a time."""
        config = DecodingConfig(
            beam=beam, min_length=length - 1, max_length=length, max_ratio=0, max_extra=length,
            precision=self.job.options["precision"],
        )  # fmt: skip
        found = []
        for first in range(0, len(sources), batch):
            prompts = torch.from_numpy(np.stack(sources[first : first + batch])).to(self.job.device)
            outputs = decode(
                self.model, prompts[:, :-1], torch.ones_like(prompts[:, :-1], dtype=torch.bool), config,
                bos=self.job.bos, eos=self.job.eos, pad=self.job.pad,
                allowed=[self.allowed] * len(prompts), last_tokens=prompts[:, -1].tolist(),
            )  # fmt: skip
            found += [hypotheses[0].ids for hypotheses in outputs]
        return found


def make(job: Any) -> QkvGeneration:
    torch.set_grad_enabled(False)
    return QkvGeneration(job)

"""torch.nn.Transformer with tied embeddings, used as in its documentation, and fused Adam."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TorchTranslator(nn.Module):
    """Embeddings and positions around torch.nn.Transformer."""

    def __init__(self, size: dict[str, int], dropout: float):
        super().__init__()
        self.width = size["width"]
        self.embedding = nn.Embedding(size["vocab"], self.width)
        nn.init.normal_(self.embedding.weight, std=self.width**-0.5)
        self.dropout = nn.Dropout(dropout)
        self.body = nn.Transformer(
            self.width, size["heads"], size["layers"], size["layers"], size["feedforward"], dropout, batch_first=True
        )
        angles = torch.arange(512)[:, None] * torch.exp(torch.arange(0, self.width, 2) * (-math.log(10000.0) / self.width))
        self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], -1).flatten(1))

    def embed(self, ids: Tensor) -> Tensor:
        return self.dropout(self.embedding(ids) * self.width**0.5 + self.positions[: ids.size(1)])  # type: ignore[index]

    def forward(self, source: Tensor, read: Tensor, source_pad: Tensor, read_pad: Tensor) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(read.size(1), device=read.device, dtype=torch.bool)
        hidden = self.body(
            self.embed(source), self.embed(read), tgt_mask=causal, tgt_is_causal=True,
            src_key_padding_mask=source_pad, memory_key_padding_mask=source_pad, tgt_key_padding_mask=read_pad,
        )  # fmt: skip
        return F.linear(hidden, self.embedding.weight)


class TorchTraining:
    def __init__(self, job: Any):
        self.job, self.version = job, f"torch {torch.__version__}"
        torch.manual_seed(job.seed)
        self.model = TorchTranslator(job.size, job.dropout).to(job.device).train()
        self.optimiser = torch.optim.Adam(self.model.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=True)
        self.forward = torch.compile(self.loss) if job.options.get("compiled") else self.loss

    def loss(self, source: Tensor, read: Tensor, target: Tensor) -> Tensor:
        pad = self.job.pad
        logits = self.model(source, read, source == pad, read == pad)
        return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=pad, label_smoothing=self.job.smoothing)

    def update(self, batch: Any, rate: float) -> Tensor:
        return self.job.plain_update(
            self.model, self.optimiser, lambda: self.forward(batch.source, batch.read, batch.target), rate
        )


def make(job: Any) -> TorchTraining:
    return TorchTraining(job)

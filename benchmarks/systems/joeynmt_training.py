"""Joey NMT: its model, batch, loss and optimiser, combined as in its TrainManager."""

import math
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor


def _vocabulary(size: int) -> Any:
    from joeynmt.vocabulary import Vocabulary

    special = SimpleNamespace(
        pad_token="<pad>", unk_token="<unk>", bos_token="<s>", eos_token="</s>", sep_token=None, lang_tags=[],
        unk_id=0, pad_id=1, bos_id=2, eos_id=3, sep_id=None,
    )  # fmt: skip
    return Vocabulary([f"w{i}" for i in range(4, size)], special)


class JoeyTraining:
    def __init__(self, job: Any):
        from importlib.metadata import version

        from joeynmt.builders import build_gradient_clipper, build_optimizer
        from joeynmt.model import build_model

        self.job, self.version = job, f"joeynmt {version('joeynmt')}"
        torch.manual_seed(job.seed)
        size = job.size
        side = {
            "type": "transformer", "num_layers": size["layers"], "num_heads": size["heads"], "hidden_size": size["width"],
            "ff_size": size["feedforward"], "dropout": job.dropout, "layer_norm": "post",
            "embeddings": {"embedding_dim": size["width"], "scale": True, "dropout": job.dropout},
        }  # fmt: skip
        config = {
            "initializer": "xavier_uniform", "embed_initializer": "xavier_uniform", "tied_embeddings": True, "tied_softmax": True,
            "encoder": side, "decoder": side,
        }  # fmt: skip
        vocabulary = _vocabulary(size["vocab"])
        self.model = build_model(config, vocabulary, vocabulary).to(job.device).train()
        self.model.loss_function = ("crossentropy", job.smoothing)
        optimiser = {"optimizer": "adam", "learning_rate": 1e-4, "adam_betas": (0.9, 0.98)}
        self.optimiser = build_optimizer(optimiser, self.model.parameters())
        self.clip = build_gradient_clipper({"clip_grad_norm": job.clip, "clip_grad_val": None})
        # Its loss is the KL divergence from the smoothed labels; adding their entropy gives the others' cross-entropy.
        share = job.smoothing / (size["vocab"] - 2)
        self.entropy = -(1 - job.smoothing) * math.log(1 - job.smoothing) - job.smoothing * math.log(share)
        self.batches = {id(batch): self._joey_batch(batch) for batch in job.batches}

    def _joey_batch(self, batch: Any) -> Any:
        """Return a batch in Joey's format; its padding id is 1, which no text uses here."""
        from joeynmt.batch import Batch

        target = torch.cat([batch.read[:, :1], batch.target], 1)
        source, target = (ids.masked_fill(ids == self.job.pad, 1) for ids in (batch.source, target))
        numbers = torch.arange(len(source))
        device = torch.device(self.job.device)
        return Batch(source, batch.source_lengths, None, target, None, numbers, device, pad_index=1, eos_index=self.job.eos)

    def update(self, batch: Any, rate: float) -> Tensor:
        own = self.batches[id(batch)]
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        with self.job.autocast():
            loss = self.model(return_type="loss", **vars(own))[0]
        loss = own.normalize(loss, normalization="tokens")
        loss.backward()
        self.clip(parameters=self.model.parameters())
        self.optimiser.step()
        self.optimiser.zero_grad()
        return loss.detach() + self.entropy


def make(job: Any) -> JoeyTraining:
    return JoeyTraining(job)

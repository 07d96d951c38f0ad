"""Hugging Face's Marian: trained as by its Trainer (fused AdamW, clipping), decoded by `generate` with its cache."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


def build_model(job: Any) -> Any:
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(job.seed)
    size = job.size
    shape = {
        f"{side}_{name}": size[value]
        for side in ("encoder", "decoder")
        for name, value in (("layers", "layers"), ("ffn_dim", "feedforward"), ("attention_heads", "heads"))
    }
    config = MarianConfig(
        vocab_size=size["vocab"], d_model=size["width"], **shape, activation_function="relu", scale_embedding=True,
        dropout=job.dropout, attention_dropout=0.0, activation_dropout=0.0, max_position_embeddings=512,
        init_std=size["width"] ** -0.5,  # with its default of 0.02 it learns nothing in hundreds of updates
        pad_token_id=job.pad, eos_token_id=job.eos, bos_token_id=job.bos,
        decoder_start_token_id=job.bos, forced_eos_token_id=None,
    )  # fmt: skip
    return MarianMTModel(config).to(job.device)


class MarianTraining:
    def __init__(self, job: Any):
        import transformers

        self.job, self.version = job, f"transformers {transformers.__version__}"
        self.model = build_model(job).train()
        self.optimiser = torch.optim.AdamW(self.model.parameters(), betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0, fused=True)
        self.forward = torch.compile(self.loss) if job.options.get("compiled") else self.loss

    def loss(self, source: Tensor, read: Tensor, target: Tensor) -> Tensor:
        # torch's label smoothing: the same value as the Trainer's LabelSmoother, and faster.
        logits = self.model(
            input_ids=source, attention_mask=source != self.job.pad, decoder_input_ids=read, use_cache=False
        ).logits
        return F.cross_entropy(
            logits.flatten(0, 1), target.flatten(), ignore_index=self.job.pad, label_smoothing=self.job.smoothing
        )

    def update(self, batch: Any, rate: float) -> Tensor:
        return self.job.plain_update(
            self.model, self.optimiser, lambda: self.forward(batch.source, batch.read, batch.target), rate
        )


class MarianDecoding:
    def __init__(self, job: Any):
        import transformers

        transformers.logging.set_verbosity_error()
        self.job, self.version = job, f"transformers {transformers.__version__}"
        self.model = build_model(job).eval()
        if job.options["precision"] == "bf16":
            self.model = self.model.to(torch.bfloat16)
        # `generate` compiles its step only with a static cache.
        self.cache = {"cache_implementation": "static"} if job.options.get("compiled") else {}

    @torch.inference_mode()
    def translate(self, sources: list[np.ndarray], beam: int, length: int, batch: int) -> list[list[int]]:
        found = []
        for first in range(0, len(sources), batch):
            found += self.generate(sources[first : first + batch], beam, length)
        return found

    def generate(self, sources: list[np.ndarray], beam: int, length: int) -> list[list[int]]:
        ids = self.job.pad_texts(sources)
        found = self.model.generate(
            ids, attention_mask=(ids != self.job.pad).long(), num_beams=beam, do_sample=False,
            min_new_tokens=length, max_new_tokens=length, **self.cache,
        )  # fmt: skip
        return found[:, 1:].tolist()


def make(job: Any) -> MarianTraining | MarianDecoding:
    return MarianDecoding(job) if job.kind == "decode" else MarianTraining(job)

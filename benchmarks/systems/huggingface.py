"""Hugging Face's BERT, ELECTRA and GPT-2: pretrained as by its Trainer, continued by `generate` with its cache.

The Trainer uses fused AdamW, clipping, and logits at every position. Attention is torch's fused kernel without dropout; no text
is padded, so there is no mask.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

WEIGHT = 50.0  # of the discriminator's loss


def config_values(job: Any, scale: float = 1.0) -> dict[str, Any]:
    """Return the size in transformers' names, scaled for an ELECTRA's generator."""
    size = job.size
    return {
        "vocab_size": size["vocab"], "num_hidden_layers": size["layers"], "hidden_size": round(size["width"] * scale),
        "intermediate_size": round(size["feedforward"] * scale), "num_attention_heads": max(1, round(size["heads"] * scale)),
        "hidden_dropout_prob": job.dropout, "attention_probs_dropout_prob": 0.0, "attn_implementation": "sdpa",
    }  # fmt: skip


class HuggingFaceBert(nn.Module):
    """Masked language modelling."""

    def __init__(self, job: Any):
        from transformers import BertConfig, BertForMaskedLM

        super().__init__()
        self.model = BertForMaskedLM(BertConfig(**config_values(job)))
        self.forward_model = torch.compile(self.model) if job.options.get("compiled") else self.model

    def forward(self, batch: Any) -> Tensor:
        return self.forward_model(input_ids=batch.read, labels=batch.labels).loss


class HuggingFaceElectra(nn.Module):
    """Generator and discriminator with shared embeddings. transformers has the models; its users write the loop."""

    def __init__(self, job: Any):
        from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

        super().__init__()
        embedding = {"embedding_size": job.size["embedding"]}
        self.generator = ElectraForMaskedLM(ElectraConfig(**config_values(job, job.size["generator"]), **embedding))
        self.discriminator = ElectraForPreTraining(ElectraConfig(**config_values(job), **embedding))
        self.discriminator.electra.embeddings = self.generator.electra.embeddings
        compiled = job.options.get("compiled")
        self.run_generator = torch.compile(self.generator) if compiled else self.generator
        self.run_discriminator = torch.compile(self.discriminator) if compiled else self.discriminator

    def forward(self, batch: Any) -> Tensor:
        generated = self.run_generator(input_ids=batch.read, labels=batch.labels)
        read = self.replaced(batch, generated.logits)
        return generated.loss + WEIGHT * self.run_discriminator(input_ids=read, labels=(read != batch.ids).long()).loss

    @torch.no_grad()
    def replaced(self, batch: Any, logits: Tensor) -> Tensor:
        """Replace the masked tokens by samples from the generator."""
        chosen = batch.labels != -100
        logits = logits[chosen].float()
        sampled = (logits - torch.empty_like(logits).exponential_().log()).argmax(-1)
        read = batch.ids.clone()
        read[chosen] = sampled
        return read


def build_gpt(job: Any, max_positions: int, **options: Any) -> Any:
    """Build a GPT-2 of the job's size."""
    from transformers import GPT2Config, GPT2LMHeadModel

    size = job.size
    shape: dict[str, Any] = {
        "n_embd": size["width"],
        "n_inner": size["feedforward"],
        "n_head": size["heads"],
        "n_layer": size["layers"],
    }
    rest = {"vocab_size": size["vocab"], "n_positions": max_positions, "attn_implementation": "sdpa", **options}
    return GPT2LMHeadModel(GPT2Config(**shape, **rest))


class HuggingFaceGpt(nn.Module):
    """Causal language modelling."""

    def __init__(self, job: Any):
        super().__init__()
        self.model = build_gpt(job, job.length, resid_pdrop=job.dropout, embd_pdrop=job.dropout, attn_pdrop=0.0)
        self.forward_model = torch.compile(self.model) if job.options.get("compiled") else self.model

    def forward(self, batch: Any) -> Tensor:
        return self.forward_model(input_ids=batch.ids, labels=batch.ids, use_cache=False).loss


MODELS = {"bert": HuggingFaceBert, "electra": HuggingFaceElectra, "gpt": HuggingFaceGpt}


class HuggingFacePretraining:
    def __init__(self, job: Any):
        import transformers

        transformers.logging.set_verbosity_error()
        self.job, self.version = job, f"transformers {transformers.__version__}"
        torch.manual_seed(job.seed)
        self.model = MODELS[job.size["kind"]](job).to(job.device).train()
        self.optimiser = torch.optim.AdamW(self.model.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=True)

    def update(self, batch: Any, rate: float) -> Tensor:
        return self.job.plain_update(self.model, self.optimiser, lambda: self.model(batch), rate)


class HuggingFaceGeneration:
    def __init__(self, job: Any):
        import transformers

        transformers.logging.set_verbosity_error()
        self.job, self.version = job, f"transformers {transformers.__version__}"
        torch.manual_seed(job.seed)
        special = {"pad_token_id": job.pad, "bos_token_id": job.bos, "eos_token_id": job.eos}
        self.model = build_gpt(job, job.max_positions, **special).to(job.device).eval()
        if job.options["precision"] == "bf16":
            self.model = self.model.to(torch.bfloat16)
        # `generate` compiles its step only with a static cache.
        self.cache = {"cache_implementation": "static"} if job.options.get("compiled") else {}

    @torch.inference_mode()
    def translate(self, sources: list[np.ndarray], beam: int, length: int, batch: int) -> list[list[int]]:
        found = []
        for first in range(0, len(sources), batch):
            ids = torch.from_numpy(np.stack(sources[first : first + batch])).to(self.job.device)
            outputs = self.model.generate(
                ids, attention_mask=torch.ones_like(ids), num_beams=beam, do_sample=False,
                min_new_tokens=length, max_new_tokens=length, **self.cache,
            )  # fmt: skip
            found += outputs[:, ids.size(1) :].tolist()
        return found


def make(job: Any) -> HuggingFacePretraining | HuggingFaceGeneration:
    return HuggingFaceGeneration(job) if job.kind == "decode" else HuggingFacePretraining(job)

"""Hugging Face's BERT, ELECTRA and GPT-2, pretrained as their Trainer would: fused AdamW, clipping, scores at every place.

Attention is torch's fused kernel without dropout; no text is padded, so that no mask is needed either.
"""

from typing import Any

import torch
from torch import Tensor, nn

WEIGHT = 50.0  # of the discriminator's loss


def shape_of(job: Any, part: float = 1.0) -> dict[str, Any]:
    """What transformers calls it, in full or as a generator has it."""
    size = job.size
    return {
        "vocab_size": size["vocab"], "num_hidden_layers": size["layers"], "hidden_size": round(size["width"] * part),
        "intermediate_size": round(size["feedforward"] * part), "num_attention_heads": max(1, round(size["heads"] * part)),
        "hidden_dropout_prob": job.dropout, "attention_probs_dropout_prob": 0.0, "attn_implementation": "sdpa",
    }  # fmt: skip


class Bert(nn.Module):
    """Masked words."""

    def __init__(self, job: Any):
        from transformers import BertConfig, BertForMaskedLM

        super().__init__()
        self.model = BertForMaskedLM(BertConfig(**shape_of(job)))
        self.forward_model = torch.compile(self.model) if job.options.get("compiled") else self.model

    def forward(self, batch: Any) -> Tensor:
        return self.forward_model(input_ids=batch.read, labels=batch.labels).loss


class Electra(nn.Module):
    """Generator and discriminator over the same embeddings. transformers has the models; the loop is for its users to write."""

    def __init__(self, job: Any):
        from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

        super().__init__()
        narrow = {"embedding_size": job.size["embedding"]}
        self.generator = ElectraForMaskedLM(ElectraConfig(**shape_of(job, job.size["generator"]), **narrow))
        self.discriminator = ElectraForPreTraining(ElectraConfig(**shape_of(job), **narrow))
        self.discriminator.electra.embeddings = self.generator.electra.embeddings
        compiled = job.options.get("compiled")
        self.guess = torch.compile(self.generator) if compiled else self.generator
        self.judge = torch.compile(self.discriminator) if compiled else self.discriminator

    def forward(self, batch: Any) -> Tensor:
        guessed = self.guess(input_ids=batch.read, labels=batch.labels)
        read = self.replaced(batch, guessed.logits)
        return guessed.loss + WEIGHT * self.judge(input_ids=read, labels=(read != batch.ids).long()).loss

    @torch.no_grad()
    def replaced(self, batch: Any, scores: Tensor) -> Tensor:
        """The texts with tokens drawn from the generator's scores where some were masked."""
        chosen = batch.labels != -100
        scores = scores[chosen].float()
        drawn = (scores - torch.empty_like(scores).exponential_().log()).argmax(-1)
        read = batch.ids.clone()
        read[chosen] = drawn
        return read


def gpt_of(job: Any, positions: int, **options: Any) -> Any:
    """A GPT-2 of the job's size, for texts of so many places."""
    from transformers import GPT2Config, GPT2LMHeadModel

    size = job.size
    shape: dict[str, Any] = {
        "n_embd": size["width"],
        "n_inner": size["feedforward"],
        "n_head": size["heads"],
        "n_layer": size["layers"],
    }
    rest = {"vocab_size": size["vocab"], "n_positions": positions, "attn_implementation": "sdpa", **options}
    return GPT2LMHeadModel(GPT2Config(**shape, **rest))


class Gpt(nn.Module):
    """The next words."""

    def __init__(self, job: Any):
        super().__init__()
        self.model = gpt_of(job, job.length, resid_pdrop=job.dropout, embd_pdrop=job.dropout, attn_pdrop=0.0)
        self.forward_model = torch.compile(self.model) if job.options.get("compiled") else self.model

    def forward(self, batch: Any) -> Tensor:
        return self.forward_model(input_ids=batch.ids, labels=batch.ids, use_cache=False).loss


MODELS = {"bert": Bert, "electra": Electra, "gpt": Gpt}


class System:
    def __init__(self, job: Any):
        import transformers

        transformers.logging.set_verbosity_error()
        self.job, self.version = job, f"transformers {transformers.__version__}"
        torch.manual_seed(job.seed)
        self.model = MODELS[job.size["kind"]](job).to(job.device).train()
        self.optimiser = torch.optim.AdamW(self.model.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=True)

    def update(self, batch: Any, rate: float) -> Tensor:
        return self.job.plain_update(self.model, self.optimiser, lambda: self.model(batch), rate)


def make(job: Any) -> System:
    return System(job)

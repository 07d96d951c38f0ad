"""Hugging Face's GPT-2, going on with prompts by `generate` and its cache."""

from typing import Any

import numpy as np
import torch

from qkv.bench.systems.huggingface_pretraining import gpt_of


class System:
    def __init__(self, job: Any):
        import transformers

        transformers.logging.set_verbosity_error()
        self.job, self.version = job, f"transformers {transformers.__version__}"
        torch.manual_seed(job.seed)
        special = {"pad_token_id": job.pad, "bos_token_id": job.bos, "eos_token_id": job.eos}
        self.model = gpt_of(job, job.max_positions, **special).to(job.device).eval()
        if job.options["precision"] == "bf16":
            self.model = self.model.to(torch.bfloat16)
        # A cache of fixed size is what lets `generate` compile its step.
        self.cache = {"cache_implementation": "static"} if job.options.get("compiled") else {}

    @torch.inference_mode()
    def translate(self, sources: list[np.ndarray], beam: int, length: int, batch: int) -> list[list[int]]:
        found = []
        for first in range(0, len(sources), batch):
            ids = torch.from_numpy(np.stack(sources[first : first + batch])).to(self.job.device)
            told = self.model.generate(
                ids, attention_mask=torch.ones_like(ids), num_beams=beam, do_sample=False,
                min_new_tokens=length, max_new_tokens=length, **self.cache,
            )  # fmt: skip
            found += told[:, ids.size(1) :].tolist()
        return found


def make(job: Any) -> System:
    return System(job)

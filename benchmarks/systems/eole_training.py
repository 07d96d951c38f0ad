"""eole: its model, loss and optimiser, combined as in its trainer. Its padding id is 1, which no text uses here."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

WORDS = ["<unk>", "<blank>", "<s>", "</s>"]
SPECIALS = {"bos_token": "<s>", "pad_token": "<blank>", "eos_token": "</s>", "unk_token": "<unk>"}


class EoleTraining:
    def __init__(self, job: Any):
        from importlib.metadata import version

        from eole.inputters.inputter import dict_to_vocabs
        from eole.models.model import get_model_class
        from eole.utils.loss import LossCompute
        from eole.utils.optimizers import Optimizer

        self.job, self.version = job, f"eole {version('eole')}"
        torch.manual_seed(job.seed)
        words = WORDS + [f"w{i}" for i in range(len(WORDS), job.size["vocab"])]
        vocabs = dict_to_vocabs({"src": words, "tgt": words, "decoder_start_token": "<s>", "specials": SPECIALS})
        config = _config(job)
        position = 0 if job.device == "cuda" else -1
        self.model = get_model_class(config.model).for_training(config.model, vocabs, config.training, device_id=position)
        self.model.to(job.device).train()
        self.criterion = LossCompute.from_config(config, self.model, vocabs)
        self.optimiser = Optimizer.from_config(self.model, config)
        self.optimiser._learning_rate_decay_fn = None  # each update sets the rate
        self.batches = {id(batch): _eole_batch(batch, job.pad) for batch in job.batches}

    def update(self, batch: Any, rate: float) -> Tensor:
        own = self.batches[id(batch)]
        self.optimiser._learning_rate = rate
        self.optimiser.zero_grad(set_to_none=True)
        with self.job.autocast():
            out, attention, estimate = self.model(own["src"], own["tgt"], own["srclen"])
            loss, _, _ = self.criterion(own, out, attention, estim=estimate)
        loss = loss / batch.tokens
        self.optimiser.backward(loss)
        self.optimiser.step()
        return loss.detach()


def _config(job: Any) -> Any:
    from eole.config.models import TransformerModelConfig
    from eole.config.training import TrainingConfig

    size = job.size
    model = TransformerModelConfig(
        layers=size["layers"], heads=size["heads"], hidden_size=size["width"], transformer_ff=size["feedforward"],
        mlp_activation_fn="relu", share_embeddings=True, share_decoder_embeddings=True,
        embeddings={"word_vec_size": size["width"], "position_encoding_type": "SinusoidalInterleaved"},
    )  # fmt: skip
    training = TrainingConfig(
        dropout=[job.dropout], attention_dropout=[job.dropout], label_smoothing=job.smoothing, optim="adam", adam_beta2=0.98,
        max_grad_norm=job.clip, learning_rate=1e-4, decay_method="none", param_init_method="xavier_uniform", compute_dtype="fp32",
        world_size=int(job.device == "cuda"), gpu_ranks=[0] if job.device == "cuda" else [],
    )  # fmt: skip
    return SimpleNamespace(model=model, training=training)


def _eole_batch(batch: Any, pad: int) -> dict[str, Any]:
    target = torch.cat([batch.read[:, :1], batch.target], 1)
    source, target = (ids.masked_fill(ids == pad, 1) for ids in (batch.source, target))
    origin = {"cid": ["one"] * len(source), "cid_line_number": [0] * len(source)}  # for its statistics
    return {"src": source, "tgt": target, "srclen": batch.source_lengths, **origin}


def make(job: Any) -> EoleTraining:
    return EoleTraining(job)

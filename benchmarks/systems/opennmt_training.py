"""OpenNMT-py: its model, loss and optimiser, combined as in its trainer. Its padding id is 1, which no text uses here."""

from typing import Any

import torch
from torch import Tensor

WORDS = ["<unk>", "<blank>", "<s>", "</s>"]


class OpenNmtTraining:
    def __init__(self, job: Any):
        from importlib.metadata import version

        from onmt.inputters.inputter import dict_to_vocabs
        from onmt.model_builder import build_model
        from onmt.utils.loss import LossCompute
        from onmt.utils.optimizers import Optimizer

        self.job, self.version = job, f"OpenNMT-py {version('OpenNMT-py')}"
        torch.manual_seed(job.seed)
        words = WORDS + [f"w{i}" for i in range(len(WORDS), job.size["vocab"])]
        vocabs = dict_to_vocabs({"src": words, "tgt": words, "data_task": "seq2seq", "decoder_start_token": "<s>"})
        options = _options(job)
        self.model = build_model(options, options, vocabs, None, -1).to(job.device).train()
        self.criterion = LossCompute.from_opts(options, self.model, vocabs["tgt"]).to(job.device)
        self.optimiser = Optimizer.from_opt(self.model, options)
        self.optimiser._learning_rate_decay_fn = None  # each update sets the rate
        self.batches = {id(batch): _onmt_batch(batch, job.pad) for batch in job.batches}

    def update(self, batch: Any, rate: float) -> Tensor:
        own = self.batches[id(batch)]
        self.optimiser._learning_rate = rate
        self.optimiser.zero_grad(set_to_none=True)
        with self.job.autocast():
            out, attention = self.model(own["src"], own["tgt"], own["srclen"])
            loss, _ = self.criterion(own, out, attention)
        loss = loss / batch.tokens
        self.optimiser.backward(loss)
        self.optimiser.step()
        return loss.detach()


def _options(job: Any) -> Any:
    """Return the options that its command line would parse; all others keep their defaults."""
    from onmt.opts import train_opts
    from onmt.utils.parse import ArgumentParser

    size = job.size
    switches = ["share_vocab", "share_embeddings", "share_decoder_embeddings", "position_encoding", "param_init_glorot"]
    values = {
        "data": "none", "src_vocab": "none", "encoder_type": "transformer", "decoder_type": "transformer", "optim": "adam",
        "enc_layers": size["layers"], "dec_layers": size["layers"], "heads": size["heads"], "hidden_size": size["width"],
        "word_vec_size": size["width"], "transformer_ff": size["feedforward"], "dropout": job.dropout,
        "attention_dropout": job.dropout,
        "label_smoothing": job.smoothing, "adam_beta2": 0.98, "max_grad_norm": job.clip, "param_init": 0, "learning_rate": 1e-4,
    }  # fmt: skip
    parser = ArgumentParser()
    train_opts(parser)
    words = [f"-{name}" for name in switches] + [word for name, value in values.items() for word in (f"-{name}", str(value))]
    options = parser.parse_args(words)
    ArgumentParser.update_model_opts(options)
    ArgumentParser.validate_model_opts(options)
    return options


def _onmt_batch(batch: Any, pad: int) -> dict[str, Tensor]:
    target = torch.cat([batch.read[:, :1], batch.target], 1)
    source, target = (ids.masked_fill(ids == pad, 1)[..., None] for ids in (batch.source, target))
    return {"src": source, "tgt": target, "srclen": batch.source_lengths}


def make(job: Any) -> OpenNmtTraining:
    return OpenNmtTraining(job)

"""qkv's training: the loop of `qkv train`, paused between rounds; or, bare, its update over prepared batches."""

import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import qkv
from qkv.data.batches import START, Batch, Batches, make_batch, max_length
from qkv.data.packing import pack
from qkv.data.tokens import TokenPairs, token_texts
from qkv.jobs.prepared_pairs import ROW_STEP
from qkv.models.transformer import Transformer, TransformerConfig
from qkv.objectives.translation import Translation, TranslationConfig
from qkv.training.captured import own_stream
from qkv.training.config import TrainingConfig
from qkv.training.loop import BatchSource, Trainer, TrainingObjective, Validation
from qkv.training.progress import Progress

NEVER = 10**9
BATCHES = 12  # prepared for bare updates


def build_model(job: Any) -> Transformer:
    """Build a Transformer of the job's size with random weights."""
    torch.manual_seed(job.seed)
    size = job.size
    config = TransformerConfig(
        width=size["width"], feedforward=size["feedforward"], heads=size["heads"], dropout=job.dropout,
        encoder_layers=size["layers"], decoder_layers=size["layers"],
    )  # fmt: skip
    return Transformer(config, size["vocab"], size["vocab"]).to(job.device)


class PausedTrainer(Trainer):
    """The trainer of `qkv train`, which asks `rounds` before each update whether to continue."""

    rounds: Any
    tokens_per_update: int | None = None  # counted instead of a batch's tokens, where those are its targets alone

    def finished(self) -> bool:
        return not self.rounds.more()

    def update(self, batch: Batch) -> None:
        super().update(batch)
        self.rounds.count(self.tokens_per_update or batch.tokens)


def build_trainer(job: Any, model: nn.Module, objective: TrainingObjective, batches: BatchSource, tokens: int) -> PausedTrainer:
    """Build a trainer that never ends, validates or saves by itself."""
    settings = TrainingConfig(
        steps=NEVER, batch_tokens=tokens, learning_rate=job.peak, warmup=job.warmup, clip=job.clip,
        validate_every=NEVER, save_every=NEVER, device=job.device, precision=job.options["precision"],
    )  # fmt: skip
    trainer = PausedTrainer(
        Path(tempfile.mkdtemp(dir=job.folder)), model, objective, batches, settings, seed=job.seed,
        width=job.size["width"], validate=lambda step: Validation({}, 0.0), progress=Progress(quiet=True),
    )  # fmt: skip
    trainer.rounds = NoCount()
    return trainer


class TrainingLoop:
    """The whole loop: the loader's thread packs and shuffles batches while the model trains."""

    def __init__(self, job: Any, trainer: PausedTrainer):
        self.job, self.trainer, self.version = job, trainer, f"qkv {qkv.__version__}"

    def train(self, rounds: Any) -> None:
        self.trainer.rounds = rounds
        self.trainer.train()


class BareUpdates(TrainingLoop):
    """The update alone, without loader and log."""

    def train(self, rounds: Any) -> None:
        self.trainer.rounds = rounds
        self.trainer.model.train()
        prepared = [self.trainer.local_rows(batch) for batch in itertools.islice(self.trainer.batches.starting(START), BATCHES)]
        with own_stream(self.trainer.device):
            for batch in itertools.cycle(prepared):
                if not rounds.more():
                    break
                self.trainer.update(batch)


class LossCurve(TrainingLoop):
    """Updates on the same pairs that the other systems get, packed."""

    def update(self, batch: Any, rate: float) -> Tensor:
        """Run one update at the trainer's own learning rate, which must equal `rate`."""
        self.trainer.model.train()
        numbers = self.job.chosen[self.trainer.state.step % len(self.job.chosen)]
        sources, targets = [self.job.source[n] for n in numbers], [self.job.target[n] for n in numbers]
        widths = self.trainer.batches.widths  # type: ignore[attr-defined]
        rows = pack(np.array([len(s) for s in sources]), np.array([len(t) + 1 for t in targets]), widths)
        source, target = ([[texts[i] for i in row] for row in rows] for texts in (sources, targets))
        packed = make_batch(source, target, widths, self.job.eos)
        assert packed.tokens == batch.tokens
        with own_stream(self.trainer.device):
            self.trainer.update(self.trainer.local_rows(packed))
        assert abs(self.trainer.rate - rate) < 1e-9
        return self.trainer.window[-1][0]


class NoCount:
    """Rounds of a trainer that is called update by update."""

    def count(self, tokens: int) -> None:
        pass


def translation_trainer(job: Any) -> PausedTrainer:
    """Build the trainer that `qkv train` builds for a recipe with these pairs."""
    pairs = TokenPairs(token_texts(map(np.ndarray.tolist, job.source)), token_texts(map(np.ndarray.tolist, job.target)))
    most = max(max_length(pairs.source), max_length(pairs.target) + 1)
    width = max(-(-most // ROW_STEP), 2) * ROW_STEP  # as jobs/translation chooses it
    tokens = job.size["tokens"]
    batches = Batches(
        [pairs], [1.0], seed=job.seed, tokens=tokens, widths=(width, width), eos=job.eos, fixed=job.device == "cuda"
    )
    return build_trainer(job, build_model(job), Translation(TranslationConfig(smoothing=job.smoothing), job.bos), batches, tokens)


def make(job: Any) -> TrainingLoop:
    kind = LossCurve if job.kind == "curve" else BareUpdates if job.options.get("bare") else TrainingLoop
    return kind(job, translation_trainer(job))

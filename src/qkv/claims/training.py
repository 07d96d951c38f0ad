"""Training for claims: a recipe of qkv, changed in one thing, trained in this process by the jobs that users have.

Everything is as in `qkv train`, but for the end: no choice among checkpoints, no report. The last weights are measured.
"""

import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qkv.base.errors import DataError
from qkv.base.files import atomic_file
from qkv.claims.claim import Cell
from qkv.folder.run import load_tokenizers, lock_run, open_run
from qkv.folder.start import complete_recipe
from qkv.jobs.job import Job
from qkv.jobs.prepared_pairs import UNFILTERED
from qkv.jobs.train import JOBS, resolve_recipe
from qkv.recipes import Recipe
from qkv.training.log import read_metrics
from qkv.training.loop import Trainer, Validation
from qkv.training.progress import Progress

TextPair = tuple[str, str]
Watch = Callable[[int], None]  # looks into a network after some number of updates
# What all trainings of claims share: the last weights, and all pairs as they are.
QUIET = {"training.averaging": "none", "training.log_every": 50}
ALL_PAIRS = {f"data.check.{key}": value for key, value in UNFILTERED.model_dump().items() if key != "overlap"}
# Small models that two cores train in seconds, on words between spaces; recipes say what they leave open.
TRANSFORMER = {
    "data.protect": False, "tokenizer.shared": {"kind": "words"}, "objective.smoothing": 0.0, "model.width": 64,
    "model.feedforward": 128, "model.heads": 4, "model.encoder_layers": 2, "model.decoder_layers": 2, "model.dropout": 0.0,
    "training.learning_rate": 0.003, "training.batch_tokens": 1024, "training.row_width": 64,
}  # fmt: skip
RNN = {
    "data.protect": False, "tokenizer.shared": {"kind": "words"}, "objective.smoothing": 0.0, "model.width": 96,
    "model.embedding_width": 64, "model.layers": 1, "model.dropout": 0.0, "training.learning_rate": 0.003,
    "training.batch_tokens": 1024,
}  # fmt: skip
ENCODER = {
    "tokenizer": {"kind": "words", "special_tokens": ["[MASK]"]}, "data.length": 64, "model.width": 64, "model.feedforward": 128,
    "model.heads": 4, "model.layers": 2, "model.dropout": 0.0, "training.learning_rate": 0.002, "training.batch_tokens": 2048,
}  # fmt: skip
GPT = {**ENCODER, "tokenizer": {"kind": "words"}}
# For documents of one sentence: attention finds its way among ten words much sooner than among sixty.
SENTENCE_ENCODER = {**ENCODER, "data.length": 32, "training.batch_tokens": 1024, "training.learning_rate": 0.003}
# For electra-small: two networks that are trained together from the start, as in ELECTRA's paper.
TWO_NETWORKS = {
    "model.tied_generator": False, "objective.generator_alone": 0, "objective.discriminator_warmup": 0,
    "objective.discriminator_weight": 5, "objective.mask": 1, "objective.random": 0, "objective.keep": 0, "training.warmup": 0.2,
}  # fmt: skip
# A variant without pretraining: one update that changes nothing.
NO_PRETRAINING = {"steps": 1, "training.learning_rate": 1e-12}
# What a GPU trains in a minute, as settings of a size.
GPU_ENCODER = {
    "model.width": 128, "model.feedforward": 512, "model.layers": 3, "training.batch_tokens": 8192,
    "training.learning_rate": 0.001,
}  # fmt: skip
GPU_TRANSFORMER = {
    "model.width": 256, "model.feedforward": 1024, "model.encoder_layers": 4, "model.decoder_layers": 4,
    "training.batch_tokens": 8192, "training.learning_rate": 0.001,
}  # fmt: skip


@dataclass
class Trained:
    """A trained run, ready to be measured."""

    recipe: Recipe
    job: Job
    folder: Path
    seconds: float

    @property
    def model(self) -> Any:
        """The network with the last weights, set to evaluation."""
        return self.job.model

    @property
    def parameters(self) -> int:
        """The number of weights."""
        return sum(p.numel() for p in self.job.model.parameters())

    def curve(self, name: str = "loss") -> list[float]:
        """Return a figure of the training log, one value every `training.log_every` updates."""
        return [row[name] for row in read_metrics(self.folder) if name in row]

    def loss(self) -> float:
        """Return the loss on dev, in nats per label."""
        validator: Any = self.job.validator
        return float(validator.loss() if hasattr(validator, "loss") else validator.score()["dev_loss"])

    def mean_loss(self) -> float:
        """Return the training loss averaged over all updates: the sooner a network learns, the lower, wherever it ends."""
        return statistics.mean(self.curve())

    def scores(self) -> dict[str, float]:
        """Return all figures of pretraining or fine-tuning on dev, such as dev_perplexity or accuracy."""
        validator: Any = self.job.validator
        return validator.score(validator.examples.dev) if hasattr(validator, "examples") else validator.score()

    def translate(self, texts: Sequence[str], **options: Any) -> list[str]:
        """Return the greedy translations of texts; options are those of a recipe's decoding."""
        validator: Any = self.job.validator
        return validator.translator().translate(list(texts), **{"beam": 1, "split": "never", **options})

    def exact(self, pairs: Sequence[TextPair]) -> float:
        """Return the share of texts that are translated without a mistake."""
        outputs = self.translate([source for source, _ in pairs])
        return sum(output == target for output, (_, target) in zip(outputs, pairs, strict=True)) / len(pairs)

    def word_accuracy(self, pairs: Sequence[TextPair]) -> float:
        """Return the share of the target's words that the translation has at the same position."""
        right = total = 0
        for output, (_, target) in zip(self.translate([source for source, _ in pairs]), pairs, strict=True):
            got, wanted = output.split(), target.split()
            right += sum(a == b for a, b in zip(got, wanted, strict=False))
            total += len(wanted)
        return right / max(1, total)

    def token_ids(self, pairs: Sequence[TextPair]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the ids of sources (N, S), of what the decoder reads (N, T), and of the labels of its T steps (N, T).

        Texts of a side must have equal lengths. The last step, which writes the end of the text, is left out.
        """
        tokenizers = load_tokenizers(self.folder)
        assert tokenizers is not None
        sides = [tokenizers.source.encode_batch([source for source, _ in pairs])]
        sides += [tokenizers.target.encode_batch([target for _, target in pairs])]
        if any(len({*map(len, ids)}) > 1 for ids in sides):
            raise DataError("token_ids takes texts of equal lengths; draw them with lengths=(12, 12)")
        source, labels = map(torch.tensor, sides)
        return source, torch.cat([torch.full_like(labels[:, :1], tokenizers.target.bos), labels[:, :-1]], 1), labels


def train(
    cell: Cell,
    recipe: str,
    settings: Mapping[str, Any],
    *,
    steps: int,
    change: Callable[[Job], Watch | None] | None = None,
    finish: bool = False,
    name: str = "run",
) -> Trained:
    """Train a recipe of qkv with some settings; those of the cell with a dot in their name come last.

    `change` receives the job before training, for what no recipe can say. If it returns a function, that is called every
    `training.validate_every` updates, with their number, while the network is set to evaluation. `finish` also does what
    `qkv train` does at the end, so that the folder can be the `start` of another training, or be opened with `qkv.load`.
    """
    fixed = {
        "seed": cell.seed, "training.steps": steps, "training.save_every": steps, "training.validate_every": steps,
        "training.device": cell.device, **({"training.precision": "float32"} if cell.device == "cpu" else {}),
    }  # fmt: skip
    given = {**QUIET, **fixed, **settings, **cell.recipe_settings}
    # In the form of `--set`, where a section such as tokenizer.shared is replaced as a whole.
    spelled = [f"{key}={json.dumps(str(value) if isinstance(value, Path) else value)}" for key, value in given.items()]
    wanted = complete_recipe(resolve_recipe(recipe, spelled))
    folder, progress = cell.new_folder(name), Progress(quiet=True)
    began = time.monotonic()
    with lock_run(folder):
        open_run(folder, wanted, False)
        job = JOBS[wanted.job](wanted, folder, progress, False)
        data: Any = getattr(job.validator, "data", None)  # a translator's
        if data is not None:
            expected, kept = sum(report.read for _, report in data.reports), sum(len(pairs) for pairs in data.train)
            if kept < expected:
                raise DataError(
                    f"{expected - kept:,} of {expected:,} training pairs would be dropped (data.check, data.max_tokens)"
                )
        watch = change(job) if change is not None else None

        def validate(step: int) -> Validation:
            if watch is not None:
                watch(step)
            return Validation({}, 0.0)

        trainer = Trainer(
            folder, job.model, job.objective, job.batches, job.training, seed=wanted.seed, width=wanted.model.width,
            validate=validate, progress=progress,
        )  # fmt: skip
        trainer.train()
        if trainer.signals.number is not None:
            raise KeyboardInterrupt
        trainer.release()
        seconds = time.monotonic() - began
        job.validator.use_float32()
        if finish:
            job.finish(trainer)
    job.model.eval()
    return Trained(wanted, job, folder, seconds)


def larger_weights(job: Job) -> None:
    """Scale the initial weights of linear layers from a spread of 0.02, as in BERT and GPT, to one of 1 / √width.

    Narrow networks learn to attend by content many times faster with it.
    """
    model: Any = job.model
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.weight.data.mul_(1 / (0.02 * math.sqrt(model.encoder.config.width)))


def train_pairs(
    cell: Cell,
    recipe: str,
    settings: Mapping[str, Any],
    train_on: Sequence[TextPair],
    dev: Sequence[TextPair],
    **options: Any,
) -> Trained:
    """Train a translator on pairs of texts; see `train` for the options."""
    files = {"data.train": write_pairs(cell, "train", train_on), "data.dev": write_pairs(cell, "dev", dev)}
    return train(cell, recipe, {**ALL_PAIRS, **files, **settings}, **options)


def train_text(
    cell: Cell,
    recipe: str,
    settings: Mapping[str, Any],
    documents: Iterable[Sequence[str]],
    dev: Iterable[Sequence[str]],
    **options: Any,
) -> Trained:
    """Pretrain on documents, each a list of sentences; see `train` for the options."""
    files = {"data.text": write_documents(cell, "text", documents), "data.dev": write_documents(cell, "dev", dev)}
    return train(cell, recipe, {**files, **settings}, **options)


def train_labels(
    cell: Cell,
    start: Trained,
    train_on: Sequence[TextPair],
    dev: Sequence[TextPair],
    *,
    name: str = "tuned",
    rate: float = 0.002,
    **options: Any,
) -> Trained:
    """Fine-tune a pretrained run, which was finished, on texts with labels; the cell's settings are those of pretraining."""
    files = {
        "data.train": write_pairs(cell, f"{name}-train", [("text", "label"), *train_on]),
        "data.dev": write_pairs(cell, f"{name}-dev", [("text", "label"), *dev]),
    }
    fixed = {"start": start.folder, "training.epochs": None, "training.batch_tokens": 1024, "training.learning_rate": rate}
    return train(replace(cell, settings={}), "finetune", {**fixed, **files}, name=name, **options)


def write_pairs(cell: Cell, name: str, pairs: Iterable[tuple[str, ...]]) -> str:
    """Write rows of a table, such as pairs of texts or texts with labels; return the path."""
    path = cell.folder / f"{name}.tsv"
    with atomic_file(path) as aside:
        aside.write_text("".join("\t".join(row) + "\n" for row in pairs), encoding="utf-8")
    return str(path)


def write_documents(cell: Cell, name: str, documents: Iterable[Sequence[str]]) -> str:
    """Write documents, a sentence a line and a blank line after each document; return the path."""
    path = cell.folder / f"{name}.txt"
    with atomic_file(path) as aside:
        aside.write_text("".join("\n".join(document) + "\n\n" for document in documents), encoding="utf-8")
    return str(path)

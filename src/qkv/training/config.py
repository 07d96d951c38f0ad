"""The `training` section of a recipe."""

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from qkv.base.config import Config
from qkv.base.snapshots import SnapshotCount
from qkv.training.trackers import TrackerName

MAX_WARMUP = 0.3  # largest share of all updates for a warm-up that is given as a number of updates


class TrainingConfig(Config):
    """Length, batches, optimiser, checkpoints, validation. The defaults are the paper's, with a batch size for one device."""

    steps: int | None = Field(default=None, gt=0)  # updates in all
    minutes: float | None = Field(default=None, gt=0)  # time budget: once a few updates have been timed, it limits the steps
    epochs: int | None = Field(default=None, gt=0)  # fine-tuning only: passes over the examples, each ending with a validation
    batch_tokens: int = Field(default=25000, gt=0)  # target tokens per update, over all processes
    shard: bool = False  # whether each process holds only some rows of each weight: for models that fit no single device
    accumulate: int = Field(default=1, gt=0)  # micro-batches per batch: less memory, same result
    row_width: int | None = Field(default=None, gt=0)  # tokens in a packed row; set by the longest text when not given
    betas: tuple[float, float] = (0.9, 0.98)  # Adam's
    epsilon: float = Field(default=1e-9, gt=0)  # Adam's
    weight_decay: float = Field(default=0.0, ge=0)  # decoupled (AdamW); not on norms, biases and embeddings
    start_penalty: float = Field(default=0.0, ge=0)  # L2-SP: this / 2 times the squared distance from the weights of `start`
    schedule: Literal["inverse-sqrt", "cosine", "linear"] = "inverse-sqrt"
    learning_rate: float | None = Field(default=None, gt=0)  # its peak; the paper's width^-0.5 warmup^-0.5 when not given
    warmup: float = Field(default=4000, ge=0)  # updates until the peak, at most 30 % of all; below 1, a fraction of all
    layer_decay: float = Field(default=1.0, gt=0, le=1)  # each layer's learning rate, relative to the layer above
    clip: float = Field(default=1.0, ge=0)  # largest norm of the gradient; 0 = no limit
    averaging: Literal["checkpoints", "ema", "none"] = "checkpoints"  # how the final weights are averaged
    ema_decay: float = Field(default=0.999, gt=0, lt=1)
    validate_every: int = Field(default=1000, gt=0)  # updates
    save_every: int = Field(default=1000, gt=0)
    keep: int = Field(default=5, gt=0)  # newest checkpoints that are kept, and averaged at the end
    keep_checkpoints: bool = False  # whether a finished run keeps its checkpoints, which training it further needs
    snapshots: SnapshotCount = 0  # small copies of the weights at log-spaced steps, to look at; 0 keeps none
    patience: int | None = Field(default=None, gt=0)  # validations without a better score before training stops early
    precision: Literal["auto", "bf16", "float32"] = "auto"
    device: str = "auto"
    log_every: int = Field(default=50, gt=0)  # updates
    trackers: tuple[TrackerName, ...] = ()  # mlflow, wandb: where figures are shown beside metrics.jsonl and TensorBoard
    project: str = Field(default="qkv", min_length=1)  # the trackers' name for runs that belong together

    @field_validator("trackers", mode="before")
    @classmethod
    def _short_form(cls, given: Any) -> Any:
        return [given] if isinstance(given, str) else given or ()

    @model_validator(mode="after")
    def _length_is_given(self) -> "TrainingConfig":
        if self.steps is None and self.minutes is None and self.epochs is None:
            raise ValueError("give training.steps or training.minutes (in fine-tuning also training.epochs)")
        return self

    @property
    def intervals(self) -> dict[str, int]:
        """The keys that count updates between two validations, checkpoints and lines of the log, with their values."""
        return {name: getattr(self, name) for name in ("validate_every", "save_every", "log_every")}

    def configured_warmup(self, steps: int) -> float:
        """Return the updates until the peak as the recipe gives them, in a training of `steps` updates."""
        return self.warmup if self.warmup >= 1 else self.warmup * steps

    def warmup_steps(self, steps: int) -> int:
        """Return the updates until the peak: a number of updates is shortened where it is too large a share of all."""
        longest = max(1, MAX_WARMUP * steps) if self.warmup >= 1 else steps
        return int(min(self.configured_warmup(steps), longest))

    def with_longest_interval(self, updates: int) -> "TrainingConfig":
        """Return a copy that validates, saves and logs at least every so many updates."""
        return self.model_copy(update={name: min(every, updates) for name, every in self.intervals.items()})

"""Recipes of fine-tuning on labelled examples."""

from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import Field, field_validator, model_validator

from qkv.base.config import Config
from qkv.base.errors import ConfigError
from qkv.data.encoding import EncodingConfig
from qkv.objectives import OBJECTIVES
from qkv.recipes.checks import Names, check_initial, check_new_tokenizer, refuse_penalty_without_start
from qkv.recipes.embeddings import EmbeddingsConfig
from qkv.text.examples import ExampleColumns, ExamplesConfig
from qkv.text.tokenizer import TokenizerConfig
from qkv.training.config import TrainingConfig

M = TypeVar("M")  # the config of a model
T = TypeVar("T", bound=Config)  # the config of an objective


class LabelledData(EncodingConfig, ExampleColumns):
    """Files of examples, their columns, and the length of their texts."""

    train: tuple[str, ...] = Field(min_length=1)  # files, or patterns
    dev: tuple[str, ...] = Field(min_length=1)
    test: tuple[str, ...] = ()

    @field_validator("train", "dev", "test", mode="before")
    @classmethod
    def _short_form(cls, given: Any) -> Any:
        return [given] if isinstance(given, str) else given or ()

    def examples(self, files: tuple[str, ...], trees: bool = False) -> ExamplesConfig:
        """Return how to read some of the files."""
        columns = {name: getattr(self, name) for name in ExampleColumns.model_fields}
        return ExamplesConfig(files=files, trees=trees, **columns)


class FinetuningTraining(TrainingConfig):
    """Training on labelled examples: `auto` follows from their number, see jobs/finetuning.py."""

    epochs: Annotated[int, Field(gt=0)] | Literal["auto"] | None = None  # type: ignore[assignment]  # auto: 3 to 10, for 300 updates
    batch_tokens: Annotated[int, Field(gt=0)] | Literal["auto"] = "auto"  # type: ignore[assignment]  # auto: 256 to 2048

    @field_validator("epochs", "batch_tokens", mode="before")
    @classmethod
    def _number_or_auto(cls, given: Any) -> Any:
        if isinstance(given, str) and given != "auto" and not given.isdigit():
            raise ValueError("expected a whole number or auto")
        return given


class FinetuningRecipe(Config, Generic[M, T]):
    """A network fine-tuned to predict labels, numbers, tags or answers from examples."""

    job: ClassVar[str] = "finetuning"
    seed: int = Field(default=1, ge=0)
    start: str | None = None  # the run whose network and tokenizer are taken; without it both are new, and given below
    data: LabelledData
    tokenizer: TokenizerConfig | None = None
    model: M = None  # type: ignore[assignment]  # taken from `start` where that is given
    embeddings: EmbeddingsConfig | None = None  # initial word vectors
    objective: T
    training: FinetuningTraining
    metrics: Names = ()  # the first one selects the best weights; by default the objective's own

    @model_validator(mode="after")
    def _fits_together(self) -> "FinetuningRecipe[M, T]":
        """Refuse what is known to fail before any text is read."""
        check_initial(self.start, self.model, self.tokenizer, self.embeddings)
        refuse_penalty_without_start(self.start, self.training)
        if self.training.epochs not in (None, "auto") and self.training.steps is not None:
            raise ValueError("training.epochs and training.steps are both given; give one, and null for the other")
        if self.start is None:
            self.check_shape()
        try:
            for name in self.metrics:
                self.task.find_metric(name)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def selection_metric(self) -> str:
        """The figure on dev that the best weights are chosen by."""
        return self.judged_by[0]

    @property
    def longest(self) -> int:
        """The longest text in tokens."""
        return self.data.length

    def check_shape(self) -> None:
        """Raise ValueError unless the model, whose config is complete now, can be fine-tuned on these texts."""
        model, objective = self.model, self.objective
        objective.check_model(model)  # type: ignore[attr-defined]
        model.check_texts(self.data.length, "data.length", self.texts_per_example)  # type: ignore[attr-defined]
        check_new_tokenizer(model, objective, self.tokenizer)

    @property
    def task(self) -> Any:
        """The class of the objective."""
        return OBJECTIVES[self.objective.kind]  # type: ignore[attr-defined]

    @property
    def texts_per_example(self) -> int:
        """1, or 2 for pairs of texts."""
        return 2 if self.data.pair is not None or self.objective.always_pairs else 1  # type: ignore[attr-defined]

    @property
    def judged_by(self) -> tuple[str, ...]:
        """The recipe's metrics, or the objective's own."""
        return self.metrics or tuple(self.task.metrics)

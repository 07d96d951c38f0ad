"""Recipes of pretraining on raw text."""

from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import Field, field_validator, model_validator

from qkv.base.config import Config
from qkv.recipes.checks import (
    check_initial,
    check_new_tokenizer,
    check_objective,
    refuse_finetuning_keys,
    refuse_penalty_without_start,
)
from qkv.recipes.embeddings import EmbeddingsConfig
from qkv.text.tokenizer import TokenizerConfig
from qkv.training.config import TrainingConfig

M = TypeVar("M")  # the config of a model
T = TypeVar("T", bound=Config)  # the config of an objective


class DocumentsData(Config):
    """Raw text, in documents."""

    text: tuple[str, ...]  # files, or patterns such as wiki/*.txt.gz
    dev: tuple[str, ...] = ()  # the same, scored during training; by default a part of the text is held out
    held_out: float = Field(default=0.005, gt=0, lt=1)  # share of the documents in that part, 500 at most
    length: int = Field(default=128, ge=8)  # tokens in a passage, and in a row
    shuffle_window: int | None = Field(default=None, gt=0)  # documents (long ones: parts) shuffled at once; by default all
    units: Literal["words", "jieba"] = "words"  # masking units where the text marks no spans: words, Chinese ones by jieba

    @field_validator("text", "dev", mode="before")
    @classmethod
    def _short_form(cls, given: Any) -> Any:
        return [given] if isinstance(given, str) else given

    @field_validator("text")
    @classmethod
    def _not_empty(cls, text: tuple[str, ...]) -> tuple[str, ...]:
        if not text:
            raise ValueError("at least one file of text is needed")
        return text


class PretrainingRecipe(Config, Generic[M, T]):
    """A model pretrained on raw text."""

    job: ClassVar[str] = "pretraining"
    seed: int = Field(default=1, ge=0)
    start: str | None = None  # the run whose weights and tokenizer are taken; without it both are new, and given below
    data: DocumentsData
    tokenizer: TokenizerConfig | None = None
    model: M = None  # type: ignore[assignment]  # taken from `start` where that is given
    embeddings: EmbeddingsConfig | None = None  # initial word vectors
    objective: T
    training: TrainingConfig

    @model_validator(mode="after")
    def _fits_together(self) -> "PretrainingRecipe[M, T]":
        """Refuse what is known to fail before any text is read."""
        refuse_finetuning_keys(self.training)
        check_initial(self.start, self.model, self.tokenizer, self.embeddings)
        refuse_penalty_without_start(self.start, self.training)
        check_new_tokenizer(self.model, self.objective, self.tokenizer)
        if self.start is None:
            self.check_shape()
        return self

    @property
    def selection_metric(self) -> str:
        """The figure on dev that the best weights are chosen by."""
        return "loss"

    @property
    def longest(self) -> int:
        """The longest text in tokens."""
        return self.data.length

    def check_shape(self) -> None:
        """Raise ValueError unless the model, whose config is complete now, can be pretrained with this objective."""
        model, objective = self.model, self.objective
        check_objective(model, objective)
        if model.reads_trees:  # type: ignore[attr-defined]
            raise ValueError(
                f"model.positions={model.positions} needs texts with dependency heads, and raw text has none; "  # type: ignore[attr-defined]
                "choose other positions"
            )
        if getattr(model, "frozen", False):
            raise ValueError("model.frozen=true leaves nothing to be pretrained; leave it out")
        segments = 2 if "pooler" in objective.heads else 1  # type: ignore[attr-defined]
        model.check_texts(self.data.length, "data.length", segments)  # type: ignore[attr-defined]
        objective.check_model(model, self.data.length)  # type: ignore[attr-defined]

"""Recipes of encoders and GPTs, from raw text."""

from typing import Any, Generic, Literal, TypeVar

from pydantic import Field, field_validator, model_validator

from qkv.base.config import Config
from qkv.base.rows import TASKS
from qkv.models import albert, bert, electra, elmo, ernie, gpt, t5, unilm, xlnet
from qkv.models.electra import ElectraConfig
from qkv.objectives.bidirectional import BidirectionalConfig
from qkv.objectives.causal import CausalConfig
from qkv.objectives.ernie import ContinualConfig
from qkv.objectives.masked import MaskedConfig
from qkv.objectives.permutation import PermutationConfig
from qkv.objectives.replaced import ReplacedConfig
from qkv.objectives.spans import SpansConfig
from qkv.objectives.unilm import FourWaysConfig
from qkv.parts.encoder import EncoderConfig
from qkv.recipes.checks import check_beginning, check_shape_of, check_words, refuse_finetuning, refuse_trees
from qkv.recipes.embeddings import EmbeddingsConfig
from qkv.text.tokenizer import MASK, TokenizerConfig
from qkv.training.config import TrainingConfig

ENCODERS: dict[str, type[EncoderConfig]] = {
    "bert": bert.BertConfig,
    "albert": albert.AlbertConfig,
    "electra": electra.ElectraConfig,
    "ernie": ernie.ErnieConfig,
    "gpt": gpt.GptConfig,
    "xlnet": xlnet.XlnetConfig,
    "unilm": unilm.UnilmConfig,
    "elmo": elmo.ElmoConfig,
}
SIZES = {
    "bert": bert.SIZES,
    "albert": albert.SIZES,
    "electra": electra.SIZES,
    "ernie": ernie.SIZES,
    "gpt": gpt.SIZES,
    "xlnet": xlnet.SIZES,
    "unilm": unilm.SIZES,
    "elmo": elmo.SIZES,
    "t5": t5.SIZES,
}
PRETRAINING: dict[str, type[Config]] = {
    "masked": MaskedConfig,
    "replaced": ReplacedConfig,
    "ernie": ContinualConfig,
    "causal": CausalConfig,
    "permutation": PermutationConfig,
    "unilm": FourWaysConfig,
    "bidirectional": BidirectionalConfig,
    "spans": SpansConfig,
}
SPANS = "spans"  # which is for a T5 alone
ONLY_FOR: dict[str, type[EncoderConfig]] = {  # objectives, and theirs alone
    "replaced": ElectraConfig,
    "causal": gpt.GptConfig,
    "permutation": xlnet.XlnetConfig,
    "unilm": unilm.UnilmConfig,
    "bidirectional": elmo.ElmoConfig,
}
M = TypeVar("M")  # the config of a model
T = TypeVar("T", bound=Config)  # the config of an objective


class DocumentsData(Config):
    """Raw text, in documents."""

    text: tuple[str, ...]  # files, or patterns such as wiki/*.txt.gz
    dev: tuple[str, ...] = ()  # the same, to be scored during training; a part of the text is held out when not given
    held_out: float = Field(default=0.005, gt=0, lt=1)  # that part: a share of the documents, 500 at most
    length: int = Field(default=128, ge=8)  # tokens in a passage, and in a row
    units: Literal["words", "jieba"] = "words"  # what a unit is where no spans are given: words, Chinese ones by jieba

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
    """An encoder or a GPT from raw text."""

    seed: int = Field(default=1, ge=0)
    start: str | None = None  # the run whose weights and tokenizer are taken; without it both are new, and named below
    data: DocumentsData
    tokenizer: TokenizerConfig | None = None
    model: M = None  # type: ignore[assignment]  # taken from `start` where that is given
    embeddings: EmbeddingsConfig | None = None  # word vectors to begin with
    objective: T
    training: TrainingConfig

    @model_validator(mode="after")
    def _fits_together(self) -> "PretrainingRecipe[M, T]":
        """What can be known to fail before any text is read."""
        refuse_finetuning(self.training)
        check_beginning(self.start, self.model, self.tokenizer, self.embeddings)
        if self.start is None:
            self.check_shape()
        new = self.tokenizer is not None and self.tokenizer.file is None
        if self.needs_mask and new and MASK not in self.tokenizer.special_tokens:  # type: ignore[union-attr]
            raise ValueError(f"masking needs a token {MASK}; say tokenizer.special_tokens=['{MASK}']")
        if isinstance(self.objective, SpansConfig) and new and not self.tokenizer.sentinels:  # type: ignore[union-attr]
            raise ValueError("span corruption needs sentinels, which stand for spans; say tokenizer.sentinels=100")
        return self

    @property
    def masks(self) -> bool:
        """Whether tokens are hidden; otherwise texts are read as they stand, from left to right (an ELMo's the other way too)."""
        return not isinstance(self.objective, CausalConfig | BidirectionalConfig | SpansConfig)

    @property
    def needs_mask(self) -> bool:
        """Whether another token stands in the place of those that are hidden: not where they are only not looked at."""
        return self.masks and not isinstance(self.objective, PermutationConfig)

    def check_shape(self) -> None:
        """Whether the model, complete as it is now, can be trained so."""
        if isinstance(self.model, t5.T5Config):
            return  # it reads texts of any length, and its only objective is its own
        refuse_trees(self.model, "raw text, which is what pretraining reads, has none")
        check_words(self.model, self.tokenizer)
        if getattr(self.model, "frozen", False):
            raise ValueError("model.frozen=true leaves nothing to be pretrained; leave it out")
        check_shape_of(self.model, self.data.length, parts=2 if "pooler" in getattr(self.objective, "heads", ()) else 1)
        for objective, model in ONLY_FOR.items():
            if (self.objective.kind == objective) != isinstance(self.model, model):  # type: ignore[attr-defined]
                kind = model.model_fields["kind"].default
                raise ValueError(f"objective.kind {objective} is for model.kind {kind}, and the other way round")
        if isinstance(self.objective, ContinualConfig) and 0 < getattr(self.model, "task_types", 0) < len(TASKS):
            raise ValueError(
                f"model.task_types is below {len(TASKS)}, the number of all tasks; say model.task_types={len(TASKS)}"
            )
        segment_length = getattr(self.objective, "segment_length", None)
        if segment_length is not None and self.data.length % segment_length:
            length = f"data.length {self.data.length}"
            raise ValueError(
                f"objective.segment_length {segment_length} does not divide {length}; choose one that does, or leave it out"
            )

"""Recipes: everything that decides a run, one class for each kind of run, chosen by `objective.kind`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from pydantic import Field, field_validator, model_validator

from qkv.base.config import Config, parse, read_yaml, with_settings
from qkv.base.errors import ConfigError
from qkv.base.rows import TASKS
from qkv.decoding.config import DecodingConfig
from qkv.models import albert, bert, electra, ernie, gpt
from qkv.models.convolution import ConvolutionConfig
from qkv.models.electra import ElectraConfig
from qkv.models.rnn import RnnConfig
from qkv.models.transformer import TransformerConfig
from qkv.objectives.answering import AnsweringConfig
from qkv.objectives.causal import CausalConfig
from qkv.objectives.classification import ClassificationConfig
from qkv.objectives.ernie import ContinualConfig
from qkv.objectives.masked import MaskedConfig
from qkv.objectives.regression import RegressionConfig
from qkv.objectives.replaced import ReplacedConfig
from qkv.objectives.tagging import TaggingConfig
from qkv.objectives.translation import TranslationConfig
from qkv.parts.attention_kinds import KINDS, AttentiveConfig
from qkv.parts.encoder import EncoderConfig
from qkv.text import judge
from qkv.text.check import CheckConfig
from qkv.text.corpus import CorpusConfig
from qkv.text.labelled import Columns, ExamplesConfig
from qkv.text.score import find_metric
from qkv.text.tokenizer import MASK, TokenizerConfig
from qkv.training.config import TrainingConfig

RECIPES = Path(__file__).parent / "recipes"
TRANSLATORS: dict[str, type[Config]] = {"transformer": TransformerConfig, "rnn": RnnConfig, "convolution": ConvolutionConfig}
ENCODERS: dict[str, type[EncoderConfig]] = {
    "bert": bert.BertConfig,
    "albert": albert.AlbertConfig,
    "electra": electra.ElectraConfig,
    "ernie": ernie.ErnieConfig,
    "gpt": gpt.GptConfig,
}
SIZES = {"bert": bert.SIZES, "albert": albert.SIZES, "electra": electra.SIZES, "ernie": ernie.SIZES, "gpt": gpt.SIZES}
PRETRAINING: dict[str, type[Config]] = {
    "masked": MaskedConfig,
    "replaced": ReplacedConfig,
    "ernie": ContinualConfig,
    "causal": CausalConfig,
}
ONLY_FOR: dict[str, type[EncoderConfig]] = {"replaced": ElectraConfig, "causal": gpt.GptConfig}  # objectives, and theirs alone
FINETUNING: dict[str, type[Config]] = {
    "classification": ClassificationConfig,
    "regression": RegressionConfig,
    "tagging": TaggingConfig,
    "answering": AnsweringConfig,
}
M = TypeVar("M")  # the config of a model
T = TypeVar("T", bound=Config)  # the config of an objective
C = TypeVar("C", bound=Config)


# Translation


class TranslationData(Config):
    """Which text, and what of it is usable."""

    train: tuple[CorpusConfig, ...]
    dev: tuple[CorpusConfig, ...]
    test: tuple[CorpusConfig, ...] = ()
    languages: tuple[str, str] | None = None  # names of the two sides, such as en and de
    check: CheckConfig = CheckConfig()
    max_tokens: int = Field(default=256, gt=1)  # longer texts are not trained on

    @field_validator("train", "dev", "test", mode="before")
    @classmethod
    def _short_forms(cls, given: Any) -> Any:
        """A path stands for a corpus, and a single corpus for a list of one."""
        items = given if isinstance(given, list | tuple) else [] if given is None else [given]
        return [{"pairs": item} if isinstance(item, str) else item for item in items]

    @field_validator("train", "dev")
    @classmethod
    def _not_empty(cls, corpora: tuple[CorpusConfig, ...]) -> tuple[CorpusConfig, ...]:
        if not corpora:
            raise ValueError("at least one corpus is needed")
        return corpora


class TokenizersConfig(Config):
    """One vocabulary shared by both sides, or one for each."""

    shared: TokenizerConfig | None = None
    source: TokenizerConfig | None = None
    target: TokenizerConfig | None = None

    @model_validator(mode="after")
    def _one_way(self) -> "TokenizersConfig":
        if (self.shared is None) == (self.source is None) or (self.source is None) != (self.target is None):
            raise ValueError("give either tokenizer.shared, or both tokenizer.source and tokenizer.target")
        return self


class TranslationRecipe(Config, Generic[M]):
    """A translator, or any other transducer, from pairs of texts."""

    seed: int = Field(default=1, ge=0)
    data: TranslationData
    tokenizer: TokenizersConfig
    model: M
    objective: TranslationConfig = TranslationConfig()
    training: TrainingConfig
    decoding: DecodingConfig = DecodingConfig()
    metrics: tuple[str, ...] = ("bleu", "chrf")  # the first one decides which weights are best
    score_dev: int = Field(default=500, ge=0)  # dev texts translated and scored at each validation

    @field_validator("metrics")
    @classmethod
    def _metrics_are_known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if not names:
            raise ValueError("at least one metric is needed")
        try:
            for name in names:
                find_metric(name)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return names

    @model_validator(mode="after")
    def _fits_together(self) -> "TranslationRecipe[M]":
        """What can be known to fail before any text is read."""
        _refuse_finetuning(self.training)
        model: Any = self.model
        if isinstance(model, TransformerConfig) and model.width % model.heads:
            raise ValueError(f"model.width {model.width} does not split into {model.heads} heads; choose heads that divide it")
        if model.tied == "all" and self.tokenizer.shared is None:
            raise ValueError(
                "model.tied=all needs one vocabulary for both sides: give tokenizer.shared, or say model.tied=target"
            )
        _check_places(model, self.data.max_tokens, "data.max_tokens")
        return self


def _check_places(model: Any, length: int, key: str) -> None:
    """Whether the model has a place for each token of texts as long as `key` lets them be."""
    told = f"model.places {getattr(model, 'places', 0)} is below {key} {length}: raise the one or lower the other"
    if isinstance(model, AttentiveConfig) and model.attention.alone and model.places < length:
        raise ValueError(f"{told}; {model.attention.kind} has weights for each place")
    if getattr(model, "positions", None) == "learned" and model.places < length:
        raise ValueError(f"{told}; learned positions end there, others (model.positions) do not")


# Pretraining


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
    objective: T
    training: TrainingConfig

    @model_validator(mode="after")
    def _fits_together(self) -> "PretrainingRecipe[M, T]":
        """What can be known to fail before any text is read."""
        _refuse_finetuning(self.training)
        _check_beginning(self.start, self.model, self.tokenizer)
        if self.start is None:
            self.check_shape()
        new = self.tokenizer is not None and self.tokenizer.file is None
        if self.masks and new and MASK not in self.tokenizer.extra:  # type: ignore[union-attr]
            raise ValueError(f"masking needs a token {MASK}; say tokenizer.extra=['{MASK}']")
        return self

    @property
    def masks(self) -> bool:
        """Whether tokens are hidden; otherwise texts are read as they stand, from left to right."""
        return not isinstance(self.objective, CausalConfig)

    def check_shape(self) -> None:
        """Whether the model, complete as it is now, can be trained so."""
        _refuse_trees(self.model, "raw text, which is what pretraining reads, has none")
        _check_shape(self.model, self.data.length, parts=2 if "pooler" in getattr(self.objective, "heads", ()) else 1)
        for objective, model in ONLY_FOR.items():
            if (self.objective.kind == objective) != isinstance(self.model, model):  # type: ignore[attr-defined]
                kind = model.model_fields["kind"].default
                raise ValueError(f"objective.kind {objective} is for model.kind {kind}, and the other way round")
        if isinstance(self.objective, ContinualConfig) and 0 < getattr(self.model, "tasks", 0) < len(TASKS):
            raise ValueError(f"model.tasks is below {len(TASKS)}, the number of all tasks; say model.tasks={len(TASKS)}")


def _refuse_finetuning(training: TrainingConfig) -> None:
    """Refuse what means something in fine-tuning alone."""
    if training.epochs is not None:
        raise ValueError("training.epochs is for fine-tuning; give training.steps or training.minutes")
    if training.layer_decay != 1:
        raise ValueError(f"training.layer_decay {training.layer_decay:g} is for fine-tuning; leave it out")


def _refuse_trees(model: Any, text: str) -> None:
    if model.trees:
        raise ValueError(f"model.positions={model.positions} is for texts with heads, and {text}; choose other positions")


def _check_beginning(start: str | None, model: Any, tokenizer: TokenizerConfig | None) -> None:
    if start is None and (model is None or tokenizer is None):
        raise ValueError("give start, the run of a pretrained encoder; or model and tokenizer, to begin with new weights")


def _check_shape(model: Any, length: int, parts: int) -> None:
    """Whether a model can read texts of such a length, of so many parts that are to be told apart."""
    if model.width % model.heads:
        raise ValueError(f"model.width {model.width} does not split into {model.heads} heads; choose heads that divide it")
    _check_places(model, length, "data.length")
    if model.segments < parts:
        raise ValueError(f"model.segments {model.segments} is too few to tell {parts} texts apart; say model.segments={parts}")


# Fine-tuning


class LabelledData(Columns):
    """Examples, and what in their files is what."""

    train: tuple[str, ...] = Field(min_length=1)  # files, or patterns
    dev: tuple[str, ...] = Field(min_length=1)
    test: tuple[str, ...] = ()
    length: int = Field(default=128, ge=8)  # longest text in tokens: a longer one is cut, a context is read in windows
    stride: int = Field(default=128, gt=0)  # tokens from one window on a question's context to the next

    @field_validator("train", "dev", "test", mode="before")
    @classmethod
    def _short_form(cls, given: Any) -> Any:
        return [given] if isinstance(given, str) else given or ()

    def examples(self, files: tuple[str, ...], trees: bool = False) -> ExamplesConfig:
        """Some of the files, read as these columns say."""
        columns = {name: getattr(self, name) for name in Columns.model_fields}
        return ExamplesConfig(files=files, trees=trees, **columns)


class FinetuningRecipe(Config, Generic[M, T]):
    """An encoder that learns to say something of texts, from examples."""

    seed: int = Field(default=1, ge=0)
    start: str | None = None  # the run whose encoder and tokenizer are taken; without it both are new, and named below
    data: LabelledData
    tokenizer: TokenizerConfig | None = None
    model: M = None  # type: ignore[assignment]  # taken from `start` where that is given
    objective: T
    training: TrainingConfig
    metrics: tuple[str, ...] = ()  # the first one decides which weights are best; the objective's own when not given

    @model_validator(mode="after")
    def _fits_together(self) -> "FinetuningRecipe[M, T]":
        """What can be known to fail before any text is read."""
        _check_beginning(self.start, self.model, self.tokenizer)
        if self.training.epochs is not None and self.training.steps is not None:
            raise ValueError("training.epochs and training.steps both say how long to train; give one, and null for the other")
        if self.start is None:
            self.check_shape()
        try:
            for name in self.metrics:
                judge.find_metric(name, self.objective.kind)  # type: ignore[attr-defined]
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return self

    def check_shape(self) -> None:
        """Whether the model, complete as it is now, can read such texts."""
        if isinstance(self.objective, AnsweringConfig):
            _refuse_trees(self.model, "questions of SQuAD have none")
        asked = isinstance(self.objective, AnsweringConfig)
        if isinstance(self.model, gpt.GptConfig):  # it tells parts apart by what stands between them
            if asked and not self.objective.always:  # type: ignore[attr-defined]
                raise ValueError(
                    "a gpt's first token, which would say that there is no answer, sees nothing; say objective.always=true"
                )
            asked = False
        pairs = self.data.pair is not None and not isinstance(self.model, gpt.GptConfig)
        _check_shape(self.model, self.data.length, parts=2 if pairs or asked else 1)

    @property
    def judged_by(self) -> tuple[str, ...]:
        """The metrics asked for, or the objective's own."""
        return self.metrics or judge.metrics_for(self.objective.kind)  # type: ignore[attr-defined]


Recipe = TranslationRecipe[Any] | PretrainingRecipe[Any, Any] | FinetuningRecipe[Any, Any]


# From files


def recipe_names() -> list[str]:
    """The recipes that come with the package."""
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def load_recipe(name: str, settings: list[str]) -> Recipe:
    """A recipe by name or from a file, with some of its values set anew."""
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        path = RECIPES / f"{name}.yaml"
        if not path.exists():
            known = ", ".join(recipe_names())
            raise ConfigError(f"no recipe {name!r}; known are {known}; or give a file that ends in .yaml")
    values = _giving_way(read_yaml(path), settings)
    for setting in settings:
        values = with_settings(_spelt_out(values), [setting])
    return parse_recipe(values, name)


def _spelt_out(values: dict[str, Any]) -> dict[str, Any]:
    """The values with a kind of attention that one word names as keys, beside which others can be set."""
    model = values.get("model")
    word = model.get("attention") if isinstance(model, dict) else None
    return with_settings(values, [f"model.attention.kind={word}"]) if isinstance(word, str) and word in KINDS else values


def _giving_way(values: dict[str, Any], settings: list[str]) -> dict[str, Any]:
    """The values of a file without those that a setting takes the place of, though it has another name.

    A tokenizer's file says all of a tokenizer. The run to start from has a tokenizer, and a model whose dropout alone may change.
    """
    for key, _, value in (setting.partition("=") for setting in settings):
        if value in ("", "null", "~"):
            continue
        if key.startswith("tokenizer.") and key.endswith(".file"):
            values = with_settings(values, [f"{key.removesuffix('.file')}={{}}"])
        if key == "start":
            values = {name: inside for name, inside in values.items() if name != "tokenizer"}
            if isinstance(values.get("model"), dict):
                values["model"] = {name: value for name, value in values["model"].items() if name in ("kind", "dropout")}
    return values


def parse_recipe(values: Any, where: str) -> Recipe:
    """A recipe from plain values, as they stand in a file or in a run's folder."""
    training = values.get("training") if isinstance(values, dict) else None
    if isinstance(training, dict):
        training.pop("compile", None)  # a key of version 0.1, which nothing needs any more
    values = with_size(_with_usual_model(values), where)
    return parse(kind_of_recipe(values, where), values, where)


def _with_usual_model(values: Any) -> Any:
    """A translator is a Transformer unless another is asked for."""
    if not isinstance(values, dict) or _kind(values, "objective", "translation") != "translation":
        return values
    model = values.get("model")
    return {**values, "model": {"kind": "transformer", **(model or {})}} if model is None or isinstance(model, dict) else values


def with_size(values: Any, where: str) -> Any:
    """The values with `model.size`, the name of a published size, replaced by what it stands for; keys beside it win."""
    model = values.get("model") if isinstance(values, dict) else None
    if not isinstance(model, dict) or "size" not in model:
        return values
    sizes = SIZES.get(model.get("kind"), {})  # type: ignore[arg-type]
    if model["size"] not in sizes:
        known = f"of {model.get('kind')} known are {', '.join(sizes)}" if sizes else f"sizes have names for {', '.join(SIZES)}"
        raise ConfigError(f"{where}: no model.size {model['size']!r}; {known}")
    return {**values, "model": {**sizes[model["size"]], **{key: value for key, value in model.items() if key != "size"}}}


def kind_of_recipe(values: Any, where: str) -> type[Recipe]:
    """The class of the recipe that these values are of, by its objective and its model."""
    objective = _kind(values, "objective", "translation")
    if objective == "translation":
        return TranslationRecipe[_listed(TRANSLATORS, values, where)]  # type: ignore[misc, return-value]
    if objective in PRETRAINING:
        return PretrainingRecipe[_encoder(values, where), PRETRAINING[objective]]  # type: ignore[misc, return-value]
    if objective in FINETUNING:
        return FinetuningRecipe[_encoder(values, where), FINETUNING[objective]]  # type: ignore[misc, return-value]
    known = ", ".join(["translation", *PRETRAINING, *FINETUNING])
    raise ConfigError(f"{where}: objective.kind {objective!r} is not one of {known}")


def _encoder(values: Any, where: str) -> type[EncoderConfig]:
    """The config of the encoder that is asked for; of any, where it is not said but taken from another run."""
    return EncoderConfig if _kind(values, "model", None) is None else _listed(ENCODERS, values, where)


def _listed(known: Mapping[str, type[C]], values: Any, where: str) -> type[C]:
    """The config of the model that is asked for, among those that there are for the objective."""
    kind = _kind(values, "model", None)
    if kind is None or kind not in known:
        raise ConfigError(f"{where}: model.kind {kind!r} is not one of {', '.join(known)}")
    return known[kind]


def _kind(values: Any, part: str, usual: str | None) -> str | None:
    inside = values.get(part) if isinstance(values, dict) else None
    return inside.get("kind", usual) if isinstance(inside, dict) else usual

"""Recipes: everything that decides a run, one class for each kind of run, chosen by `objective.kind`."""

from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from qkv.base.config import Config, parse, read_yaml, with_settings
from qkv.base.errors import ConfigError
from qkv.decoding.config import DecodingConfig
from qkv.models.transformer import TransformerConfig
from qkv.objectives.translation import TranslationConfig
from qkv.text.check import CheckConfig
from qkv.text.corpus import CorpusConfig
from qkv.text.score import find_metric
from qkv.text.tokenizer import TokenizerConfig
from qkv.training.config import TrainingConfig

RECIPES = Path(__file__).parent / "recipes"


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


class TranslationRecipe(Config):
    """A translator, or any other transducer, from pairs of texts."""

    seed: int = Field(default=1, ge=0)
    data: TranslationData
    tokenizer: TokenizersConfig
    model: TransformerConfig = TransformerConfig()
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
    def _fits_together(self) -> "TranslationRecipe":
        """What can be known to fail before any text is read."""
        model = self.model
        if model.width % model.heads:
            raise ValueError(f"model.width {model.width} does not split into {model.heads} heads; choose heads that divide it")
        if model.tied == "all" and self.tokenizer.shared is None:
            raise ValueError(
                "model.tied=all needs one vocabulary for both sides: give tokenizer.shared, or say model.tied=target"
            )
        if model.positions == "learned" and model.places < self.data.max_tokens:
            raise ValueError(
                f"model.places {model.places} is below data.max_tokens {self.data.max_tokens}: raise the one or lower the other"
            )
        return self


Recipe = TranslationRecipe


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
    return parse_recipe(with_settings(read_yaml(path), settings), name)


def parse_recipe(values: Any, where: str) -> Recipe:
    """A recipe from plain values, as they stand in a file or in a run's folder."""
    training = values.get("training") if isinstance(values, dict) else None
    if isinstance(training, dict):
        training.pop("compile", None)  # a key of version 0.1, which nothing needs any more
    return parse(TranslationRecipe, values, where)

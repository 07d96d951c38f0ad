"""Recipes of translators and other sequence-to-sequence models, trained on pairs of texts."""

from typing import Any, ClassVar, Generic, TypeVar

from pydantic import Field, field_validator, model_validator

from qkv.base.config import Config
from qkv.base.errors import ConfigError
from qkv.data.trees import SourceFormat
from qkv.decoding.config import DecodingConfig
from qkv.recipes.checks import Names, check_new_tokenizer, check_objective, refuse_finetuning_keys, refuse_penalty_without_start
from qkv.recipes.embeddings import SidesConfig
from qkv.text.check import CheckConfig
from qkv.text.corpus import ParallelCorpusConfig
from qkv.text.tokenizer import TokenizerConfig
from qkv.text.translation_metrics import find_translation_metric
from qkv.training.config import TrainingConfig

M = TypeVar("M")  # the config of a model
T = TypeVar("T", bound=Config)  # the config of an objective


class TranslationData(Config):
    """The corpora, and how they are filtered."""

    train: tuple[ParallelCorpusConfig, ...]
    dev: tuple[ParallelCorpusConfig, ...]
    test: tuple[ParallelCorpusConfig, ...] = ()
    also_test: tuple[ParallelCorpusConfig, ...] = ()  # each scored by itself at the end, such as the domain of `start`
    languages: tuple[str, str] | None = None  # names of the two sides, such as en and de
    check: CheckConfig = CheckConfig()
    max_tokens: int = Field(default=256, gt=1)  # longer texts are not trained on
    source_eos: bool = False  # whether sources end in eos, as Marian's do; those of a t5 and of a unilm always do
    protect: bool = False  # whether sentinels stand for placeholders, tags and addresses in training and translation
    glossary: str | None = None  # a file of terms; in pairs that have some, sources are annotated with the translations
    glossary_share: float = Field(default=0.5, gt=0, le=1)  # of the pairs with terms that are annotated
    shuffle_window: int | None = Field(default=None, gt=0)  # pairs shuffled at once, in a random order of shards; by default all
    mixing_limit: int | None = Field(default=None, gt=0)  # pairs of one corpus in an epoch, at most: T5's artificial size K

    @field_validator("train", "dev", "test", "also_test", mode="before")
    @classmethod
    def _short_forms(cls, given: Any) -> Any:
        """Turn a path into a corpus, and a single corpus into a list of one."""
        items = given if isinstance(given, list | tuple) else [] if given is None else [given]
        return [{"pairs": item} if isinstance(item, str) else item for item in items]

    @field_validator("train", "dev")
    @classmethod
    def _not_empty(cls, corpora: tuple[ParallelCorpusConfig, ...]) -> tuple[ParallelCorpusConfig, ...]:
        if not corpora:
            raise ValueError("at least one corpus is needed")
        return corpora

    def check_prefixes(self) -> None:
        """Refuse corpora of which only some have a task prefix, and prefixes to be scored that none of data.train has."""
        corpora = [*self.train, *self.dev, *self.test, *self.also_test]
        without = [corpus for corpus in corpora if not corpus.prefix]
        if without and len(without) < len(corpora):
            raise ValueError(
                f"{without[0].name} has no prefix, and other corpora have one; give each a prefix that names its task"
            )
        for corpus in () if without else (*self.dev, *self.test, *self.also_test):
            if corpus.prefix.strip() not in self.prefixes:
                known = ", ".join(map(repr, self.prefixes))
                raise ValueError(
                    f"{corpus.name} has the prefix {corpus.prefix!r}, and none of data.train has; use one of {known}"
                )

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The task prefixes of the training corpora; none where sources have no prefix."""
        return tuple(dict.fromkeys(corpus.prefix.strip() for corpus in self.train if corpus.prefix))

    @property
    def only_prefix(self) -> str:
        """The prefix that all sources share; "" where there are several, or none."""
        return self.prefixes[0] if len(self.prefixes) == 1 else ""


class TokenizersConfig(Config):
    """One vocabulary for both sides, or one for each."""

    shared: TokenizerConfig | None = None
    source: TokenizerConfig | None = None
    target: TokenizerConfig | None = None
    grow: int | None = Field(default=None, gt=0)  # most new pieces for the tokenizers of `start`, from the training text

    @model_validator(mode="after")
    def _one_way(self) -> "TokenizersConfig":
        if self.grow is not None:
            if self.shared or self.source or self.target:
                raise ValueError(
                    "tokenizer.grow adds pieces to the tokenizer of start; give start, and leave the other keys of tokenizer out"
                )
            return self
        if (self.shared is None) == (self.source is None) or (self.source is None) != (self.target is None):
            raise ValueError("give either tokenizer.shared, or both tokenizer.source and tokenizer.target")
        return self

    @property
    def one_vocabulary(self) -> bool:
        """Whether both sides may share a vocabulary; two given files, as Marian has, and those of `start` are compared later."""
        return bool(self.shared or self.grow) or all(side and side.file for side in (self.source, self.target))


class TranslationRecipe(Config, Generic[M, T]):
    """A translator, or any other sequence-to-sequence model, trained on pairs of texts."""

    job: ClassVar[str] = "translation"
    seed: int = Field(default=1, ge=0)
    start: str | None = None  # the run whose weights, shape and tokenizers are taken; without it all are new
    data: TranslationData
    tokenizer: TokenizersConfig | None = None  # taken from `start` where that is given, and grown if wanted
    model: M
    embeddings: SidesConfig | None = None  # initial word vectors
    objective: T
    training: TrainingConfig
    decoding: DecodingConfig = DecodingConfig()
    metrics: Names = ("bleu", "chrf")  # the first one selects the best weights
    score_dev: int = Field(default=500, ge=0)  # dev texts translated and scored at each validation

    @field_validator("metrics")
    @classmethod
    def _metrics_are_known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if not names:
            raise ValueError("at least one metric is needed")
        try:
            for name in names:
                find_translation_metric(name)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return names

    @model_validator(mode="after")
    def _fits_together(self) -> "TranslationRecipe[M, T]":
        """Refuse what is known to fail before any text is read."""
        model: Any = self.model
        refuse_finetuning_keys(self.training)
        check_objective(model, self.objective)
        self._check_initial(model)
        self._check_adapter(model)
        refuse_penalty_without_start(self.start, self.training)
        self.data.check_prefixes()
        if self.data.source_eos and model.reads_trees:
            raise ValueError("data.source_eos puts eos after sources, and trees have no position for it; leave it out")
        if self.data.protect and model.reads_trees:
            raise ValueError("data.protect puts sentinels into sources, and trees have no head for them; leave it out")
        if self.data.glossary and model.reads_trees:
            raise ValueError("data.glossary puts translations into sources, and trees have no head for them; leave it out")
        if getattr(model, "tied", None) == "all" and self.tokenizer is not None and not self.tokenizer.one_vocabulary:
            raise ValueError(
                "model.tied=all needs one vocabulary for both sides: give tokenizer.shared, or set model.tied=target"
            )
        if self.start is None or "layers" in model.model_fields_set:  # else its shape is not known yet
            model.check_translation(self.data.max_tokens)
        return self

    def _check_initial(self, model: Any) -> None:
        """Refuse a recipe without exactly one source of initial weights and tokenizer."""
        if self.start is not None and self.tokenizer is not None and self.tokenizer.grow is None:
            raise ValueError("the tokenizer is taken from start; leave tokenizer out, or give tokenizer.grow alone")
        if self.start is not None and self.embeddings is not None:
            raise ValueError("start has embeddings of its own; leave embeddings out, or start")
        if self.start is None and self.tokenizer is not None and self.tokenizer.grow is not None:
            raise ValueError("tokenizer.grow adds pieces to the tokenizer of another run; give start, or tokenizer.shared")
        if self.start is None and self.tokenizer is None:
            raise ValueError(
                "give start, the run to go on from (--set start=RUN); or, for a new translator, tokenizer: shared, for one "
                "vocabulary, or source and target"
            )
        if self.tokenizer is None or self.start is not None:
            return
        if model.one_vocabulary and self.tokenizer.shared is None:
            raise ValueError(f"a {model.kind} reads and writes one vocabulary; give tokenizer.shared")
        check_new_tokenizer(model, self.objective, self.tokenizer.shared, "tokenizer.shared")

    def _check_adapter(self, model: Any) -> None:
        """Refuse an adapter of a model that takes none, and one without a run whose weights it is trained for."""
        if model.adapter is None:
            return
        if not model.takes_adapters:
            raise ValueError(
                f"a model of kind {model.kind} takes no adapters: it lacks their projections; leave model.adapter out"
            )
        if self.start is None:
            raise ValueError("model.adapter is trained over the weights of another run; give start, or leave model.adapter out")
        if self.tokenizer is not None:
            raise ValueError("an adapter trains no embeddings of new pieces; leave tokenizer.grow or model.adapter out")

    @property
    def selection_metric(self) -> str:
        """The figure on dev that the best weights are chosen by."""
        return "loss" if not self.score_dev else self.metrics[0]

    @property
    def longest(self) -> int:
        """The longest text in tokens."""
        return self.data.max_tokens

    @property
    def source_format(self) -> SourceFormat:
        """The control tokens around sources."""
        model: Any = self.model
        return SourceFormat(bos=model.source_bos, eos=self.data.source_eos or model.source_eos)

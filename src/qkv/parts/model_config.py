"""The base of every model's config: its kind, and the properties that data, recipes and jobs depend on."""

from typing import ClassVar

from pydantic import Field

from qkv.base.config import Config


class AdapterConfig(Config):
    """Low-rank adapters on the attention and feed-forward projections of a trained model (`adapters.py`)."""

    rank: int = Field(default=16, ge=0)  # of the added products; 0 adds nothing
    alpha: float = Field(default=16.0, gt=0)  # the products are multiplied by alpha / rank
    dropout: float = Field(default=0.0, ge=0, lt=1)  # on the input of the products

    @property
    def scale(self) -> float:
        """The factor of the added products."""
        return self.alpha / self.rank if self.rank else 0.0


class ModelConfig(Config):
    """The shape of a model. A subclass adds its fields and overrides the properties below where they differ."""

    shorthand_keys: ClassVar[tuple[str, ...]] = ("size",)
    kind: str
    adapter: AdapterConfig | None = None  # of a translator: the only weights that are trained, over those of `start`

    causal: ClassVar[bool] = False  # a position attends only to itself and earlier positions
    reads_characters: ClassVar[bool] = False  # a token is a whole word, embedded by its characters (ELMo)
    one_vocabulary: ClassVar[bool] = False  # source and target share one tokenizer (T5, UniLM)
    source_bos: ClassVar[bool] = False  # sources always begin with bos (UniLM)
    source_eos: ClassVar[bool] = False  # sources always end with eos (T5, UniLM)
    takes_adapters: ClassVar[bool] = False  # its layers have the projections that adapters are added to
    shardable: ClassVar[bool] = True  # its weights can be divided over processes; torch's recurrent layers need theirs whole

    @property
    def one_text_per_row(self) -> bool:
        """Whether a row may hold one text only, because the model mixes neighbouring positions."""
        return False

    @property
    def reads_trees(self) -> bool:
        """Whether every text must come with its dependency heads."""
        return False

    @property
    def longest(self) -> int | None:
        """The longest text in tokens; None without a limit."""
        return None

    def check_texts(self, length: int, key: str, segments: int = 1) -> None:
        """Raise ValueError unless the model reads texts of `length` tokens (the value of `key`) with `segments` segments."""

    def check_translation(self, max_tokens: int) -> None:
        """Raise ValueError unless the model translates texts of up to `max_tokens` tokens."""
        self.check_texts(max_tokens, "data.max_tokens")

    def warnings(self, length: int) -> list[str]:
        """Return warnings for a user who trains on texts of up to `length` tokens."""
        return []

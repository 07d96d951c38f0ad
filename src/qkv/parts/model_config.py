"""The base of every model's config: its kind, and the properties that data, recipes and jobs depend on."""

from typing import ClassVar

from qkv.base.config import Config


class ModelConfig(Config):
    """The shape of a model. A subclass adds its fields and overrides the properties below where they differ."""

    shorthand_keys: ClassVar[tuple[str, ...]] = ("size",)
    kind: str

    causal: ClassVar[bool] = False  # a position attends only to itself and earlier positions
    reads_characters: ClassVar[bool] = False  # a token is a whole word, embedded by its characters (ELMo)
    one_vocabulary: ClassVar[bool] = False  # source and target share one tokenizer (T5, UniLM)
    source_bos: ClassVar[bool] = False  # sources always begin with bos (UniLM)
    source_eos: ClassVar[bool] = False  # sources always end with eos (T5, UniLM)

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

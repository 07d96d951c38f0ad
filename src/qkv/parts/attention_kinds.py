"""Which attention a recipe asks for, in `model.attention`: full, or one whose cost grows with the length, not with its square.

BigBird's defaults are those of the paper's base model (Zaheer et al. 2020, appendix E), but that a window of three blocks is one
of 64 places to each side; Linformer's is the k with which its paper comes near full attention over 512 tokens (section 5.1). Who
may look at whom is made once a pass, for all layers.
B rows, T places.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationInfo, field_validator
from torch import Tensor, nn

from qkv.base.config import Config
from qkv.parts.attention import SelfAttention, who_may_look, who_may_look_by
from qkv.parts.linformer import LinformerAttention, Shortening, real_positions
from qkv.parts.masks import Alone
from qkv.parts.patterns import Pattern
from qkv.parts.positions import PositionsConfig
from qkv.parts.relative import Looking


class Full(Config):
    """Every place looks at all of its text."""

    kind: Literal["full"] = "full"
    one_text_per_row: ClassVar[bool] = False  # whether a row may hold one text only

    def covers(self, length: int) -> bool:
        """Whether each place of a text of so many tokens looks at all of it."""
        return True


class Window(Config):
    """Every place looks at its neighbours."""

    kind: Literal["window"] = "window"
    radius: int = Field(default=128, ge=1)  # places to each side that a place sees
    one_text_per_row: ClassVar[bool] = False

    @property
    def pattern(self) -> Pattern:
        return Pattern(self.radius)

    def covers(self, length: int) -> bool:
        return self.radius >= length - 1


class BigBird(Config):
    """At its neighbours, at a text's first places, which look at all of it too, and at blocks chosen at random."""

    kind: Literal["bigbird"] = "bigbird"
    radius: int = Field(default=64, ge=1)  # places to each side that a place sees
    global_tokens: int = Field(default=128, ge=0)  # places at a text's beginning that see and are seen by all of it
    random_blocks: int = Field(default=3, ge=0)  # blocks chosen at random for each block
    block_size: Literal[16, 32, 64, 128] = 64  # places in a block
    seed: int = Field(default=0, ge=0)  # of the choice
    one_text_per_row: ClassVar[bool] = False

    @property
    def pattern(self) -> Pattern:
        return Pattern(self.radius, self.global_tokens, self.random_blocks, self.block_size, self.seed)

    def covers(self, length: int) -> bool:
        return max(self.radius + 1, self.global_tokens) >= length


class Linformer(Config):
    """At mixtures of all places, whose weights are learned."""

    kind: Literal["linformer"] = "linformer"
    projected_length: int = Field(default=128, ge=1)  # the paper's k; at most as many as there are places
    sharing: Literal["none", "heads", "key-value", "layers"] = "layers"  # by whom the weights are shared
    one_text_per_row: ClassVar[bool] = True

    def covers(self, length: int) -> bool:
        return False


KINDS: dict[str, type[Config]] = {"full": Full, "window": Window, "bigbird": BigBird, "linformer": Linformer}


def in_full(given: Any) -> Any:
    """A word stands for the kind, with all else as usual."""
    given = {"kind": given} if isinstance(given, str) else given
    if isinstance(given, dict) and given.get("kind") not in KINDS:
        missing = "" if "kind" in given else "; add it, as in --set model.attention.kind=window"
        raise ValueError(f"expected a kind, one of {', '.join(KINDS)}{missing}")
    return given


def _name(given: Any) -> str | None:
    """The class, which mistakes are told without: what begins with a capital is no key (base/config.py)."""
    kind = given.get("kind") if isinstance(given, dict) else getattr(given, "kind", None)
    return KINDS[kind].__name__ if kind in KINDS else None


AttentionConfig = Annotated[
    Annotated[Full, Tag("Full")]
    | Annotated[Window, Tag("Window")]
    | Annotated[BigBird, Tag("BigBird")]
    | Annotated[Linformer, Tag("Linformer")],
    Discriminator(_name, custom_error_type="attention", custom_error_message=f"expected a kind, one of {', '.join(KINDS)}"),
    BeforeValidator(in_full),
]


def only_full(attention: Full | Window | BigBird | Linformer) -> Full:
    """A validator for models that have no other kind."""
    if not isinstance(attention, Full):
        raise ValueError(f"this model has full attention, not {attention.kind}; leave model.attention out")
    return attention


# Positions that attention to some places, or to mixtures of them, goes with; the others make a number for every two places.
PLACEWISE = ("none", "counting", "normalised", "sinusoidal", "learned", "rotary", "structural-absolute")


class AttentiveConfig(PositionsConfig):
    """What of an attention model's shape its encoder's attention has to do with."""

    attention: AttentionConfig = Full()  # which places of its text a place of the encoder looks at

    @field_validator("attention")
    @classmethod
    def _goes_with_the_rest(cls, attention: AttentionConfig, known: ValidationInfo) -> AttentionConfig:
        max_positions, positions = (
            known.data.get(name) for name in ("max_positions", "positions")
        )  # None where they are wrong themselves
        if isinstance(attention, Linformer) and max_positions and attention.projected_length > max_positions:
            raise ValueError(
                f"{attention.projected_length} mixtures are more than the {max_positions} places they are made of; "
                f"say model.attention.projected_length={max_positions} or less, or raise model.max_positions"
            )
        if attention.kind != "full" and positions and positions not in PLACEWISE:
            raise ValueError(
                f"model.positions={positions} is there for full attention only, not for {attention.kind}; "
                f"choose one of {', '.join(PLACEWISE)}, or full attention"
            )
        return attention

    @property
    def longest(self) -> int | None:
        """Places a text may have; None where there is no limit."""
        return self.max_positions if self.attention.one_text_per_row else super().longest

    @property
    def one_text_per_row(self) -> bool:
        return self.attention.one_text_per_row

    def check_texts(self, length: int, key: str, segments: int = 1) -> None:
        if self.width % self.heads:
            raise ValueError(f"model.width {self.width} does not split into {self.heads} heads; choose heads that divide it")
        if self.attention.one_text_per_row and self.max_positions < length:
            raise ValueError(
                f"model.max_positions {self.max_positions} is below {key} {length}: raise the one or lower the other; "
                f"{self.attention.kind} has weights for each position"
            )
        super().check_texts(length, key, segments)

    def warnings(self, length: int) -> list[str]:
        if self.attention.kind == "full" or not self.attention.covers(length):
            return []
        return [
            f"model.attention={self.attention.kind} shows every position all of a text of up to {length} tokens, as full "
            "attention does; to save time there, lower its radius (and global_tokens)"
        ]


class WhoLooks(nn.Module):
    """Tells all layers of an encoder, once a pass, who may look at whom; and holds what they share to do so."""

    def __init__(self, c: AttentiveConfig):
        super().__init__()
        self.config, attention = c, c.attention
        self.shortening: Shortening | None = None
        self._rows_are_known = False
        if isinstance(attention, Linformer) and attention.sharing == "layers":
            self.shortening = Shortening(c.max_positions, attention.projected_length, c.heads, attention.sharing)

    def forward(self, text: Tensor, like: Tensor, causal: bool = False) -> Looking:
        """For rows whose places belong to these texts, and attention computed from the like of `like`. text (B, T).

        `causal`, that nothing after it is seen, is for full attention.
        """
        c = self.config
        if isinstance(c.attention, Linformer):
            real = real_positions(text, c.max_positions, known=self._rows_are_known and text.is_cuda)
            self._rows_are_known = True
            return Alone(real, self.shortening)
        if isinstance(c.attention, Full):
            return who_may_look(text, text, c.width // c.heads, like, causal)
        return who_may_look_by(c.attention.pattern, text)


def make_attention(c: AttentiveConfig) -> SelfAttention:
    """The self-attention of one of the encoder's layers."""
    if isinstance(c.attention, Linformer):
        return LinformerAttention(c.width, c.heads, c.max_positions, c.attention.projected_length, c.attention.sharing)
    return SelfAttention(c.width, c.heads, c.clipping, c.branched)

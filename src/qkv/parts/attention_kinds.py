"""The kinds of encoder attention that `model.attention` names: full, or one whose cost grows linearly with the length.

BigBird's defaults are those of the paper's base model (Zaheer et al. 2020, appendix E), with a window of 64 positions to each
side for its three blocks. Linformer's is the k with which its paper comes close to full attention over 512 tokens (section 5.1).
B rows, T positions.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationInfo, field_validator
from torch import Tensor, nn

from qkv.base.config import Config
from qkv.parts.attention import SelfAttention
from qkv.parts.linformer import LengthProjection, LinformerAttention, LinformerMask, real_positions
from qkv.parts.masks import AttentionMask, packed_mask
from qkv.parts.patterns import Pattern
from qkv.parts.positions import PositionsConfig
from qkv.parts.relative import PositionScheme, make_position_scheme
from qkv.parts.sparse import pattern_mask


class AttentionPattern(Config):
    """Base of the kinds: a new one is one subclass, with its name in `KINDS` and `AttentionConfig`."""

    kind: str
    one_text_per_row: ClassVar[bool] = False  # whether rows must hold one text each

    def covers(self, length: int) -> bool:
        """Return whether every token of a text of `length` tokens attends to all of it."""
        return False

    def mask(self, builder: "MaskBuilder", text: Tensor, like: Tensor, causal: bool) -> AttentionMask:
        """Build the mask for rows whose positions belong to these texts, (B, T), 0 = padding."""
        raise NotImplementedError

    def shared_weights(self, c: "AttentiveConfig") -> LengthProjection | None:
        """Build the weights that all layers share to attend; None where there are none."""
        return None

    def make_layer(self, c: "AttentiveConfig", scheme: PositionScheme) -> SelfAttention:
        """Build the self-attention of one layer."""
        return SelfAttention(c.width, c.heads, scheme)


class Full(AttentionPattern):
    """Every token attends to all of its text."""

    kind: Literal["full"] = "full"

    def covers(self, length: int) -> bool:
        return True

    def mask(self, builder: "MaskBuilder", text: Tensor, like: Tensor, causal: bool) -> AttentionMask:
        return packed_mask(text, text, builder.head_width, like, causal)


class Window(AttentionPattern):
    """Every token attends to its neighbours."""

    kind: Literal["window"] = "window"
    radius: int = Field(default=128, ge=1)  # positions to each side that a token attends to

    @property
    def pattern(self) -> Pattern:
        return Pattern(self.radius)

    def covers(self, length: int) -> bool:
        return self.radius >= length - 1

    def mask(self, builder: "MaskBuilder", text: Tensor, like: Tensor, causal: bool) -> AttentionMask:
        return pattern_mask(self.pattern, text)


class BigBird(AttentionPattern):
    """Every token attends to its neighbours, to a text's first tokens, which attend to all of it, and to random blocks."""

    kind: Literal["bigbird"] = "bigbird"
    radius: int = Field(default=64, ge=1)  # positions to each side that a token attends to
    global_tokens: int = Field(default=128, ge=0)  # tokens at a text's beginning that attend to all of it, and all to them
    random_blocks: int = Field(default=3, ge=0)  # blocks chosen at random for each block
    block_size: Literal[16, 32, 64, 128] = 64  # positions in a block
    seed: int = Field(default=0, ge=0)  # of the choice

    @property
    def pattern(self) -> Pattern:
        return Pattern(self.radius, self.global_tokens, self.random_blocks, self.block_size, self.seed)

    def covers(self, length: int) -> bool:
        return max(self.radius + 1, self.global_tokens) >= length

    def mask(self, builder: "MaskBuilder", text: Tensor, like: Tensor, causal: bool) -> AttentionMask:
        return pattern_mask(self.pattern, text)


class Linformer(AttentionPattern):
    """Every token attends to learned mixtures of all positions."""

    kind: Literal["linformer"] = "linformer"
    projected_length: int = Field(default=128, ge=1)  # number of mixtures, the paper's k; at most model.max_positions
    sharing: Literal["none", "heads", "key-value", "layers"] = "layers"  # what shares the weights of the mixtures
    one_text_per_row: ClassVar[bool] = True

    def mask(self, builder: "MaskBuilder", text: Tensor, like: Tensor, causal: bool) -> AttentionMask:
        checked = builder.rows_checked and text.is_cuda
        real = real_positions(text, builder.config.max_positions, checked)
        builder.rows_checked = True
        return LinformerMask(real, builder.shared)

    def shared_weights(self, c: "AttentiveConfig") -> LengthProjection | None:
        if self.sharing != "layers":
            return None
        return LengthProjection(c.max_positions, self.projected_length, c.heads, self.sharing)

    def make_layer(self, c: "AttentiveConfig", scheme: PositionScheme) -> SelfAttention:
        return LinformerAttention(c.width, c.heads, c.max_positions, self.projected_length, self.sharing, scheme)


KINDS: dict[str, type[Config]] = {"full": Full, "window": Window, "bigbird": BigBird, "linformer": Linformer}


def parse_kind(given: Any) -> Any:
    """Let the name of a kind stand for the kind with its defaults; refuse unknown kinds."""
    given = {"kind": given} if isinstance(given, str) else given
    if isinstance(given, dict) and given.get("kind") not in KINDS:
        missing = "" if "kind" in given else "; add it, as in --set model.attention.kind=window"
        raise ValueError(f"expected a kind, one of {', '.join(KINDS)}{missing}")
    return given


def _tag(given: Any) -> str | None:
    """Return the class name; error messages leave it out, since keys do not begin with a capital (base/config.py)."""
    kind = given.get("kind") if isinstance(given, dict) else getattr(given, "kind", None)
    return KINDS[kind].__name__ if kind in KINDS else None


AttentionConfig = Annotated[
    Annotated[Full, Tag("Full")]
    | Annotated[Window, Tag("Window")]
    | Annotated[BigBird, Tag("BigBird")]
    | Annotated[Linformer, Tag("Linformer")],
    Discriminator(_tag, custom_error_type="attention", custom_error_message=f"expected a kind, one of {', '.join(KINDS)}"),
    BeforeValidator(parse_kind),
]


def only_full(attention: Full | Window | BigBird | Linformer) -> Full:
    """Refuse other kinds: a validator for models that have full attention only."""
    if not isinstance(attention, Full):
        raise ValueError(f"this model has full attention, not {attention.kind}; leave model.attention out")
    return attention


# Positions that sparse attention and Linformer support; the others need a number for every pair of positions.
PER_TOKEN_POSITIONS = ("none", "counting", "normalised", "sinusoidal", "learned", "rotary", "structural-absolute")


class AttentiveConfig(PositionsConfig):
    """The part of a model's shape that its encoder's attention depends on."""

    attention: AttentionConfig = Full()  # which positions of its text a token of the encoder attends to

    @field_validator("attention")
    @classmethod
    def _suits_positions(cls, attention: AttentionConfig, info: ValidationInfo) -> AttentionConfig:
        # None where they are invalid themselves.
        max_positions, positions = (info.data.get(name) for name in ("max_positions", "positions"))
        if isinstance(attention, Linformer) and max_positions and attention.projected_length > max_positions:
            raise ValueError(
                f"projected_length {attention.projected_length} is above model.max_positions {max_positions}; "
                f"set model.attention.projected_length={max_positions} or less, or raise model.max_positions"
            )
        if attention.kind != "full" and positions and positions not in PER_TOKEN_POSITIONS:
            raise ValueError(
                f"model.positions={positions} needs full attention, not {attention.kind}; "
                f"choose one of {', '.join(PER_TOKEN_POSITIONS)}, or full attention"
            )
        return attention

    @property
    def longest(self) -> int | None:
        """The longest text in tokens; None without a limit."""
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


class MaskBuilder(nn.Module):
    """Builds the mask of all encoder layers once a pass, and holds the weights that layers share to attend."""

    def __init__(self, c: AttentiveConfig):
        super().__init__()
        self.config = c
        self.head_width = getattr(c, "head_width", c.width // c.heads)  # a T5's heads have a width of their own
        self.shared = c.attention.shared_weights(c)
        self.rows_checked = False  # whether a batch was checked to hold one text a row: on a GPU, the first one must do

    def forward(self, text: Tensor, like: Tensor, causal: bool = False) -> AttentionMask:
        """Build the mask for rows whose positions belong to these texts, (B, T); dtype and device follow `like`.

        `causal`, for full attention only, hides what comes after each token.
        """
        return self.config.attention.mask(self, text, like, causal)


def make_attention(c: AttentiveConfig) -> SelfAttention:
    """Build the self-attention of one encoder layer."""
    return c.attention.make_layer(c, make_position_scheme(c.positions, c.width, c.heads, c.max_distance))

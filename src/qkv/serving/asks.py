"""What may be asked: the body of each request, checked where it stands. What is not here is refused."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from qkv.base.config import Config

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Texts = Annotated[list[str], Field(min_length=1)]
Top = Annotated[int, Field(ge=1, le=100)]


class TranslateAsk(Config):
    """Texts to be translated, as LibreTranslate has it; `model` chooses among translators of the same languages."""

    q: str | list[str]
    source: Name | None = None  # a code of GET /languages, or auto
    target: Name | None = None
    format: Literal["text"] = "text"
    alternatives: int = Field(default=0, ge=0, le=100)
    api_key: str | None = None
    model: Name | None = None


class DetectAsk(Config):
    """A text whose language is wanted, as LibreTranslate has it."""

    q: str
    api_key: str | None = None


class FillAsk(Config):
    """A text with [MASK] where words are to be guessed."""

    text: str
    top: Top = 5
    model: Name | None = None


class PredictAsk(Config):
    """Examples for a fine-tuned model: texts, pairs of texts, or lists of words."""

    texts: list[str | list[str]]
    model: Name | None = None


class LookAsk(Config):
    """A text whose attention is wanted; with `target` as if that were written, not what the model would write.

    Heads of words, as `qkv translate` reads them, are for models that read trees.
    """

    text: str
    heads: list[int] | None = None
    target: str | None = None
    target_heads: list[int] | None = None  # of an encoder's second text
    model: Name | None = None


class NeighboursAsk(Config):
    """A word whose nearest words are wanted."""

    word: str
    top: Top = 10
    model: Name | None = None


class MapAsk(Config):
    """Words to be laid out in a plane."""

    words: list[str] = Field(min_length=1)
    model: Name | None = None


class EmbeddingsAsk(Config):
    """Texts whose vectors are wanted, as OpenAI has it."""

    model: Name
    input: str | Texts
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: int | None = Field(default=None, ge=1)
    user: str | None = None


class StreamOptions(Config):
    include_usage: bool | None = None


class CompletionAsk(Config):
    """Texts to go on with, as OpenAI has it; what is not offered must be as it is by default."""

    model: Name
    prompt: str | Texts
    max_tokens: int | None = Field(default=16, ge=1)
    temperature: float | None = Field(default=1.0, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(default=1.0, gt=0, le=1, allow_inf_nan=False)
    top_k: int | None = Field(default=0, ge=0, le=1_000_000)
    n: int | None = Field(default=1, ge=1, le=16)
    stop: str | list[str] | None = None
    seed: int | None = Field(default=None, ge=0, le=2**53)
    echo: bool | None = False
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    best_of: Literal[1] | None = None
    frequency_penalty: Literal[0] | None = None
    presence_penalty: Literal[0] | None = None
    logit_bias: None = None
    logprobs: None = None
    suffix: None = None


ASKS: tuple[type[Config], ...] = (
    TranslateAsk, DetectAsk, FillAsk, PredictAsk, LookAsk, NeighboursAsk, MapAsk, EmbeddingsAsk, CompletionAsk,
)  # fmt: skip

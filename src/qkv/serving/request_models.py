"""Bodies of requests. Unknown keys are refused; OpenAPI is generated from these models."""

import re
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import AfterValidator, Field, Json, SkipValidation, StringConstraints, WithJsonSchema, model_validator

from qkv.base.config import Config

MAX_SEED = 2**53  # beyond it, programs that read numbers of JSON as floats would change a seed
NEW_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
FOLDER = r"^[^/.\x00-\x1f\x7f][^/\x00-\x1f\x7f]*(/[^/.\x00-\x1f\x7f][^/\x00-\x1f\x7f]*)*/?$"
MAX_FILE_NAME = 255  # bytes, on the file systems there are
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
GlossaryTerm = Annotated[str, StringConstraints(min_length=1, max_length=200)]
# Lists fail at their first mistake: to list all of a hundred thousand takes a second, in which nothing else is answered.
FAIL_FAST = Field(fail_fast=True)
GlossaryTerms = Annotated[
    dict[GlossaryTerm, GlossaryTerm | Annotated[list[GlossaryTerm], FAIL_FAST]],
    Field(max_length=1000),
]
TextList = Annotated[list[str], Field(min_length=1, fail_fast=True)]
TokenIds = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, fail_fast=True)]
TokenIdLists = Annotated[list[TokenIds], Field(min_length=1, fail_fast=True)]
NonEmptyText = Annotated[str, StringConstraints(min_length=1)]  # where a model has nothing to do for an empty one
StopString = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Top = Annotated[int, Field(ge=1, le=100)]


class UploadedFile(NamedTuple):
    """A file of a form."""

    name: str
    content: bytes


class RequestBody(Config):
    """The body of a request, in JSON; LibreTranslate's clients also send forms, and may put their key into the body."""

    accepts_form: ClassVar[bool] = False
    for_admins: ClassVar[bool] = False  # whether it needs an administrator's key

    @model_validator(mode="before")
    @classmethod
    def _read_whole_numbers(cls, values: Any) -> Any:
        """Read 1.0 as 1: both are the same integer in JSON Schema, and some programs write no other numbers."""
        return {name: _whole(value) for name, value in values.items()} if isinstance(values, dict) else values


class TranslateRequest(RequestBody):
    """Texts to translate, as in LibreTranslate's API; `model` chooses among translators of the same languages.

    `glossary` maps terms to the translations that they must have, as a file of `qkv translate --glossary` does.
    With `stream`, translations come sentence by sentence, as server-sent events.
    """

    accepts_form = True
    q: str | Annotated[list[str], FAIL_FAST]
    source: ModelName | None = None  # a code of GET /languages, or auto
    target: ModelName | None = None
    format: Literal["text", "html"] = "text"
    alternatives: int = Field(default=0, ge=0)
    confidence: bool = False  # whether to return the probability that each translation is good
    api_key: str | None = None
    model: ModelName | None = None
    glossary: GlossaryTerms | None = None
    stream: bool = False
    soft: bool = False  # whether the glossary is put into the source, as `qkv translate --soft` does


class TranslateFileRequest(RequestBody):
    """A file to translate, as in LibreTranslate's API: any format that `qkv translate` reads, by the end of its name."""

    file: Annotated[UploadedFile, SkipValidation, WithJsonSchema({"type": "string", "format": "binary"})]
    source: ModelName | None = None  # a code of GET /languages, or auto
    target: ModelName | None = None
    api_key: str | None = None
    model: ModelName | None = None
    glossary: Json[GlossaryTerms] | None = None  # as for /translate


class DetectRequest(RequestBody):
    """A text whose language to detect, as in LibreTranslate's API."""

    accepts_form = True
    q: str
    api_key: str | None = None


class FillRequest(RequestBody):
    """A text with [MASK] in the place of each word to predict."""

    text: NonEmptyText = Field(json_schema_extra={"pattern": r"\[MASK\]"})
    top: Top = 5
    model: ModelName | None = None


class PredictRequest(RequestBody):
    """Examples for a fine-tuned model: texts, pairs of texts, or lists of words."""

    texts: Annotated[list[NonEmptyText | Annotated[list[str], FAIL_FAST]], FAIL_FAST]
    model: ModelName | None = None


class LookRequest(RequestBody):
    """A text whose attention to show; `target` replaces the model's own output, or is an encoder's second text.

    Models that read trees need the head of each word, in the format that `qkv translate` reads.
    """

    text: NonEmptyText
    heads: Annotated[list[int], FAIL_FAST] | None = None
    target: str | None = None
    target_heads: Annotated[list[int], FAIL_FAST] | None = None  # of an encoder's second text
    model: ModelName | None = None


class NeighboursRequest(RequestBody):
    """A word whose nearest words to return."""

    word: NonEmptyText
    top: Top = 10
    model: ModelName | None = None


class MapRequest(RequestBody):
    """Words to place in a plane."""

    words: TextList
    model: ModelName | None = None


class EmbeddingsRequest(RequestBody):
    """Texts to embed, as in OpenAI's API: each a string, or a list of its token ids."""

    model: ModelName
    input: str | TextList | TokenIds | TokenIdLists = Field(
        description="a text, a list of texts, the token ids of a text, or a list of those; no list is empty"
    )
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: int | None = Field(default=None, ge=1)
    user: str | None = None


def _check_no_bias(given: dict[str, float]) -> dict[str, float]:
    if given:
        raise ValueError("biases are not supported; leave it out")
    return given


class StreamOptions(Config):
    include_usage: bool | None = None


class CompletionRequest(RequestBody):
    """Texts to continue, as in OpenAI's API; options that are not supported must have their default.

    A prompt may also be a list of token ids. A T5 fills in the text between `prompt` and `suffix`.
    """

    model: ModelName
    prompt: NonEmptyText | Annotated[list[NonEmptyText], Field(min_length=1, fail_fast=True)] | TokenIds | TokenIdLists = Field(
        description="a text, a list of texts, token ids, or a list of those; none is empty"
    )
    max_tokens: int | None = Field(default=16, ge=0)  # 0: none, to have the log-probabilities of the prompt alone
    temperature: float | None = Field(default=1.0, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(default=1.0, gt=0, le=1, allow_inf_nan=False)
    top_k: int | None = Field(default=0, ge=0, le=1_000_000)
    n: int | None = Field(default=1, ge=1, le=16)
    stop: StopString | Annotated[list[StopString], Field(max_length=16)] | None = None
    seed: int | None = Field(default=None, ge=-MAX_SEED, le=MAX_SEED)
    echo: bool | None = False
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    best_of: Literal[1] | None = None
    frequency_penalty: float | None = Field(default=0, ge=-2, le=2, allow_inf_nan=False)
    presence_penalty: float | None = Field(default=0, ge=-2, le=2, allow_inf_nan=False)
    logit_bias: Annotated[dict[str, float], AfterValidator(_check_no_bias)] | None = Field(
        default=None, json_schema_extra={"maxProperties": 0}
    )
    logprobs: int | None = Field(default=None, ge=0, le=20)  # most probable tokens that are listed beside each token
    suffix: str | None = None

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """The strings that end a text."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


def _check_name(given: str) -> str:
    if not re.fullmatch(NEW_NAME, given):
        raise ValueError(
            "a name is letters, digits, dots, dashes and underscores, such as en-de.v2, and begins with a letter or digit"
        )
    return given


def _check_folder(given: str) -> str:
    if not re.fullmatch(FOLDER, given) or any(len(part.encode()) > MAX_FILE_NAME for part in given.split("/")):
        raise ValueError("a folder is a path below the root of models, such as en-de/v2; no part of it begins with a dot")
    return given


class AddModelRequest(RequestBody):
    """A model to serve: a new one, or another folder for a name that is there."""

    for_admins = True
    name: Annotated[str, AfterValidator(_check_name)] = Field(max_length=100, json_schema_extra={"pattern": NEW_NAME})
    folder: Annotated[str, AfterValidator(_check_folder)] = Field(max_length=1000, json_schema_extra={"pattern": FOLDER})
    adapter: bool = False  # whether it is an adapter of one of the runs that are served


def _whole(value: Any) -> Any:
    """Return an integer for a whole float; the same for all numbers of a list."""
    if isinstance(value, list):
        return [_whole(one) if isinstance(one, float) else one for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value

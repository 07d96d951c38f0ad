"""Bodies of responses. OpenAPI is generated from these models, and tests check every response against it."""

from typing import Any, Literal

from pydantic import BaseModel


class ErrorResponse(BaseModel):
    """The reason why a request failed."""

    error: str
    code: str


class OpenAIError(BaseModel):
    message: str
    type: str
    param: str | None
    code: str


class OpenAIErrorResponse(BaseModel):
    """The reason why a request failed, in the format of OpenAI's API."""

    error: OpenAIError


class ServedFolders(BaseModel):
    """The names that all workers serve now, each with its folder."""

    models: dict[str, str]
    adapters: dict[str, str]


class DetectedLanguage(BaseModel):
    language: str
    confidence: float


class TranslateResponse(BaseModel):
    """Translations; a list of texts gives lists. Scores and confidences are those of the translation, then its alternatives.

    A confidence is the probability that a translation is good, null for that of an empty text.
    """

    translatedText: str | list[str]
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None
    alternatives: list[str] | list[list[str]] | None = None
    scores: list[float] | list[list[float]] | None = None
    confidences: list[float | None] | list[list[float | None]] | None = None
    missingTerms: list[str] | list[list[str]] | None = None  # terms that are not translated as the glossary says
    pivot: str | None = None  # the language between two models, where none translates directly


class TranslateFileResponse(BaseModel):
    """Where the translated file can be fetched, for ten minutes; how many of its segments are translated, and how many left."""

    translatedFileUrl: str
    translated: int
    left: int  # segments that had a translation, or whose translation would break the file
    pivot: str | None = None


class LanguageInfo(BaseModel):
    code: str
    name: str
    targets: list[str]


class NamedLanguage(BaseModel):
    code: str
    name: str


class LanguagePair(BaseModel):
    source: NamedLanguage
    target: NamedLanguage


class FrontendSettings(BaseModel):
    """Settings that a page for translation needs, as in LibreTranslate's API."""

    apiKeys: bool
    charLimit: int
    filesTranslation: bool
    frontendTimeout: int
    keyRequired: bool
    language: LanguagePair | None
    suggestions: bool
    supportedFilesFormat: list[str]


class ModelDescription(BaseModel):
    """What a model is and how good it is, in words and as facts; null where its run does not record them."""

    text: str
    architecture: str | None
    task: str | None
    trained_on: str | None
    training_time: str | None
    steps: str | None
    scored_on: str | None
    scores: dict[str, float]


class ModelInfo(BaseModel):
    """A model; `parameters` is null where another program holds the weights (`--engine`, exported folders)."""

    id: str
    kind: Literal["translator", "encoder", "generator", "infiller", "vectors"]
    can: list[str]
    languages: list[str] | None
    takes: Literal["text", "pair", "words", "question"] | None  # the input of a fine-tuned model
    trees: bool  # whether /look needs the heads of words
    parameters: int | None
    description: ModelDescription
    examples: list[str | list[str]]  # texts to try it with; of a fine-tuned model in the form that it takes


class FilledWord(BaseModel):
    word: str
    probability: float


class FillResponse(BaseModel):
    masks: list[list[FilledWord]]


class PredictResponse(BaseModel):
    """For each text {label, probability}, {value}, {tags} or {text, score}, by the task that the model was fine-tuned for."""

    model: str
    predictions: list[dict[str, Any]]


class LookResponse(BaseModel):
    """A model's attention to a text: tokens, maps of every layer and head, patterns of heads, links between words."""

    kind: Literal["translator", "encoder", "generator"]
    model: str
    source: list[str]
    target: list[str] | None
    read: list[str] | None
    output: str | None
    source_words: list[int | None]
    target_words: list[int | None] | None
    read_words: list[int | None] | None
    words: dict[str, list[str]]
    maps: list[dict[str, Any]]
    patterns: list[dict[str, Any]]
    rollout: dict[str, Any] | None
    attribution: dict[str, Any] | None
    alignment: list[list[float]] | None
    positions: list[list[float]] | None
    points: dict[str, list[list[float]]]
    effects: dict[str, Any] | None  # what the model loses without each head, where `qkv heads` has measured it
    about: dict[str, str] | None  # run: name of the run; data: names of the files that it was trained on


class NeighbourWord(BaseModel):
    word: str
    similarity: float


class NeighboursResponse(BaseModel):
    neighbours: list[NeighbourWord]


class WordPoint(BaseModel):
    word: str
    x: float
    y: float


class MapResponse(BaseModel):
    points: list[WordPoint]
    missing: list[str]


class OpenAIModel(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class OpenAIModelList(BaseModel):
    object: Literal["list"]
    data: list[OpenAIModel]


class TokenUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int
    completion_tokens: int | None = None


class EmbeddingItem(BaseModel):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingsResponse(BaseModel):
    object: Literal["list"]
    model: str
    data: list[EmbeddingItem]
    usage: TokenUsage


class CompletionLogprobs(BaseModel):
    """The tokens of a choice, their log-probabilities by the model, the most probable ones there, and where each begins."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class CompletionChoice(BaseModel):
    index: int
    text: str
    finish_reason: Literal["stop", "length"] | None
    logprobs: CompletionLogprobs | None


class CompletionResponse(BaseModel):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: TokenUsage | None = None


class HealthResponse(BaseModel):
    status: str


STATUSES = {
    400: "The request cannot be used as it is.",
    401: "The API key is missing or wrong.",
    404: "No such model.",
    408: "The body arrived too slowly.",
    413: "The body is too large.",
    415: "The content type is not supported.",
    422: "The answer would take longer than allowed.",
    429: "Too many requests; Retry-After says when to try again.",
    500: "The service failed.",
    503: "The service is stopping.",
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": why} for status, why in STATUSES.items()
}
ADMIN_ERRORS: dict[int | str, dict[str, Any]] = {
    **ERRORS,
    403: {"model": ErrorResponse, "description": "The request comes from a page of another site."},
    409: {"model": ErrorResponse, "description": "Nothing has changed, for the reason given."},
}
FILE_ERRORS: dict[int | str, dict[str, Any]] = {
    **ERRORS,
    507: {
        "model": ErrorResponse,
        "description": "The service has no room for translated files; Retry-After says when to try again.",
    },
}
OPENAI_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": OpenAIErrorResponse, "description": why} for status, why in STATUSES.items()
}

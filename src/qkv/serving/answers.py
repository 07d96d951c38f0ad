"""What is answered, for the documentation and for the tests that hold the service to it."""

from typing import Any, Literal

from pydantic import BaseModel


class Problem(BaseModel):
    """Why a request was not answered."""

    error: str
    code: str


class OpenAIProblem(BaseModel):
    """The same, as OpenAI's clients read it."""

    class Details(BaseModel):
        message: str
        type: str
        param: str | None
        code: str

    error: Details


class Detected(BaseModel):
    language: str
    confidence: float


class Translated(BaseModel):
    """A list of texts gives lists; scores are of the translation and of each alternative, best first."""

    translatedText: str | list[str]
    detectedLanguage: Detected | list[Detected] | None = None
    alternatives: list[str] | list[list[str]] | None = None
    scores: list[float] | list[list[float]] | None = None


class Language(BaseModel):
    code: str
    name: str
    targets: list[str]


class FrontendSettings(BaseModel):
    class Pair(BaseModel):
        class One(BaseModel):
            code: str
            name: str

        source: One
        target: One

    apiKeys: bool
    charLimit: int
    filesTranslation: bool
    frontendTimeout: int
    keyRequired: bool
    language: Pair | None
    suggestions: bool
    supportedFilesFormat: list[str]


class ModelInfo(BaseModel):
    id: str
    kind: Literal["translator", "encoder", "generator", "vectors"]
    can: list[str]
    languages: list[str] | None
    takes: Literal["text", "pair", "words", "question"] | None  # what a fine-tuned model is asked about
    trees: bool  # whether texts that are looked at must have heads
    parameters: int | None


class Guessed(BaseModel):
    word: str
    probability: float


class Filled(BaseModel):
    masks: list[list[Guessed]]


class Predicted(BaseModel):
    """Of each text {label, probability}, {value}, {tags} or {text, score}, as the model was fine-tuned."""

    model: str
    predictions: list[dict[str, Any]]


class Looked(BaseModel):
    """What a model's attention did: tokens, maps of every layer and head, named habits of heads, links between words."""

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


class Neighbour(BaseModel):
    word: str
    similarity: float


class Neighbours(BaseModel):
    neighbours: list[Neighbour]


class Point(BaseModel):
    word: str
    x: float
    y: float


class Mapped(BaseModel):
    points: list[Point]
    missing: list[str]


class OpenAIModel(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class OpenAIModels(BaseModel):
    object: Literal["list"]
    data: list[OpenAIModel]


class Usage(BaseModel):
    prompt_tokens: int
    total_tokens: int
    completion_tokens: int | None = None


class Embedding(BaseModel):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Embeddings(BaseModel):
    object: Literal["list"]
    model: str
    data: list[Embedding]
    usage: Usage


class Choice(BaseModel):
    index: int
    text: str
    finish_reason: Literal["stop", "length"] | None
    logprobs: None


class Completion(BaseModel):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: Usage | None = None


class Health(BaseModel):
    status: str

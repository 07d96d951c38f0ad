"""Bodies of the laboratory's responses: the values of its views, as `.json()` returns them."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from qkv.serving.lab_requests import Part


class ArithmeticResponse(BaseModel):
    """The numbers of a head at a position, step by step; each step has a name, a sentence and values."""

    kind: str
    model: str
    texts: dict[str, list[str]]
    choices: list[dict[str, Any]]  # the parts that the model has, with their numbers of layers, heads and positions
    part: Part
    layer: int
    head: int
    position: int
    reads: str
    predicts: str | None
    keys: list[str]
    steps: list[dict[str, Any]]


class ChangeResponse(BaseModel):
    """A model before and after changes: text, output, the probabilities of its tokens, and attention."""

    view: Literal["change"]
    kind: str
    model: str
    changes: list[dict[str, Any]]
    words: dict[str, list[str]]
    text: dict[str, Any]
    output: dict[str, Any]
    tokens: list[dict[str, Any]]
    labels: list[list[str | float]]
    moved: list[dict[str, Any]]
    left_out: list[str]
    before: dict[str, Any]
    after: dict[str, Any]


class PatchResponse(BaseModel):
    """How much of an answer each head, and each state of a position after a layer, restores: 1 is all."""

    kind: str
    model: str
    source: list[str]
    other: list[str]
    differs: list[int]
    read: list[str] | None
    predicts_in: str
    predicts_at: int
    answer: str
    instead: str
    clean: dict[str, float]
    corrupted: dict[str, float]
    position: int | None
    heads: list[dict[str, Any]]
    states: list[dict[str, Any]]


class LayersResponse(BaseModel):
    """The predictions of each layer; probability and rank are those of the answers, by layer and position."""

    kind: str
    model: str
    source: list[str]
    read: list[str] | None
    predicts_in: str
    layers: list[dict[str, Any]]
    positions: list[int]
    answers: list[str]
    probability: list[list[float]]
    rank: list[list[int]]
    top: list[list[list[list[str | float]]]]


class StepsResponse(BaseModel):
    """A search: the most probable tokens of each step, and all that was considered as a tree."""

    kind: str
    model: str
    search: Literal["beam", "greedy", "sampling"]
    options: dict[str, float]
    source: list[str]
    output: str
    logprob: float
    score: float
    finished: bool
    steps: list[dict[str, Any]]
    nodes: list[dict[str, Any]]


class AttributeResponse(BaseModel):
    """The contribution of each token and word of a text to an output."""

    view: Literal["attribution"]
    kind: str
    model: str
    output: str | None
    source: list[str]
    target: list[str] | None
    words: dict[str, list[str]]
    attribution: dict[str, Any]
    by_word: list[dict[str, Any]]
    replaced_by: str | None
    methods: list[str]


class ThroughTrainingResponse(BaseModel):
    """Attention, output and probabilities at each snapshot, with the losses of the training."""

    view: Literal["training"]
    kind: str
    model: str
    source: list[str]
    target: list[str] | None
    output: str | None
    steps: list[int]
    losses: list[list[float]]
    scores: list[dict[str, float]]
    snapshots: list[dict[str, Any]]


class HeadEffectsResponse(BaseModel):
    """The drop of a model's score without each head."""

    figure: str
    score: float
    texts: int
    data: str
    weights: str
    drops: dict[str, list[float]]


class ScoredWord(BaseModel):
    word: str
    score: float


class Arrow(BaseModel):
    start: list[float] = Field(alias="from")
    end: list[float] = Field(alias="to")


class AnalogyPoint(BaseModel):
    word: str
    x: float
    y: float
    role: Literal["first", "second", "third", "answer"]


class AnalogyResponse(BaseModel):
    """The answers to an analogy, and all its words in the plane of the question."""

    view: Literal["analogy"]
    question: list[str]
    method: Literal["add", "mul"]
    answers: list[ScoredWord]
    points: list[AnalogyPoint]
    arrows: list[Arrow]
    explained: float


class ProjectorResponse(BaseModel):
    """Words in a plane by each method, with the numbers of their nearest words among these; `missing` have no vector."""

    view: Literal["map"]
    words: list[str]
    groups: list[int]
    points: dict[Literal["pca", "tsne"], list[list[float]]]
    neighbours: list[list[list[float]]]
    counts: list[int] | None
    missing: list[str]


class FollowWordsResponse(BaseModel):
    """The nearest words of each word at each snapshot; a snapshot's share is that of the training that was done."""

    view: Literal["neighbours"]
    words: list[str]
    snapshots: list[dict[str, Any]]

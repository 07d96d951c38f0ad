"""Bodies of the requests to the laboratory, which take what `qkv arithmetic`, `qkv change`, `qkv patch` and others take."""

from typing import Annotated, Any, Literal

from pydantic import Field

from qkv.lens.changes import Change, FixedWeight, SoftmaxTemperature, WithoutHead, WithoutLayer
from qkv.lens.word_edits import DeleteWord, MoveWord, ReplaceWord, WordEdit
from qkv.serving.request_models import FAIL_FAST, LookRequest, ModelName, NonEmptyText, RequestBody, Top

MAX_CHANGES = 32
MAX_MAPS = 64  # attentions that a request may name
MAX_NEW_TOKENS = 100  # of a text whose search is shown
MAX_BEAM = 16
MAX_MAPPED = 2000  # words
MAX_FOLLOWED = 16  # words, through training
Number = Annotated[int, Field(ge=0, le=1_000_000)]  # of a layer, head, position or word, from 0
AttentionName = Annotated[str, Field(min_length=1, max_length=100)]  # such as decoder.1.cross
Part = Literal["encoder", "decoder", "cross"]


class ArithmeticRequest(LookRequest):
    """A text, and the attention head and position whose numbers to show; all are chosen where they are left out."""

    part: Part | None = None
    layer: Number | None = None
    head: Number | None = None
    position: Number | None = None  # of the text that attends


class HeadChange(RequestBody):
    """A head without effect; without `head`, all heads of an attention."""

    change: Literal["head"]
    attention: AttentionName
    head: Number | None = None

    def parsed(self) -> Change:
        return WithoutHead(self.attention, self.head)


class LayerChange(RequestBody):
    """A layer that returns its input."""

    change: Literal["layer"]
    layer: AttentionName  # such as encoder.0

    def parsed(self) -> Change:
        return WithoutLayer(self.layer)


class WeightChange(RequestBody):
    """The attention weight of one key for one query; without `head`, in all heads."""

    change: Literal["weight"]
    attention: AttentionName
    query: Number
    key: Number
    value: float = Field(ge=0, le=1)
    head: Number | None = None

    def parsed(self) -> Change:
        return FixedWeight(self.attention, self.query, self.key, self.value, self.head)


class TemperatureChange(RequestBody):
    """A temperature of the softmax of a head, of an attention, or of all."""

    change: Literal["temperature"]
    value: float = Field(gt=0, le=1000)
    attention: AttentionName | None = None
    head: Number | None = None

    def parsed(self) -> Change:
        return SoftmaxTemperature(self.value, self.attention, self.head)


class ReplaceChange(RequestBody):
    """Another text in the place of a word."""

    change: Literal["replace"]
    word: Number
    text: NonEmptyText

    def parsed(self) -> WordEdit:
        return ReplaceWord(self.word, self.text)


class DeleteChange(RequestBody):
    """A word that is left out."""

    change: Literal["delete"]
    word: Number

    def parsed(self) -> WordEdit:
        return DeleteWord(self.word)


class MoveChange(RequestBody):
    """A word that becomes word number `to`."""

    change: Literal["move"]
    word: Number
    to: Number

    def parsed(self) -> WordEdit:
        return MoveWord(self.word, self.to)


AnyChange = HeadChange | LayerChange | WeightChange | TemperatureChange | ReplaceChange | DeleteChange | MoveChange
OneChange = Annotated[AnyChange, Field(discriminator="change")]


class ChangeRequest(LookRequest):
    """A text, and changes of the model or of its words, in this order; layers, heads, tokens and words count from 0.

    `maps` names the attentions whose weights to return, by default all that move; `[]` returns none.
    """

    changes: Annotated[list[OneChange], FAIL_FAST] = Field(default=[], max_length=MAX_CHANGES)
    maps: Annotated[list[AttentionName], Field(max_length=MAX_MAPS, fail_fast=True)] | None = None


class PatchRequest(RequestBody):
    """Two texts of as many tokens that differ in a word, and the words by which their answers differ, if they are not chosen."""

    text: NonEmptyText
    other: NonEmptyText
    answer: NonEmptyText | None = None
    instead: NonEmptyText | None = None
    target: str | None = None  # in the place of a translator's own translation
    position: Number | None = None  # where heads are put in place; at all positions where it is left out
    model: ModelName | None = None


class LayersRequest(LookRequest):
    """A text for which each layer predicts as if it were the last."""

    top: Top = 5


class StepsRequest(RequestBody):
    """A text to translate or to continue, and the options of the search that is shown."""

    text: NonEmptyText
    top: Top = 5
    beam: int | None = Field(default=None, ge=1, le=MAX_BEAM)  # 1 is greedy
    length_penalty: float | None = Field(default=None, ge=0, le=10)
    sampling: bool | None = None
    temperature: float | None = Field(default=None, gt=0, le=1000)
    top_k: int | None = Field(default=None, ge=0, le=1_000_000)
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int | None = Field(default=None, ge=0, le=2**53)
    max_new_tokens: int | None = Field(default=None, ge=1, le=MAX_NEW_TOKENS)  # of a GPT
    model: ModelName | None = None

    def options(self) -> dict[str, Any]:
        """Return the options of decoding that are given."""
        return self.model_dump(exclude={"text", "top", "model"}, exclude_none=True)


class AttributeRequest(LookRequest):
    """A text, and which output its words should explain: all of it, a word, or a word instead of another one."""

    method: Literal["gradient", "integrated", "occlusion"] = "gradient"
    word: Number | None = None  # of the output
    instead: NonEmptyText | None = None


class ThroughTrainingRequest(LookRequest):
    """A text that each snapshot of a run's training reads; `part` and `layer` choose the attention maps."""

    part: Part | None = None
    layer: Number | None = None


class HeadEffectsRequest(RequestBody):
    """The model whose heads were measured by `qkv heads`."""

    model: ModelName | None = None


class AnalogyRequest(RequestBody):
    """Three words: the first is to the second as the third is to the words that are found."""

    first: NonEmptyText
    second: NonEmptyText
    third: NonEmptyText
    top: Top = 5
    method: Literal["add", "mul"] = "add"
    model: ModelName | None = None


class ProjectorRequest(RequestBody):
    """Words to place in a plane with their neighbours; by default the `count` most frequent ones."""

    words: Annotated[list[NonEmptyText], Field(min_length=2, max_length=MAX_MAPPED, fail_fast=True)] | None = None
    count: int = Field(default=500, ge=2, le=MAX_MAPPED)
    method: Literal["pca", "tsne"] = "pca"  # tsne: both
    model: ModelName | None = None


class FollowWordsRequest(RequestBody):
    """Words whose nearest words to return at each snapshot of the training of their vectors."""

    words: Annotated[list[NonEmptyText], Field(min_length=1, max_length=MAX_FOLLOWED), FAIL_FAST]
    top: Top = 10
    model: ModelName | None = None

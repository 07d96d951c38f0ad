"""What a lesson shows of a model on one sentence: a head with a clear maximum, its arithmetic, the layers and the search."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from qkv.base.errors import ConfigError, DataError
from qkv.lens.arithmetic import Arithmetic, HeadChoice, arithmetic
from qkv.lens.arithmetic.steps import Step, TokenProbabilities
from qkv.lens.inspectors import CROSS, ENCODER, AttentionMap, Inspector
from qkv.lens.layer_predictions import LayerPredictions
from qkv.lens.steps import SearchView
from qkv.lens.tokenized_text import TokenizedText
from qkv.lens.view import NO_ATTENTION
from qkv.text.tokenizer import MASK

CLEAR = 0.7  # the weight of a clear maximum that still leaves something to the others
LETTERS = 3  # of a word that is worth a look
FUNCTION_WORDS = frozenset(  # short words that a lesson does not follow, in the languages of its own sentences
    [
        *("the", "and", "for", "with", "from", "that", "this", "was", "are", "has", "have", "his", "her", "its", "not", "you"),
        *("der", "die", "das", "den", "dem", "des", "und", "ein", "eine", "einen", "einem", "einer", "mit", "von", "ist"),
        *("les", "une", "est", "dans", "pour", "avec", "los", "las", "una", "con", "del", "que", "por"),
    ]
)
MAX_TOKENS = 40  # of a sentence; more are not readable in a class


@dataclass(frozen=True)
class InspectedText:
    """A loaded run with a text that it has already read; `inspect` returns the same inspector each time."""

    inspector: Inspector
    trees = False

    @property
    def loads_as(self) -> str:
        """What the run is used as."""
        return self.inspector.kind

    def inspect(self, text: str, target: str | None = None) -> Inspector:
        """Return the inspector."""
        return self.inspector


@dataclass(frozen=True)
class Material:
    """The model's numbers on one sentence."""

    text: str
    output: str | None  # the translation, the continuation, or the predicted word
    given: str | None  # the word that [MASK] hides, where it is known
    head: Arithmetic  # of the head that the lesson is about
    first: Arithmetic  # of the token whose vector is followed from the embedding
    last: Arithmetic  # at the same position as `head`, in the last layer
    layers: LayerPredictions | None  # None where layers do not add to one state
    search: SearchView | None

    def step(self, *names: str) -> Step | None:
        """Return the first step of these names that the head's arithmetic has."""
        return next((step for step in self.head.steps if step.name in names), None)

    @cached_property
    def weights(self) -> Tensor:
        """The weights of the head, (S,)."""
        return self.head["softmax"]["weights"]

    @cached_property
    def best(self) -> int:
        """The key with the largest weight."""
        return int(self.weights.argmax())

    @cached_property
    def predictions(self) -> TokenProbabilities:
        """The most probable tokens after the last layer."""
        return next(one for one in self.last.steps[-1].values if isinstance(one, TokenProbabilities))

    @cached_property
    def so_far(self) -> list[tuple[str, bool]]:
        """The tokens up to the one that attends, or all of an encoder's text; whether each is a special one."""
        texts, position = self.head.texts, self.head.position
        text = texts.get("read", texts.get("target", texts["source"]))
        count = len(text.tokens) if self.head.kind == "encoder" else position + ("read" in texts or "target" not in texts)
        special = [word is None for word in text.word_ids]
        shown = [*zip(text.tokens[:count], special[:count], strict=True)]
        return shown if shown or self.head.kind == "encoder" else [(self.head.reads, True)]

    @cached_property
    def width(self) -> int:
        """The width of the layers; 0 where nothing is added to what came in."""
        residual = self.step("residual")
        return 0 if residual is None else len(residual["x"])

    @property
    def heads(self) -> int:
        """The number of heads in a layer."""
        return self._choice["heads"]

    @property
    def depth(self) -> int:
        """The number of layers that have such heads."""
        return self._choice["layers"]

    @property
    def _choice(self) -> dict[str, Any]:
        return next(one for one in self.head.choices if one["part"] == self.head.part)


def make_material(
    inspector: Inspector,
    text: str,
    layers: LayerPredictions | None,
    search: SearchView | None,
    given: str | None = None,
) -> Material:
    """Choose a head and a position with a clear maximum, and compute what the lesson shows of them."""
    maps = inspector.maps()
    if not maps:
        raise ConfigError(NO_ATTENTION)
    for one in inspector.texts.values():
        if len(one.ids) > MAX_TOKENS:
            raise DataError(f"a sentence has {len(one.ids)} tokens, and a lesson shows {MAX_TOKENS} at most; give a shorter one")
    read = InspectedText(inspector)
    number, head, position = clear_head(inspector, maps)
    part, layer = maps[number].part, maps[number].layer
    depth = sum(one.part == part for one in maps)
    found = arithmetic(read, text, None, HeadChoice(part, layer, head, position))
    last = found if layer == depth - 1 else arithmetic(read, text, None, HeadChoice(part, depth - 1, head, position))
    if part == CROSS and any(one.part == ENCODER for one in maps):
        followed = HeadChoice(ENCODER, 0, 0, int(maps[number].weights[head, position].argmax()))
    else:
        followed = HeadChoice(part, 0, 0, position)
    first = arithmetic(read, text, None, followed)
    return Material(text, inspector.output, given, found, first, last, layers, search)


def clear_head(inspector: Inspector, maps: Sequence[AttentionMap]) -> tuple[int, int, int]:
    """Return the number of an attention, a head and a position whose largest weight is clear and on a word of some length.

    A GPT is shown at the prompt's last token, an encoder at its first [MASK], a translator at a word of its translation,
    preferably one for which the mean of all heads has its maximum on the same word.
    """
    parts = {one.part for one in maps}
    chosen = [(number, one) for number, one in enumerate(maps) if one.part == CROSS or CROSS not in parts]
    rows, columns = (inspector.texts[getattr(chosen[0][1], side)] for side in ("rows", "columns"))
    content = content_tokens(columns)
    positions = _positions(inspector, rows)
    mean = torch.stack([one.weights.mean(0) for _, one in chosen]).mean(0)  # (T, S)
    ranked = []
    for number, one in chosen:
        weights, keys = one.weights.max(-1)  # (H, T) each
        for head in range(len(weights)):
            for position in positions:
                weight, key = float(weights[head, position]), int(keys[head, position])
                agreed = not content or key == max(content, key=lambda n: float(mean[position, n]))
                itself = rows is columns and key == position
                ranked.append((key not in content or itself, not agreed, abs(weight - CLEAR), (number, head, position)))
    return min(ranked)[-1]


def content_tokens(text: TokenizedText) -> list[int]:
    """Return the first tokens of words of some length; a Chinese character is such a word."""
    first = [n for n, word in enumerate(text.word_ids) if word is not None and (n == 0 or text.word_ids[n - 1] != word)]
    words = {n: text.words[text.word_ids[n] or 0] for n in first}
    long = {n for n, word in words.items() if len(word) >= LETTERS or "\u3040" <= word <= "\u9fff"}
    return [n for n, word in words.items() if n in long and word.isalpha() and word.lower() not in FUNCTION_WORDS]


def _positions(inspector: Inspector, rows: TokenizedText) -> list[int]:
    """Return the positions at which a lesson may look."""
    prompt = getattr(inspector, "prompt", None)
    if prompt is not None:
        return [prompt - 1]
    if MASK in rows.tokens and inspector.kind == "encoder":
        return [rows.tokens.index(MASK)]
    return content_tokens(rows) or [0]

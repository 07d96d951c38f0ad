"""Base classes of handlers, which turn requests into batch items and compute them for one model.

A handler has a method for each of its endpoints, which splits a request into items; threads of the service's pool call it.
The model's worker alone calls `compute`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from qkv.lens.view import Inspectable, look
from qkv.serving.batching import BatchItem, PreparedRequest, RunningItems
from qkv.serving.errors import invalid
from qkv.serving.laboratory import GivenText, Laboratory, available
from qkv.serving.request_models import LookRequest
from qkv.serving.views import VIEWS, RunningViews, view_at_once, write_view
from qkv.text.tokenizer import Tokenizer
from qkv.text.treebank import HEADS, TextWithHeads

LOOK = "look"


class Handler(ABC):
    """A loaded model as the service uses it."""

    kind: ClassVar[str]  # as GET /models names it
    abilities: list[str]  # names of the endpoints that it answers
    languages: tuple[str, str] | None = None  # of a translator: source, target
    input_format: str | None = None  # of a fine-tuned model: text, pair, words or question
    reads_trees = False  # whether its texts must have the heads of their words
    parameters: int | None = None  # None where another program holds the weights

    @abstractmethod
    def compute(self, key: Any, items: Sequence[BatchItem]) -> Sequence[Any]:
        """Return the results of items that share a key."""

    def begin(self, items: Sequence[BatchItem], piece: int) -> RunningItems:
        """Begin to compute items of one lane, step by step; where steps read them, at most `piece` tokens in each."""
        raise AssertionError(f"a {self.kind} computes everything at once")

    @abstractmethod
    def try_out(self) -> bool:
        """Compute something small, which also makes the decoding weights; return whether the numbers are finite."""


class AttentionHandler(Handler):
    """A handler of a model whose attention can be shown, in addition to its other tasks."""

    reads_pairs: ClassVar[bool] = False  # whether a target is a second text of the input

    def __init__(self, loaded: Inspectable, source: Tokenizer, target: Tokenizer):
        self.loaded, self.source, self.target = loaded, source, target
        self.reads_trees = loaded.trees
        self.abilities = available({LOOK: lambda: look(loaded, TextWithHeads("a", [0]))})
        if self.abilities:
            self.laboratory = Laboratory(loaded)
            self.abilities += self.laboratory.abilities

    @abstractmethod
    def compute_task(self, key: Any, items: Sequence[BatchItem]) -> Sequence[Any]:
        """Return the results of items that are no views."""

    def begin_task(self, items: Sequence[BatchItem], piece: int) -> RunningItems:
        """Begin items that are no views, as `begin` does."""
        return super().begin(items, piece)

    def read_text(self, body: LookRequest, max_tokens: int) -> GivenText:
        """Return the texts of a request for a view; models that read trees need heads."""
        text = _with_heads(body.text, body.heads, self.reads_trees, "heads")
        target = body.target
        if target is not None:
            target = _with_heads(target, body.target_heads, self.reads_trees and self.reads_pairs, "target_heads")
        return self._measured(text, target, max_tokens)

    def read_plain_texts(self, texts: Sequence[str], target: str | None, max_tokens: int) -> GivenText:
        """Return the first of the texts of a request for a view without heads, with the length of the longest."""
        found = [self._measured(text, target, max_tokens) for text in texts]
        return found[0]._replace(tokens=max(given.tokens for given in found))

    def _measured(self, text: str, target: str | None, max_tokens: int) -> GivenText:
        lengths = [len(self.source.encode(text)), len(self.target.encode(target or ""))]
        if max(lengths) > max_tokens:
            raise invalid(
                f"{max(lengths):,} tokens are too many to look inside; send {max_tokens:,} at most",
                "text",
                "text_too_long",
            )
        written = lengths[0] if target is None and self.kind == "translator" else 0  # a guess
        return GivenText(text, target, sum(lengths) + written)

    def look(self, given: GivenText) -> PreparedRequest:
        """Prepare the attention to a text, and to a target if there is one."""
        return view_at_once(LOOK, lambda: look(self.loaded, given.text, given.target), given.tokens, given.tokens)

    def compute(self, key: Any, items: Sequence[BatchItem]) -> Sequence[Any]:
        """Return the results of items that share a key; views are JSON."""
        return [write_view(item.value()) for item in items] if key[0] == VIEWS else self.compute_task(key, items)

    def begin(self, items: Sequence[BatchItem], piece: int) -> RunningItems:
        """Begin to compute views, or items of another lane."""
        return RunningViews(items, piece) if items[0].lane == VIEWS else self.begin_task(items, piece)


def _with_heads(text: str, heads: list[int] | None, wanted: bool, param: str) -> str:
    """Return the text with the heads of its words; raise if they are missing, or given to a model that reads none."""
    if wanted and heads is None:
        raise invalid(
            f'this model reads texts with heads, and there are no {param}; give {{"text": "good dogs", "heads": [2, 0]}}', param
        )
    if not wanted and heads is not None:
        raise invalid(f"this model reads no heads of this text; leave {param} out", param)
    return text if heads is None else TextWithHeads.from_record(text, {HEADS: heads}, param)

"""Base classes of handlers, which turn requests into batch items and compute them for one model.

A handler has a method for each of its endpoints, which splits a request into items; threads of the service's pool call it.
The model's worker alone calls `compute`.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from qkv.base.errors import QkvError
from qkv.lens.view import Inspectable, look
from qkv.serving.batching import BatchItem, PreparedRequest, RunningItems
from qkv.serving.errors import invalid
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

    @abstractmethod
    def compute_task(self, key: Any, items: Sequence[BatchItem]) -> Sequence[Any]:
        """Return the results of items for every task but `look`."""

    def look(
        self,
        text: str,
        target: str | None,
        max_tokens: int,
        heads: list[int] | None = None,
        target_heads: list[int] | None = None,
    ) -> PreparedRequest:
        """Prepare the attention to a text, and to a target if there is one; models that read trees need heads."""
        text = _with_heads(text, heads, self.reads_trees, "heads")
        if target is not None:
            target = _with_heads(target, target_heads, self.reads_trees and self.reads_pairs, "target_heads")
        lengths = [len(self.source.encode(text)), len(self.target.encode(target or ""))]
        if max(lengths) > max_tokens:
            raise invalid(
                f"{max(lengths):,} tokens are too many to show their attention; send {max_tokens:,} at most",
                "text",
                "text_too_long",
            )
        return PreparedRequest((LOOK,), [BatchItem((text, target), sum(lengths), sum(lengths))], lambda results: results[0])

    def compute(self, key: Any, items: Sequence[BatchItem]) -> Sequence[Any]:
        """Return the results of items that share a key; those of `look` are JSON texts."""
        if key[0] != LOOK:
            return self.compute_task(key, items)
        return ["".join(_json_pieces(look(self.loaded, *item.value).json())) for item in items]


def available(attempts: dict[str, Callable[[], Any]]) -> list[str]:
    """Return the names of the attempts that a model can do."""
    names = []
    for name, attempt in attempts.items():
        try:
            attempt()
        except QkvError:
            continue
        names.append(name)
    return names


def _with_heads(text: str, heads: list[int] | None, wanted: bool, param: str) -> str:
    """Return the text with the heads of its words; raise if they are missing, or given to a model that reads none."""
    if wanted and heads is None:
        raise invalid(
            f'this model reads texts with heads, and there are no {param}; give {{"text": "good dogs", "heads": [2, 0]}}', param
        )
    if not wanted and heads is not None:
        raise invalid(f"this model reads no heads of this text; leave {param} out", param)
    return text if heads is None else TextWithHeads.from_record(text, {HEADS: heads}, param)


def _json_pieces(attention: dict[str, Any]) -> Iterator[str]:
    """Return JSON in pieces, map by map: while Python writes a large value at once, no other thread can run."""
    before = "{"
    for name, value in attention.items():
        yield f"{before}{json.dumps(name)}:"
        if name == "maps":
            yield "["
            for index, one in enumerate(value):
                yield ("," if index else "") + json.dumps(one, ensure_ascii=False)
            yield "]"
        else:
            yield json.dumps(value, ensure_ascii=False)
        before = ","
    yield "}"

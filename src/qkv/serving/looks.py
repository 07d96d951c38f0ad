"""Looking inside a model that is served: what its attention did with a text, as JSON."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from qkv.base.errors import QkvError
from qkv.lens.looking import Lookable, look
from qkv.serving.engine import Asked, Unit
from qkv.serving.refusals import wrong
from qkv.text.tokenizer import Tokenizer
from qkv.text.treebank import HEADS, TextWithHeads

Heads = tuple[list[int] | None, list[int] | None]  # of the words of a text and of a target


class Looking(ABC):
    """The work of a model whose attention can be seen, beside what else it does."""

    pairs: ClassVar[bool] = False  # whether a target is a second text that is read

    def __init__(self, loaded: Lookable, source: Tokenizer, target: Tokenizer):
        self.loaded, self.source, self.target = loaded, source, target
        self.lookable = able("look", lambda: look(loaded, TextWithHeads("a", [0])))

    @abstractmethod
    def work(self, key: Any, units: Sequence[Unit]) -> Sequence[Any]:
        """The results of units for which nobody looks inside."""

    def look(self, text: str, target: str | None, most: int, heads: Heads = (None, None)) -> Asked:
        """What the model's attention does with a text, and with a target that is given; each may have heads."""
        trees = self.loaded.trees
        text = _given(text, heads[0], trees, "heads")
        target = target if target is None else _given(target, heads[1], trees and self.pairs, "target_heads")
        lengths = [len(self.source.encode(text)), len(self.target.encode(target or ""))]
        if max(lengths) > most:
            raise wrong(f"{max(lengths):,} tokens are too many to be looked at; send {most:,} at most", "text", "text_too_long")
        return Asked(("look",), [Unit((text, target), sum(lengths), sum(lengths))], lambda found: found[0])

    def compute(self, key: Any, units: Sequence[Unit]) -> Sequence[Any]:
        """The results of units of one key."""
        if key[0] != "look":
            return self.work(key, units)
        return ["".join(_written(look(self.loaded, *unit.value).json())) for unit in units]


def _given(text: str, heads: list[int] | None, trees: bool, name: str) -> str:
    """A text with its heads, which it must have if they are read, and must not have otherwise."""
    if trees and heads is None:
        raise wrong(
            f'this model reads texts with heads, and there are no {name}; give {{"text": "good dogs", "heads": [2, 0]}}', name
        )
    if not trees and heads is not None:
        raise wrong(f"this model reads no heads of this text; leave {name} out", name)
    return text if heads is None else TextWithHeads.from_record(text, {HEADS: heads}, name)


def able(name: str, attempt: Callable[[], Any]) -> list[str]:
    """The name, if what it stands for can be had."""
    try:
        attempt()
    except QkvError:
        return []
    return [name]


def _written(looked: dict[str, Any]) -> Iterator[str]:
    """JSON in pieces: while it writes all of a large value, Python lets no other thread work."""
    before = "{"
    for name, value in looked.items():
        yield f"{before}{json.dumps(name)}:"
        yield from _listed(value) if name == "maps" else [json.dumps(value, ensure_ascii=False)]
        before = ","
    yield "}"


def _listed(maps: list[dict[str, Any]]) -> Iterator[str]:
    before = "["
    for one in maps:
        yield before + json.dumps(one, ensure_ascii=False)
        before = ","
    yield "]"

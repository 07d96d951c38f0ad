"""Looking inside a model that is served: what its attention did with a text, as JSON."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from qkv.base.errors import QkvError
from qkv.lens.looking import Lookable, look
from qkv.serving.engine import Asked, Unit
from qkv.serving.refusals import wrong
from qkv.text.tokenizer import Tokenizer


class Looking(ABC):
    """The work of a model whose attention can be seen, beside what else it does."""

    def __init__(self, loaded: Lookable, source: Tokenizer, target: Tokenizer):
        self.loaded, self.source, self.target = loaded, source, target
        self.lookable = able("look", lambda: look(loaded, "a"))

    @abstractmethod
    def work(self, key: Any, units: Sequence[Unit]) -> Sequence[Any]:
        """The results of units for which nobody looks inside."""

    def look(self, text: str, target: str | None, most: int) -> Asked:
        """What the model's attention does with a text, and with a target that is given."""
        lengths = [len(self.source.encode(text)), len(self.target.encode(target or ""))]
        if max(lengths) > most:
            raise wrong(f"{max(lengths):,} tokens are too many to be looked at; send {most:,} at most", "text", "text_too_long")
        return Asked(("look",), [Unit((text, target), sum(lengths), sum(lengths))], lambda found: found[0])

    def compute(self, key: Any, units: Sequence[Unit]) -> Sequence[Any]:
        """The results of units of one key."""
        if key[0] != "look":
            return self.work(key, units)
        return ["".join(_written(look(self.loaded, *unit.value).json())) for unit in units]


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

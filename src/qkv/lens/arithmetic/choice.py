"""The choice of part, layer, head and position, with sensible defaults."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from qkv.base.errors import ConfigError
from qkv.lens.inspectors import CROSS, AttentionMap, Inspector
from qkv.lens.tokenized_text import TokenizedText

CONTENT = 4  # letters of a word that is worth a look
MASK = "[MASK]"


class HeadChoice(NamedTuple):
    """Part, layer, head and position that somebody asks for; None leaves the choice to us."""

    part: str | None = None
    layer: int | None = None
    head: int | None = None
    position: int | None = None
    counted_from: int = 0  # the number of the first layer, head and position

    def find(self, inspector: Inspector, maps: Sequence[AttentionMap]) -> tuple[int, int, int]:
        """Return the index of the attention, the head and the position, from 0; refuse what the model does not have."""
        parts = list(dict.fromkeys(one.part for one in maps))
        part = self.part or (CROSS if CROSS in parts else parts[0])
        if part not in parts:
            raise ConfigError(f"no part {part!r}; this model's attention has the parts {', '.join(parts)}; choose one of them")
        layers = [number for number, one in enumerate(maps) if one.part == part]
        number = layers[self._number("layer", self.layer, len(layers), f"{part} attention", len(layers) - 1)]
        chosen, texts = maps[number], inspector.texts
        text, prompt = texts[chosen.rows], getattr(inspector, "prompt", None)
        where = f"text that attends ({chosen.rows})"
        position = self._number("position", self.position, len(text.ids), where, prompt - 1 if prompt else _worth_a_look(text))
        heads, words = len(chosen.weights), [n for n, word in enumerate(texts[chosen.columns].word_ids) if word is not None]
        strongest = chosen.weights[:, position, words].amax(-1).argmax() if words else 0
        head = self._number("head", self.head, heads, f"{part} attention", int(strongest))
        return number, head, position

    def _number(self, name: str, given: int | None, count: int, where: str, usual: int) -> int:
        """Return a number from 0 on, or the usual one; refuse one that does not exist."""
        if given is None:
            return usual
        first = self.counted_from
        if type(given) is not int or not first <= given < first + count:
            has = f"the {where} has {count}" if count > 1 else f"the {where} has one"
            known = f"{first} to {first + count - 1}" if count > 1 else f"{first}"
            raise ConfigError(f"no {name} {given}; {has}, counted from {first}; choose {known}")
        return given - first


def choices(maps: Sequence[AttentionMap]) -> list[dict[str, Any]]:
    """Return the parts of a model, each with its numbers of layers, heads and positions, and the text that attends."""
    found = []
    for part in dict.fromkeys(one.part for one in maps):
        layers = [one for one in maps if one.part == part]
        heads, positions, _ = layers[0].weights.shape
        found.append({"part": part, "layers": len(layers), "heads": heads, "positions": positions, "rows": layers[0].rows})
    return found


def _worth_a_look(text: TokenizedText) -> int:
    """Return the position of a [MASK], of the first longer word, or of the first word."""
    if MASK in text.tokens:
        return text.tokens.index(MASK)
    words = [(n, text.words[word]) for n, word in enumerate(text.word_ids) if word is not None]
    long = [n for n, word in words if len(word) >= CONTENT]
    return (long or [n for n, _ in words] or [0])[0]

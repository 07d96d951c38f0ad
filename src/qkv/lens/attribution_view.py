"""What mattered for an output, in plain values: tokens of the source with their contributions, by one of the methods."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qkv.base.errors import ConfigError
from qkv.base.stepwise import Stepwise
from qkv.lens.attribution import METHODS, Attribution, attribute_in_steps
from qkv.lens.figures import draw_attribution
from qkv.lens.inspectors import Inspector
from qkv.lens.page import notebook_frame, save_view
from qkv.lens.tokenized_text import TokenizedText
from qkv.lens.view import attribution_json


@dataclass(frozen=True, repr=False)
class AttributionView:
    """An attribution with its texts; `json()` returns plain values, `save` writes a page, a picture or them."""

    kind: str
    model: str
    output: str | None
    texts: dict[str, TokenizedText]
    attribution: Attribution
    replaced_by: str | None  # what stood in the place of an occluded word; None where it was left out

    def words(self) -> list[tuple[str, float]]:
        """Return the words of the source with their contributions; special tokens stand by themselves."""
        source, last = self.texts["source"], None
        found: list[tuple[str, float]] = []
        for token, number, value in zip(source.tokens, source.word_ids, self.attribution.values.tolist(), strict=True):
            if number is not None and number == last:
                found[-1] = (found[-1][0], found[-1][1] + value)
            else:
                found.append((token if number is None else source.words[number], value))
            last = number
        return found

    def json(self) -> dict[str, Any]:
        """Return everything as lists, strings and numbers, rounded to four digits."""
        source, target = self.texts["source"], self.texts.get("target")
        return {
            "view": "attribution",
            "kind": self.kind,
            "model": self.model,
            "output": self.output,
            "source": source.tokens,
            "target": target and target.tokens,
            "source_words": source.word_ids,
            "target_words": target and target.word_ids,
            "words": {name: text.words for name, text in self.texts.items()},
            "attribution": attribution_json(self.attribution),
            "by_word": [{"word": word, "value": round(value, 4)} for word, value in self.words()],
            "replaced_by": self.replaced_by,
            "methods": list(METHODS),
        }

    def save(self, path: str | Path) -> Path:
        """Write the page as .html, a picture as .png, or the values as .json."""
        if Path(path).suffix not in (".html", ".png", ".json"):
            raise ConfigError(f"save {path}: the name must end with .html, .png or .json, which chooses the format")
        if Path(path).suffix == ".png":
            draw_attribution(self.attribution, self.texts["source"], Path(path))
            return Path(path)
        return save_view(self.json(), path)

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own, for notebooks."""
        return notebook_frame(self.json())

    def __repr__(self) -> str:
        """Return one line, with the words that support the output most and that oppose it most."""
        words = sorted(self.words(), key=lambda pair: pair[1])
        (low, least), (high, most) = words[0], words[-1]
        found = self.attribution
        return f"AttributionView({found.method}, {found.of}: most {high!r} {most:+.2f}, least {low!r} {least:+.2f})"


def view_attribution(inspector: Inspector, method: str, word: int | None, instead: str | None) -> Stepwise[AttributionView]:
    """Attribute an inspected output, one of its words, or a word instead of another one, to the source, step by step."""
    explained = inspector.explain(word, instead)
    found = yield from attribute_in_steps(explained, method)
    name = inspector.tokenizer.pieces([explained.replacement])[0] if explained.replacement is not None else None
    replaced_by = name if method == "occlusion" else None
    return AttributionView(inspector.kind, inspector.model, inspector.output, inspector.texts, found, replaced_by)

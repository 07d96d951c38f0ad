"""Texts and questions of a lesson, which the page shows in the reader's language.

A text is English with {names}, and values for them. The page looks up other languages by the English, so that numbers and words
of the user's sentences stay apart from it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

FIRST = 8  # numbers of a vector that are shown


class LessonText(NamedTuple):
    """A sentence that the page translates, and the values in it."""

    text: str
    values: dict[str, str | int]

    def json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"text": self.text, "values": self.values}


def say(text: str, /, **values: str | int) -> LessonText:
    """Return a text with values for its {names}."""
    return LessonText(text, values)


@dataclass(frozen=True)
class LessonQuestion:
    """A question that is asked before its answer is shown: a choice among options, or a number within a tolerance."""

    name: str  # within its step; what it asks for is hidden until it is answered
    asks: LessonText
    hint: LessonText
    because: LessonText  # said after the answer
    answer: float  # the number, or the index of the option
    options: Sequence[LessonText | str] = ()  # a str is a word of the user's texts, or a number
    tolerance: float = 0.0
    digits: int = 2  # after the point, when the number is shown

    def json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "name": self.name,
            "kind": "choice" if self.options else "number",
            "asks": self.asks.json(),
            "hint": self.hint.json(),
            "because": self.because.json(),
            "answer": self.answer,
            "options": [one if isinstance(one, str) else one.json() for one in self.options],
            "tolerance": self.tolerance,
            "digits": self.digits,
        }


@dataclass(frozen=True)
class LessonStep:
    """One of the six steps."""

    name: str
    title: LessonText
    pictures: Sequence[dict[str, Any]]  # as `picture` makes them
    questions: Sequence[LessonQuestion]

    def json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "name": self.name,
            "title": self.title.json(),
            "pictures": list(self.pictures),
            "questions": [one.json() for one in self.questions],
        }


def ask_number(
    name: str, asks: LessonText, answer: float, estimate: float, hint: LessonText, because: LessonText, digits: int = 2
) -> LessonQuestion:
    """Return a question for a number.

    `estimate` is what follows from the rounded numbers that the reader sees; the tolerance is larger than its error.
    """
    tolerance = max(2 * 10.0**-digits, 0.03 * abs(answer), 1.5 * abs(answer - estimate))
    return LessonQuestion(name, asks, hint, because, round(answer, 4), (), round(tolerance, 4), digits)


def ask_choice(
    name: str, asks: LessonText, options: Sequence[LessonText | str], answer: int, hint: LessonText, because: LessonText
) -> LessonQuestion:
    """Return a question with a choice among options."""
    return LessonQuestion(name, asks, hint, because, answer, tuple(options))


def shown(value: float, digits: int = 2) -> str:
    """Return a number as people read it, with a minus sign."""
    text = f"{value:.{digits}f}"
    return (text.removeprefix("-") if float(text) == 0 else text).replace("-", "−")


def percent(share: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"


def bare(token: str) -> str:
    """Return a token without the mark of a word's beginning or inside."""
    return token.removeprefix("▁").removeprefix("##").removeprefix("Ġ") or "␣"


def marked(tokens: Sequence[str]) -> list[str]:
    """Return tokens without their marks; of two that are the same then, the piece inside a word gets a dot."""
    names = [bare(token) for token in tokens]
    return [f"·{name}" if names.count(name) > 1 and name == token else name for name, token in zip(names, tokens, strict=True)]


def written_so_far(tokens: Sequence[str]) -> str:
    """Return tokens as a text, special ones such as <s> left out."""
    words = [token for token in tokens if token not in ("<s>", "</s>", "[CLS]", "[SEP]")]
    if any(token.startswith("▁") for token in words):
        return "".join(words).replace("▁", " ").strip()
    return " ".join(words).replace(" ##", "") or "…"


def signed(value: float) -> str:
    """Return a number as a term of a sum or a product: a negative one in brackets."""
    return f"({shown(value)})" if shown(value).startswith("−") else shown(value)


def distinct(tokens: Sequence[str]) -> list[str]:
    """Return tokens as people tell them apart: those that occur twice with the number of their place."""
    names = [bare(token) for token in tokens]
    return [f"{name} ({n})" if names.count(name) > 1 else name for n, name in enumerate(names, 1)]


def vector_row(
    label: str, values: Any, token: str | None = None, after: str | None = None, hidden: Sequence[int] = ()
) -> dict[str, Any]:
    """Return a row of a picture of vectors: the first numbers, of which some are hidden until a question is answered."""
    return {
        "label": label,
        "token": token,
        "values": [round(value, 4) for value in values[:FIRST].tolist()],
        "width": len(values),
        "after": after,
        "hidden": list(hidden),
    }


def picture(kind: str, name: str, title: LessonText, says: Sequence[LessonText], **values: Any) -> dict[str, Any]:
    """Return a picture with the sentences before it; `after` in its values names the question that uncovers something."""
    return {"kind": kind, "name": name, "title": title.json(), "says": [one.json() for one in says], **values}


def vectors_picture(
    name: str, title: LessonText, rows: Sequence[dict[str, Any]], says: Sequence[LessonText] = ()
) -> dict[str, Any]:
    """Return a picture of vectors."""
    return picture("vectors", name, title, says, rows=list(rows))


def finite(values: Sequence[float]) -> list[float | None]:
    """Return numbers with four digits; infinities become None."""
    return [round(value, 4) if math.isfinite(value) else None for value in values]

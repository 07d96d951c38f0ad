"""Steps of one head's arithmetic: names with the numbers that the model computed there."""

import re
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from qkv.lens.arithmetic.words import WORDS, StepWords

Kind = Literal["vector", "matrix", "keys", "number"]


@dataclass(frozen=True)
class Numbers:
    """Numbers of one step: a vector, a matrix with a row for each key or head, one number for each key, or one number."""

    kind: Kind
    name: str  # stable, for pages
    label: str  # a symbol or a few words
    values: Tensor  # hidden keys have -inf
    rows: Literal["keys", "heads"] | None = None  # of a matrix

    def json(self) -> dict[str, Any]:
        """Return plain values with four digits; a hidden key has null."""
        found: dict[str, Any] = {"kind": self.kind, "name": self.name, "label": self.label}
        if self.rows is not None:
            found["rows"] = self.rows
        return {**found, "value" if self.kind == "number" else "values": _plain(self.values.tolist())}


@dataclass(frozen=True)
class TokenProbabilities:
    """The most probable tokens."""

    name: str
    label: str
    tokens: list[str]
    logits: Tensor  # (N,)
    probabilities: Tensor  # (N,)
    given: int | None  # which of them the text goes on with

    kind: Literal["tokens"] = "tokens"

    def json(self) -> dict[str, Any]:
        """Return plain values with four digits."""
        logits, probabilities = _plain(self.logits.tolist()), _plain(self.probabilities.tolist())
        tokens = [
            {"token": token, "logit": logits[n], "probability": probabilities[n], "given": n == self.given}
            for n, token in enumerate(self.tokens)
        ]
        return {"kind": self.kind, "name": self.name, "label": self.label, "tokens": tokens}


@dataclass(frozen=True)
class Step:
    """One step: its name decides its words."""

    name: str
    values: tuple[Numbers | TokenProbabilities, ...] = ()
    biased: bool = True  # whether the matrices of its formula have biases, which T5 and others leave out

    def __getitem__(self, name: str) -> Tensor:
        """Return the numbers of that name."""
        return next(one.values for one in self.values if isinstance(one, Numbers) and one.name == name)

    @property
    def words(self) -> StepWords:
        """Title, sentence and formula."""
        words = WORDS[self.name]
        return words if self.biased else words._replace(formula=re.sub(r" \+ b(_\w)?\b", "", words.formula))

    def json(self) -> dict[str, Any]:
        """Return the step with its words."""
        return {"name": self.name, **self.words._asdict(), "values": [one.json() for one in self.values]}


def vector(name: str, label: str, values: Tensor) -> Numbers:
    """Return a vector (D,)."""
    return Numbers("vector", name, label, _copied(values))


def matrix(name: str, label: str, values: Tensor, rows: Literal["keys", "heads"] = "keys") -> Numbers:
    """Return a matrix (N, D) with a row for each key or head."""
    return Numbers("matrix", name, label, _copied(values), rows)


def by_key(name: str, label: str, values: Tensor) -> Numbers:
    """Return one number for each key, (S,)."""
    return Numbers("keys", name, label, _copied(values))


def number(name: str, label: str, value: float | Tensor) -> Numbers:
    """Return one number."""
    return Numbers("number", name, label, _copied(torch.as_tensor(value)))


def _copied(values: Tensor) -> Tensor:
    return values.detach().float().cpu()


def _plain(value: Any) -> Any:
    """Round to four digits; infinities and nan, which JSON cannot hold, become null."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return round(value, 4) if abs(value) < float("inf") else None


def norm_step(name: str, norm: Any, x: Tensor, label: str = "x") -> Step:
    """Return the step of a norm over x (D,): T5's has no mean."""
    if isinstance(norm, nn.LayerNorm):
        deviation = (x.var(unbiased=False) + norm.eps).sqrt()
        numbers = [number("mean", "mean", x.mean()), number("deviation", "deviation", deviation)]
    else:
        numbers = [number("rms", "root mean square", (x.square().mean() + norm.eps).sqrt())]
    return Step(name, (*numbers, vector("x", label, norm(x))))

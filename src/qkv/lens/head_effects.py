"""What each head does: the drop of a model's score when the head is removed (Michel et al. 2019, "Are Sixteen Heads Really
Better than One?", section 3.2).
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qkv.base.files import atomic_file
from qkv.lens.changes import Change, WithoutHead
from qkv.lens.inspectors import Inspector

FILE = "head_effects.json"  # in a run's folder


@dataclass(frozen=True)
class HeadEffects:
    """The drop of a score without each head; below 0 the model is better without it."""

    figure: str  # the score: higher is better
    score: float  # with all heads
    texts: int  # that it was measured on
    data: str  # digest of them
    weights: str  # digest of the weights
    drops: dict[str, list[float]]  # by attention, then head

    def json(self) -> dict[str, Any]:
        """Return plain values, rounded to four digits."""
        drops = {name: [round(drop, 4) for drop in heads] for name, heads in self.drops.items()}
        return {"view": "heads", **asdict(self), "score": round(self.score, 4), "drops": drops}

    def drop(self, attention: str, head: int) -> float | None:
        """Return the drop without a head; None if it is not known."""
        heads = self.drops.get(attention, [])
        return heads[head] if head < len(heads) else None

    def ranked(self) -> list[tuple[str, int, float]]:
        """Return attention, head and drop, largest drop first."""
        found = [(name, head, drop) for name, heads in self.drops.items() for head, drop in enumerate(heads)]
        return sorted(found, key=lambda one: -one[2])

    def save(self, run: Path) -> Path:
        """Write the figures into a run's folder, in place of older ones."""
        with atomic_file(run / FILE) as path:
            path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        return run / FILE

    def __repr__(self) -> str:
        """Return one line."""
        name, head, drop = self.ranked()[0]
        return f"HeadEffects({self.figure} {self.score:.4f} on {self.texts} texts; most by {name}, head {head}: {drop:+.4f})"


def read_effects(run: Path) -> HeadEffects | None:
    """Read the figures of a run; None if there are none, or if they are damaged."""
    try:
        return HeadEffects(**json.loads((run / FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def drops_without_each_head(
    inspector: Inspector,
    score: Callable[[Sequence[Change]], float],
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> tuple[float, dict[str, list[float]]]:
    """Return the score with all heads, and the drop of it without each head; `score` runs the model with changes."""
    whole, attentions = score([]), inspector.attentions()
    heads, drops = sum(one.heads for one in attentions), {one.name: [0.0] * one.heads for one in attentions}
    done = 0
    for one in attentions:
        for head in range(one.heads):
            drops[one.name][head] = whole - score([WithoutHead(one.name, head)])
            done += 1
            progress(done, heads)
    return whole, drops

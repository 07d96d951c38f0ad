"""What a finished run is for and how good it is, from what its folder records; no weights and no corpora are read."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qkv.base.errors import CheckpointError, QkvError
from qkv.folder.run import RESULT, is_exported, read_recipe
from qkv.text.translation_metrics import METRICS

EXAMPLES = 3  # recorded at the end of training
SHORT = range(12, 81)  # characters of an example that fits a line
SHOWN = {"perplexity": "perplexity", "masked_accuracy": "accuracy at [MASK]", "bits_per_byte": "bits per byte"}


@dataclass(frozen=True)
class RunSummary:
    """The facts of a run that people ask for first; None and empty where its folder does not record them."""

    architecture: str | None = None  # such as transformer
    task: str | None = None  # such as translation
    trained_on: str | None = None  # such as 29,000 pairs
    training_time: str | None = None
    steps: str | None = None
    scored_on: str | None = None
    scores: dict[str, float] = field(default_factory=dict)  # by the metric's name, as papers write it
    examples: list[Any] = field(default_factory=list)  # held-out texts, or lists of texts

    def sentence(self, name: str) -> str:
        """Return one or two sentences on a model of this name: what it is, what it was trained on, and how good it is."""
        sentence = name + (f" ({self.architecture}, {self.task})" if self.architecture else "")
        facts = [f"trained for {self.training_time}"] if self.training_time else []
        facts += [f"on {self.trained_on}"] if self.trained_on else []
        sentence += (", " + " ".join(facts) if facts else "") + "."
        if not self.scores:
            return sentence
        scores = ", ".join(f"{one} {value:.1f}" if value >= 10 else f"{one} {value:.3f}" for one, value in self.scores.items())
        return f"{sentence} {scores[0].upper()}{scores[1:]}" + (f" on {self.scored_on}." if self.scored_on else ".")


def summarise_run(folder: Path | None) -> RunSummary:
    """Return what a run's folder records; of an exported one, of one in training or an unreadable one less, or nothing."""
    if folder is None or is_exported(folder):
        return RunSummary()
    try:
        recipe: Any = read_recipe(folder)
        result = read_result(folder)
    except QkvError:
        return RunSummary()
    known = {name: result.get(name.replace("_", " ")) for name in ("trained_on", "training_time", "steps", "scored_on")}
    return RunSummary(
        recipe.model.kind,
        recipe.objective.kind,
        **known,
        scores=_scores(result.get("scores")),
        examples=result.get("examples", []),
    )


def read_result(run: Path) -> dict[str, Any]:
    """Return what a finished run records of itself, result.json; of any other run nothing."""
    path = run / RESULT
    try:
        result = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not readable ({error})") from None
    if not isinstance(result, dict):
        raise CheckpointError(f"{path}: expected keys and values, got {type(result).__name__}")
    return result


def _scores(recorded: Any) -> dict[str, float]:
    """Return scores of a translator, which are a list, or figures by name; losses are left out."""
    if isinstance(recorded, list):
        return {METRICS[one["name"]].label: one["value"] for one in recorded if one["name"] in METRICS}
    named = {name.removeprefix("dev_"): value for name, value in (recorded or {}).items()}
    return {SHOWN.get(name, name.replace("_", " ")): value for name, value in named.items() if not name.endswith("loss")}


def choose_examples(texts: Sequence[Any]) -> list[Any]:
    """Return the first short ones of texts, or of lists of texts, for a folder to record."""
    lengths = (sum(map(len, [text] if isinstance(text, str) else text)) for text in texts)
    return [text for text, length in zip(texts, lengths, strict=True) if length in SHORT][:EXAMPLES]

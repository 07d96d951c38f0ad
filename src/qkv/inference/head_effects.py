"""The effect of each head of a loaded run, measured on held-out texts and kept in the run's folder.

The score is the log-probability of a token for translators (given the reference before it), language models and encoders (given
all other tokens), and the first metric of a fine-tuned model.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from qkv.base.errors import ConfigError, DataError
from qkv.folder.run import is_exported
from qkv.inference.confidence import weights_digest
from qkv.lens.changes import Change, changing
from qkv.lens.head_effects import HeadEffects, drops_without_each_head, read_effects
from qkv.lens.inspectors import Inspector
from qkv.lens.view import look
from qkv.text.check import normalise

MAX_WORDS = 60  # of the text in which patterns are looked for
LOG_PROBABILITY = "log-probability of a token"


def head_effects(loaded: Any, texts: Sequence[Any], progress: Callable[[int, int], None] = lambda done, of: None) -> HeadEffects:
    """Measure the drop of a run's score without each head, or return the figures that its folder has for these texts.

    Texts are pairs for a translator, labelled examples (`read_examples`) for a fine-tuned model, else texts.

    >>> head_effects(qkv.load("runs/mine"), [("How are you?", "Wie geht es dir?")]).ranked()[0]
    ('decoder.1.cross', 2, 0.31)
    """
    if not texts:
        raise DataError("there are no texts to score; give a file with at least one")
    folder = loaded.folder if loaded.loads_as == "translator" else loaded.run.folder
    if folder is None or is_exported(folder):
        raise ConfigError("the effects of heads are kept in a run's folder; give a run, not an exported folder")
    data = hashlib.sha256(repr(list(texts)).encode()).hexdigest()[:16]
    weights = weights_digest(folder)
    known = read_effects(folder)
    if known is not None and (known.data, known.weights) == (data, weights):
        return known
    figure, inspector, score = _scoring(loaded, texts)
    with torch.no_grad():
        whole, drops = drops_without_each_head(inspector, score, progress)
    effects = HeadEffects(figure, whole, len(texts), data, weights, drops)
    effects.save(folder)
    return effects


def known_effects(folder: Path | None) -> HeadEffects | None:
    """Return the figures in a run's folder, if they are there and were measured with these weights."""
    if folder is None or is_exported(folder):
        return None
    found = read_effects(folder)
    return found if found is not None and found.weights == weights_digest(folder) else None


def effects_with_patterns(loaded: Any, texts: Sequence[Any], effects: HeadEffects) -> dict[str, Any]:
    """Return the values of a page: the effects, and the patterns that heads follow in the longest text that is short enough."""
    values = {**effects.json(), "kind": loaded.loads_as, "text": None, "patterns": []}
    pairs = [(text, None) if isinstance(text, str) else text for text in texts if isinstance(text, str | tuple)]
    short = [pair for pair in pairs if len(pair[0].split()) <= MAX_WORDS]
    if short:
        text, target = max(short, key=lambda pair: len(pair[0]))
        seen = look(loaded, text, target).json()
        values.update(text=text, model=seen["model"], patterns=seen["patterns"])
    return values


def _scoring(loaded: Any, texts: Sequence[Any]) -> tuple[str, Any, Callable[[Sequence[Change]], float]]:
    """Return the name of the score, an inspector of the model, and the function that scores the model with changes."""
    if loaded.loads_as == "translator":
        inspectors = [loaded.inspect(source, target) for source, target in texts]
        tokens = sum(len(one.texts["target"].ids) for one in inspectors)
        if inspectors[0].network.joins_source_and_target:  # where the source ends decides what a head attends to
            return LOG_PROBABILITY, inspectors[0], lambda changes: sum(_score(one, changes) for one in inspectors) / tokens
        return LOG_PROBABILITY, inspectors[0], _changed(inspectors[0], lambda: sum(loaded.score(texts)) / tokens)
    if loaded.loads_as == "encoder" and loaded.recipe.job == "finetuning":
        metric, inspector = loaded.finetuned().judged_by[0], loaded.inspect("a")
        return metric, inspector, _changed(inspector, lambda: loaded.evaluate(texts, [metric])[metric])
    if loaded.loads_as == "encoder" and loaded.fill_model is not loaded.model:
        raise ConfigError(
            "this run predicts words with another network than its encoder, an ELECTRA's generator; fine-tune it first"
        )
    inspector = loaded.inspect(texts[0], "" if loaded.loads_as == "generator" else None)
    tokens = sum(len(loaded.tokenizer.encode(normalise(text))) for text in texts)
    return LOG_PROBABILITY, inspector, _changed(inspector, lambda: sum(loaded.score(texts)) / max(1, tokens))


def _changed(inspector: Inspector, score: Callable[[], float]) -> Callable[[Sequence[Change]], float]:
    def scored(changes: Sequence[Change]) -> float:
        with changing(inspector, changes):
            return score()

    return scored


def _score(inspector: Any, changes: Sequence[Change]) -> float:
    """Return the log-probability of a target."""
    with changing(inspector, changes):
        logs = inspector.logits().log_softmax(-1)
    return sum(float(logs[row, token]) for row, token in inspector.scored())

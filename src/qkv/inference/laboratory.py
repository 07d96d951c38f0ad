"""Looking further into a run than its attention: patching, predictions of each layer, and the search while it writes."""

from pathlib import Path
from typing import Any

from qkv.base.errors import ConfigError
from qkv.inference.arguments import require_text
from qkv.inference.load import load
from qkv.inference.predictors import make_contrast, make_predictor
from qkv.inference.writing import trace_generation, trace_translation
from qkv.lens.layer_predictions import LayerPredictions, predict_by_layer
from qkv.lens.patching import PatchView, patch_contrast
from qkv.lens.steps import SearchView, view_search
from qkv.recipes.abilities import NAMES

MAX_TOP = 100  # most probable tokens that are shown


def patch(
    run: Any,
    text: str,
    other: str,
    answer: str | None = None,
    instead: str | None = None,
    target: str | None = None,
    position: int | None = None,
    device: str = "auto",
) -> PatchView:
    """Show which heads and states of a run, or of a loaded one, carry an answer that depends on a word (activation patching).

    The model reads `other`, which differs from `text` in a word and has as many tokens, and one activation of its pass over
    `text` is put in place. The answer is what a GPT predicts next, an encoder at [MASK], or a translator where its translations
    first differ: the logit of `answer` minus that of `instead`, words that the model itself gives unless you do. `target`
    replaces a translator's own translation. With a `position`, from 0, outputs of heads are put in place only there.

    >>> view = qkv.patch("runs/mine", "The cat slept because it was tired.", "The cat slept because it was dark.")
    >>> view.json()["heads"][0]["values"]
    """
    require_text(text, "patch")
    require_text(other, "patch", "second text")
    for name, value in (("word as answer", answer), ("word instead", instead), ("target", target)):
        if value is not None:
            require_text(value, "patch", name)
    loaded = _loaded(run, device, "patch", ("translator", "encoder", "generator"))
    return patch_contrast(make_contrast(loaded, text, other, answer, instead, target), position)


def layers(run: Any, text: str, target: str | None = None, top: int = 5, device: str = "auto") -> LayerPredictions:
    """Predict with each layer of a run, or of a loaded one, as if it were the last (logit lens).

    A GPT predicts the token after each token of the text, an encoder each [MASK], a translator each token of its translation, or
    of `target`. The `top` most probable tokens are returned, and the probability and rank of the final answer after each layer.

    >>> qkv.layers("runs/mine", "How are you?").json()["probability"]
    """
    require_text(text, "layers")
    if target is not None:
        require_text(target, "layers", "target")
    _check_top(top)
    loaded = _loaded(run, device, "layers", ("translator", "encoder", "generator"))
    return predict_by_layer(make_predictor(loaded, text, target), top)


def steps(run: Any, text: str, top: int = 5, device: str = "auto", **options: Any) -> SearchView:
    """Show how a run, or a loaded one, writes: the most probable tokens of each step, and the search as a tree.

    Options are the keys of `decoding` in a recipe, for a GPT also `max_new_tokens`.

    >>> qkv.steps("runs/mine", "How are you?", beam=4).json()["nodes"]
    >>> qkv.steps("runs/gpt-mini", "Once upon", sampling=True, temperature=0.8, top_k=20)
    """
    require_text(text, "steps")
    _check_top(top)
    loaded = _loaded(run, device, "steps", ("translator", "generator"))
    trace = trace_translation if loaded.loads_as == "translator" else trace_generation
    return view_search(trace(loaded, text, top, **options))


def _check_top(top: int) -> None:
    if not isinstance(top, int) or isinstance(top, bool) or not 1 <= top <= MAX_TOP:
        raise ConfigError(f"top takes a number of tokens from 1 to {MAX_TOP}, got {top!r}")


def _loaded(run: Any, device: str, verb: str, roles: tuple[str, ...]) -> Any:
    """Return a loaded run that a verb is for."""
    loaded: Any = load(run, device) if isinstance(run, str | Path) else run
    role = getattr(loaded, "loads_as", None)
    if role is None:
        raise ConfigError(f"{verb} takes the folder of a run or a loaded run, got {type(run).__name__}; give its path")
    if role not in roles:
        wanted = " or ".join(NAMES[each] for each in roles)
        raise ConfigError(f"{verb} is for {wanted}, and this run is {NAMES[role]}; use another run")
    return loaded

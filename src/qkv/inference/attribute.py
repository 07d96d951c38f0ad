"""What mattered for a run's output on a text."""

from pathlib import Path
from typing import Any

from qkv.base.errors import ConfigError
from qkv.base.stepwise import complete
from qkv.folder.run import read_recipe
from qkv.inference.arguments import require_text
from qkv.inference.load import load
from qkv.lens.attribution import METHODS
from qkv.lens.attribution_view import AttributionView, view_attribution
from qkv.recipes.abilities import require_verb


def attribute(
    run: Any,
    text: str,
    target: str | None = None,
    method: str = "gradient",
    word: int | None = None,
    instead: str | None = None,
    device: str = "auto",
) -> AttributionView:
    """Compute how much each token of a text contributed to the output of a run, or of a loaded one.

    `method` is gradient (gradient x input), integrated (integrated gradients, with a check of completeness) or occlusion (each
    word left out, or masked). `word` chooses a word of the translation, of a GPT's text, or a [MASK], from 0; by default the
    whole translation, the next token, the first [MASK], or a fine-tuned model's prediction is explained. `instead` asks why this
    word and not that one. `target` replaces the model's own translation or continuation; for an encoder it is the second text.

    >>> qkv.attribute("runs/mine", "A dog runs.", method="integrated", word=1, instead="Katze")
    """
    require_text(text, "attribute")
    for name, given in (("target", target), ("instead", instead)):
        if given is not None:
            require_text(given, "attribute", name)
    if method not in METHODS:
        raise ConfigError(f"no method {method!r} of attribution; choose {', '.join(METHODS)}")
    loaded: Any = load(run, device) if isinstance(run, str | Path) else run
    if getattr(loaded, "loads_as", None) is None:
        raise ConfigError(f"attribute takes the folder of a run or a loaded run, got {type(run).__name__}; give its path")
    if not hasattr(loaded, "inspect"):
        require_verb(read_recipe(loaded.folder), loaded.folder, "look", f"train a translator with start={loaded.folder}")
    return complete(view_attribution(loaded.inspect(text, target), method, word, instead))

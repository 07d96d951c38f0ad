"""Loading a run of any kind."""

from pathlib import Path
from typing import Any

from qkv.base.errors import ConfigError
from qkv.folder.run import is_exported, read_recipe
from qkv.inference.arguments import require_text
from qkv.inference.infiller import Infiller, load_infiller
from qkv.inference.text_encoder import TextEncoder, load_text_encoder
from qkv.inference.text_generator import TextGenerator, load_text_generator
from qkv.inference.translator import Translator, load_translator
from qkv.lens import view
from qkv.recipes.abilities import NAMES, loads_as, require_verb

LOADERS: dict[str, Any] = {"encoder": load_text_encoder, "generator": load_text_generator, "infiller": load_infiller}


def load(
    folder: str | Path,
    device: str = "auto",
    engine: str | None = None,
    precision: str | None = None,
    adapter: str | Path | None = None,
) -> Translator | TextEncoder | TextGenerator | Infiller:
    """Load a run or an exported folder, ready to use.

    A translator's run gives a `Translator`, an encoder's a `TextEncoder`, a GPT's a `TextGenerator`, a pretrained T5's an
    `Infiller`. `engine` (own, ctranslate2, onnx), `precision` and `adapter`, the run of an adapter, are for translators.

    >>> qkv.load("runs/mine").translate(["How are you?"])
    ['Wie geht es dir?']
    """
    if not isinstance(folder, str | Path):
        raise ConfigError(f"load takes the folder of a run, got {type(folder).__name__}; give its path")
    path = Path(folder)
    if adapter is not None:
        return load_translator(path, device, engine, precision, adapter)
    recipe: Any = None if is_exported(path) else read_recipe(path)
    role = "translator" if recipe is None else loads_as(recipe)
    if role == "translator":
        return load_translator(path, device, engine, precision)
    if engine is not None or precision is not None:
        raise ConfigError(f"{path} is {NAMES[role]}, and engine and precision are for translators; leave them out")
    return LOADERS[role](path, device)


def look(
    run: str | Path | Translator | TextEncoder | TextGenerator | Infiller,
    text: str,
    target: str | None = None,
    device: str = "auto",
) -> view.AttentionView:
    """Compute the attention of a run, or of a loaded one, over a text; a notebook shows the result as a page.

    `target` is the translation or continuation to look at instead of the model's own; for an encoder, the second text of a pair.
    Texts for a model that reads trees are `qkv.text.treebank.TextWithHeads`, or JSON such as
    {"text": "good dogs", "heads": [2, 0]}.

    >>> qkv.look("runs/mine", "How are you?").save("page.html")
    """
    require_text(text, "look")
    if target is not None:
        require_text(target, "look", "target")
    loaded: Any = load(run, device) if isinstance(run, str | Path) else run
    if getattr(loaded, "loads_as", None) is None:
        raise ConfigError(f"look takes the folder of a run or a loaded run, got {type(run).__name__}; give its path")
    if not hasattr(loaded, "inspect"):
        folder = loaded.folder
        require_verb(read_recipe(folder), folder, "look", f"train a translator with start={folder}")
    return view.look(loaded, text, target)

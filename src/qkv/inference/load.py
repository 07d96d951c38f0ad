"""Loading a run of any kind."""

from pathlib import Path
from typing import Any

from qkv.base.errors import ConfigError
from qkv.base.hardware import choose_device
from qkv.data.copies import local_folder
from qkv.folder.networks import read_adapter, read_translator_run
from qkv.folder.run import is_exported, read_recipe, read_source_statistics
from qkv.inference.arguments import require_text
from qkv.inference.engines import OwnEngine
from qkv.inference.exported import open_exported
from qkv.inference.infiller import Infiller, load_infiller
from qkv.inference.text_encoder import TextEncoder, load_text_encoder
from qkv.inference.text_generator import TextGenerator, load_text_generator
from qkv.inference.translator import Translator
from qkv.lens import view
from qkv.models.family import Role
from qkv.recipes.abilities import NAMES, loads_as, require, require_verb

ENGINES = ("own", "ctranslate2", "onnx")  # of translators
LOADERS: dict[str, Any] = {"encoder": load_text_encoder, "generator": load_text_generator, "infiller": load_infiller}


def load(
    folder: str | Path,
    device: str = "auto",
    engine: str | None = None,
    precision: str | None = None,
    adapter: str | Path | None = None,
) -> Translator | TextEncoder | TextGenerator | Infiller:
    """Load a run or an exported folder, ready to use; one at a URL is copied into the cache of this machine.

    A translator's run gives a `Translator`, an encoder's a `TextEncoder`, a GPT's a `TextGenerator`, a pretrained T5's an
    `Infiller`. `engine` (own, ctranslate2, onnx), `precision` and `adapter`, the run of an adapter, are for translators.

    >>> qkv.load("runs/mine").translate(["How are you?"])
    ['Wie geht es dir?']
    """
    if not isinstance(folder, str | Path):
        raise ConfigError(f"load takes the folder of a run, got {type(folder).__name__}; give its path")
    path = local_folder(folder)
    if adapter is not None:
        return load_translator(path, device, engine, precision, adapter)
    role = read_role(path)
    if role == "translator":
        return load_translator(path, device, engine, precision)
    if engine is not None or precision is not None:
        raise ConfigError(f"{path} is {NAMES[role]}, and engine and precision are for translators; leave them out")
    return LOADERS[role](path, device)


def read_role(folder: Path) -> Role:
    """Return what a run or an exported folder loads as, without loading its weights."""
    return "translator" if is_exported(folder) else loads_as(read_recipe(folder))


def read_languages(folder: Path) -> tuple[str, str] | None:
    """Return the languages of a translator's run or of its exported copy, without loading its weights."""
    if is_exported(folder):
        from qkv.interop.exported import read_exported

        return read_exported(folder)[0].recipe.data.languages
    recipe: Any = read_recipe(folder)
    require(recipe, folder, "translator")
    return recipe.data.languages


def load_translator(
    folder: str | Path,
    device: str = "auto",
    engine: str | None = None,
    precision: str | None = None,
    adapter: str | Path | None = None,
) -> Translator:
    """Load a translator's run or an exported folder; a run that is still in training with its newest checkpoint, and a warning.

    `engine` is own (the default of a run), ctranslate2 or onnx; an exported folder has its own. `precision` is that of a run's
    copy for ctranslate2: float32 (the default), int8 or bf16. `adapter` is the run of an adapter that was trained for this one;
    loaded by itself, an adapter takes the run that it started from.
    """
    path, chosen = Path(folder), choose_device(device)
    base = None
    if adapter is not None:
        if is_exported(path):
            raise ConfigError(f"{path} is an exported copy, which takes no adapter; give the run itself, or export the adapter")
        path, base = read_adapter(Path(adapter)).folder, path
    if engine not in (None, *ENGINES):
        raise ConfigError(f"no engine {engine!r}; known are {', '.join(ENGINES)}")
    if not is_exported(path) and engine in (None, "own"):
        if precision is not None:
            raise ConfigError(
                f"precision {precision} is for another engine's copy of a run; give the engine ctranslate2 too, "
                f"or set precision={precision} among the options of decoding (--set precision={precision}) for qkv's own engine"
            )
        require(read_recipe(path), path, "translator")
        run = read_translator_run(path, base)
        run.weights_file.warn_if_unfinished()
        own = OwnEngine(run.model().to(chosen), run.tokenizers.target)
        return Translator(own, run.tokenizers, run.recipe, path, read_source_statistics(path))
    exported = path
    if not is_exported(path):
        from qkv.interop.export import export_to_cache

        exported = export_to_cache(path, str(engine), precision or "float32", base)
    opened, tokenizers, recipe, sources = open_exported(exported, device, engine, precision)
    return Translator(opened, tokenizers, recipe, path, sources)


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

"""Loading a run of any kind."""

from collections.abc import Sequence
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
from qkv.lens import comparison, view
from qkv.lens.arithmetic import Arithmetic, HeadChoice
from qkv.lens.arithmetic import arithmetic as compute_arithmetic
from qkv.lens.changes import Change
from qkv.lens.word_edits import WordEdit
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
    step: int | None = None,
) -> Translator | TextEncoder | TextGenerator | Infiller:
    """Load a run or an exported folder, ready to use; one at a URL is copied into the cache of this machine.

    A translator's run gives a `Translator`, an encoder's a `TextEncoder`, a GPT's a `TextGenerator`, a pretrained T5's an
    `Infiller`. `engine` (own, ctranslate2, onnx), `precision` and `adapter`, the run of an adapter, are for translators.
    `step` loads the snapshot of a step instead of the last weights (`training.snapshots`).

    >>> qkv.load("runs/mine").translate(["How are you?"])
    ['Wie geht es dir?']
    """
    if not isinstance(folder, str | Path):
        raise ConfigError(f"load takes the folder of a run, got {type(folder).__name__}; give its path")
    path = local_folder(folder)
    if adapter is not None:
        return load_translator(path, device, engine, precision, adapter, step)
    role = read_role(path)
    if role == "translator":
        return load_translator(path, device, engine, precision, step=step)
    if engine is not None or precision is not None:
        raise ConfigError(f"{path} is {NAMES[role]}, and engine and precision are for translators; leave them out")
    return LOADERS[role](path, device, step)


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
    step: int | None = None,
) -> Translator:
    """Load a translator's run or an exported folder; a run that is still in training with its newest checkpoint, and a warning.

    `engine` is own (the default of a run), ctranslate2 or onnx; an exported folder has its own. `precision` is that of a run's
    copy for ctranslate2: float32 (the default), int8 or bf16. `adapter` is the run of an adapter that was trained for this one;
    loaded by itself, an adapter takes the run that it started from. `step` loads a snapshot of training, by qkv's own engine.
    """
    path, chosen = Path(folder), choose_device(device)
    base = None
    if adapter is not None:
        if is_exported(path):
            raise ConfigError(f"{path} is an exported copy, which takes no adapter; give the run itself, or export the adapter")
        path, base = read_adapter(Path(adapter)).folder, path
    if engine not in (None, *ENGINES):
        raise ConfigError(f"no engine {engine!r}; known are {', '.join(ENGINES)}")
    if step is not None and (is_exported(path) or engine not in (None, "own")):
        raise ConfigError("snapshots of training are for qkv's own engine; give the run itself, without another engine")
    if not is_exported(path) and engine in (None, "own"):
        if precision is not None:
            raise ConfigError(
                f"precision {precision} is for another engine's copy of a run; give the engine ctranslate2 too, "
                f"or set precision={precision} among the options of decoding (--set precision={precision}) for qkv's own engine"
            )
        require(read_recipe(path), path, "translator")
        run = read_translator_run(path, base, step)
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
    return view.look(inspectable(run, device, "look"), text, target)


def arithmetic(
    run: str | Path | Translator | TextEncoder | TextGenerator | Infiller,
    text: str,
    target: str | None = None,
    part: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    position: int | None = None,
) -> Arithmetic:
    """Compute the numbers of one attention head of a run, or of a loaded one, at one position, step by step.

    `part` is encoder, decoder or cross; layers, heads and positions, those of the text that attends, count from 0. By default:
    cross-attention if there is any, the last layer, the first word of some length (of a GPT the prompt's last token, of an
    encoder a [MASK]), and the head that attends most to one word. `target` is as for `look`.

    >>> found = qkv.arithmetic("runs/mine", "How are you?", part="cross", layer=1, head=2, position=3)
    >>> found["softmax"]["weights"]
    """
    require_text(text, "arithmetic")
    if target is not None:
        require_text(target, "arithmetic", "target")
    return compute_arithmetic(inspectable(run, "auto", "arithmetic"), text, target, HeadChoice(part, layer, head, position))


def change(
    run: str | Path | Translator | TextEncoder | TextGenerator | Infiller,
    text: str,
    changes: Sequence[Change | WordEdit],
    target: str | None = None,
    maps: Sequence[str] | None = None,
    device: str = "auto",
) -> comparison.ModelComparison:
    """Run a model on a text before and after changes, of the model (`qkv.lens.changes`) or of words (`qkv.lens.word_edits`).

    `target` is as for `look`: with one, nothing is decoded. `maps` names the attentions whose weights are wanted, by default all
    that the changes move.

    >>> qkv.change("runs/mine", "How are you?", [WithoutHead("decoder.1.cross", 2), DeleteWord(0)]).after.output
    'Wie bist du?'
    """
    require_text(text, "change")
    if target is not None:
        require_text(target, "change", "target")
    return comparison.changed(inspectable(run, device, "change"), text, changes, target, maps)


def inspectable(run: Any, device: str, verb: str) -> Any:
    """Return a loaded run whose attention can be seen; load it if it is a folder."""
    loaded: Any = load(run, device) if isinstance(run, str | Path) else run
    if getattr(loaded, "loads_as", None) is None:
        raise ConfigError(f"{verb} takes the folder of a run or a loaded run, got {type(run).__name__}; give its path")
    if not hasattr(loaded, "inspect"):
        folder = loaded.folder
        require_verb(read_recipe(folder), folder, "look", f"train a translator with start={folder}")
    return loaded

"""A run, ready to be used, whatever it was trained for."""

from pathlib import Path

from qkv.base.errors import ConfigError
from qkv.folder.run import read_recipe
from qkv.inference.infiller import Infiller, load_infiller
from qkv.inference.text_encoder import TextEncoder, load_text_encoder
from qkv.inference.text_generator import TextGenerator, load_text_generator
from qkv.inference.translator import Translator
from qkv.inference.translator import load as load_translator
from qkv.interop.export import is_exported
from qkv.lens import looking
from qkv.recipes import PretrainingRecipe, TranslationRecipe


def load(
    folder: str | Path, device: str = "auto", engine: str | None = None, precision: str | None = None
) -> Translator | TextEncoder | TextGenerator | Infiller:
    """A Translator of a translator's run or exported folder, a Reader of an encoder's run, a Generator of a GPT's.

    A Restorer of a T5's that was pretrained. The last two options are for translators.
    """
    path = Path(folder)
    recipe = None if is_exported(path) else read_recipe(path)
    objective = recipe.objective.kind if isinstance(recipe, PretrainingRecipe) else None
    if recipe is None or isinstance(recipe, TranslationRecipe) or (recipe.model.kind == "t5" and objective is None):
        return load_translator(path, device, engine, precision)
    if engine is not None or precision is not None:
        kind = {"causal": "a GPT", "spans": "a T5 that restores text"}.get(objective or "", "an encoder")
        raise ConfigError(f"{path} is {kind}, and engine and precision are for translators; leave them out")
    if objective == "spans":
        return load_infiller(path, device)
    return load_text_generator(path, device) if objective == "causal" else load_text_encoder(path, device)


def look(
    run: str | Path | Translator | TextEncoder | TextGenerator, text: str, target: str | None = None, device: str = "auto"
) -> looking.Looked:  # fmt: skip
    """What the attention of a run, or of what was loaded, does with a text; a notebook shows the result as a page.

    `target` is what a translator writes or a GPT goes on with, instead of its own; of an encoder the second text of a pair.
    Texts for a model that reads trees are `qkv.text.treebank.TextWithHeads`, or JSON such as {"text": "good dogs", "heads": [2, 0]}.
    """
    loaded = load(run, device) if isinstance(run, str | Path) else run
    if isinstance(loaded, Infiller):
        raise ConfigError(f"{run} is a T5 that restores text, which is not looked into; train it on pairs with start={run}")
    return looking.look(loaded, text, target)

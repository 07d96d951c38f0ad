"""A run, ready to be used, whatever it was trained for."""

from pathlib import Path

from qkv.base.errors import ConfigError
from qkv.recipe import TranslationRecipe
from qkv.runs.export import is_exported
from qkv.runs.folder import read_recipe
from qkv.runs.reader import Reader, load_reader
from qkv.runs.translator import Translator
from qkv.runs.translator import load as load_translator


def load(
    folder: str | Path, device: str = "auto", engine: str | None = None, precision: str | None = None
) -> Translator | Reader:
    """A Translator of a translator's run or exported folder, a Reader of an encoder's run; the last two are for translators."""
    path = Path(folder)
    if is_exported(path) or isinstance(read_recipe(path), TranslationRecipe):
        return load_translator(path, device, engine, precision)
    if engine is not None or precision is not None:
        raise ConfigError(f"{path} is an encoder, and engine and precision are for translators; leave them out")
    return load_reader(path, device)

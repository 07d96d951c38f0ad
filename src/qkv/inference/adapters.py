"""Several adapters over one base, whose weights are in memory once."""

from collections.abc import Sequence
from pathlib import Path

from qkv.base.errors import ConfigError
from qkv.base.hardware import choose_device
from qkv.folder.adapters import BASE, check_base, weights_digest
from qkv.folder.networks import read_adapter, read_translator_run
from qkv.folder.run import config_value, is_run, read_recipe, read_source_statistics
from qkv.inference.engines import OwnEngine
from qkv.inference.translator import Translator
from qkv.recipes.abilities import require


def load_adapters(base: str | Path, adapters: Sequence[str | Path], device: str = "auto") -> tuple[Translator, list[Translator]]:
    """Load a translator's run and adapters that were trained for it; all share its weights.

    >>> general, (legal, medical) = load_adapters("runs/general", ["runs/legal", "runs/medical"])
    >>> legal.translate(["The party of the first part."])
    """
    run = Path(base)
    require(read_recipe(run), run, "translator")
    found = read_translator_run(run)
    found.weights_file.warn_if_unfinished()
    engine = OwnEngine(found.model().to(choose_device(device)), found.tokenizers.target)
    translators = []
    for folder in map(Path, adapters):
        adapter = read_adapter(folder)
        check_base(folder, adapter.recipe, run)
        adapter.weights_file.warn_if_unfinished()
        own = engine.with_adapter(adapter.config.adapter, adapter.weights, str(adapter.weights_file.path))
        sources = read_source_statistics(folder)
        translators.append(Translator(own, found.tokenizers, adapter.recipe, folder, sources))
    return Translator(engine, found.tokenizers, found.recipe, run, read_source_statistics(run)), translators


def find_bases(adapters: Sequence[Path], runs: Sequence[Path]) -> list[Path]:
    """Return for each adapter the run among several that it was trained for."""
    digests = {weights_digest(run): run for run in runs if is_run(run)} if adapters else {}
    bases = []
    for adapter in adapters:
        start, wanted = read_adapter(adapter).recipe.start, config_value(adapter, BASE)
        if wanted not in digests:
            raise ConfigError(
                f"{adapter} is an adapter of {start}, whose weights none of {', '.join(map(str, runs))} has; give {start} too"
            )
        bases.append(digests[wanted])
    return bases

"""Export a run for other programs: a folder with the model in their format, and all that is needed to use it."""

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from qkv.base.errors import ConfigError, QkvError
from qkv.base.files import atomic_folder, digest
from qkv.data.cache import cache_folder, cache_key, lock_folder
from qkv.data.corpora import Tokenizers
from qkv.folder.language_profiles import copy_language_profiles
from qkv.folder.model_card import CARD, CardOptions, model_card
from qkv.folder.networks import TranslatorRun, read_translator_run
from qkv.folder.run import MANIFEST, read_recipe, read_source_statistics, save_tokenizers
from qkv.interop.ctranslate2 import writer as ctranslate2_writer
from qkv.interop.exported import LAYOUT, ExportManifest, check_precision, read_exported
from qkv.interop.huggingface import runs as huggingface
from qkv.interop.onnx import writer as onnx_writer
from qkv.interop.packages import import_optional
from qkv.text.cleaning import with_cleaning
from qkv.text.tokenizer import SPECIAL_TOKENS


class Format(NamedTuple):
    """A format of another program that translators are written in."""

    packages: tuple[str, ...]  # that writing needs
    write: Callable[[Any, Path, int, str], tuple[int | None, dict[str, Any]]]  # -> max_positions and graphs of the manifest


FORMATS = {
    "ctranslate2": Format(("ctranslate2",), ctranslate2_writer.export_ctranslate2),
    "onnx": Format(("onnx", "onnxscript"), onnx_writer.export_onnx),
}
# By format, a function from a model's config to the reason why it cannot be exported, or None.
PROBLEMS: dict[str, Callable[[Any], str | None]] = {
    "ctranslate2": ctranslate2_writer.problem,
    "onnx": onnx_writer.problem,
    "hf": huggingface.problem,
}


def export(
    run: str | Path, to: str, out: str | Path, precision: str = "float32", part: str | None = None,
    license_name: str | None = None,
) -> Path:  # fmt: skip
    """Write a run into the new folder `out`, in the format `to`: ctranslate2, onnx, or hf for transformers.

    A run that is still in training is written with its newest checkpoint; a warning and the folder's README say so. `part` is
    generator or discriminator, the two networks of an ELECTRA. The README is a model card; it names a license if one is given.
    """
    source, folder = Path(run), Path(out)
    check_precision(to, precision)
    check_exportable(source, read_recipe(source).model, to)
    if part is not None and to in FORMATS:
        raise ConfigError(f"{source} is a translator and has no {part}; leave --part out")
    if folder.exists():
        raise ConfigError(f"{folder} exists already; choose another --out")
    if to in FORMATS:
        found = read_translator_run(source)
        found.weights_file.warn_if_unfinished()
        _write(folder, to, precision, found, license_name)
    else:
        huggingface.export_huggingface(source, folder, part, license_name)
    return folder


def check_exportable(run: Path, config: Any, to: str) -> None:
    """Refuse a model that the format cannot hold, and name the formats that can."""
    if problem := PROBLEMS[to](config):
        others = [other for other, why_not in PROBLEMS.items() if why_not(config) is None]
        raise ConfigError(f"{run}: {problem}; use {' or '.join([*others, 'qkv itself'])}")


def _write(folder: Path, to: str, precision: str, run: TranslatorRun, license_name: str | None = None) -> None:
    """Write a translator with its tokenizers and the manifest."""
    (packages, write), recipe, tokenizers = FORMATS[to], run.recipe, run.tokenizers
    for package in packages:
        import_optional(package)  # before any work is done
    if not all(tokenizer.made_by_qkv for tokenizer in tokenizers):
        raise ConfigError(f"{to} cannot use the tokenizer of an imported translator; use hf")
    weights = run.digest  # at once: a run in training deletes its older checkpoints
    source = with_cleaning(tokenizers.source)
    written = Tokenizers(source, source if tokenizers.shared else with_cleaning(tokenizers.target))
    with atomic_folder(folder) as aside:
        save_tokenizers(aside, written)
        copy_language_profiles(run.folder, aside)
        max_positions, graphs = write(run.model(), aside, recipe.data.max_tokens, precision)
        manifest: dict[str, Any] = {
            "format": to,
            "precision": precision,
            "max_positions": max_positions,
            "special_tokens": {name: number for number, name in enumerate(SPECIAL_TOKENS)},
            "graphs": graphs,
            "weights": weights,
            "unfinished": run.weights_file.step or None,
            "tokenizers": [t.fingerprint() for t in written],
            "recipe": recipe.model_dump(),
            **read_source_statistics(run.folder)._asdict(),
            "files": {file.name: digest(file) for file in sorted(aside.iterdir())},
            "layout": LAYOUT,
            "made_with": {name: version(name) for name in ("torch", *packages)},
        }
        (aside / MANIFEST).write_text(ExportManifest(**manifest).model_dump_json(indent=1), encoding="utf-8")
        readme = Path(__file__).parent / to / "exported.md"
        options = CardOptions(license_name, to, readme.read_text(encoding="utf-8"))
        (aside / CARD).write_text(model_card(run.folder, options), encoding="utf-8")


def export_to_cache(run: Path, to: str, precision: str, base: Path | None = None) -> Path:
    """Return a run in another format, written once for its newest weights and kept in the cache; `base` is an adapter's."""
    check_precision(to, precision)
    read = read_translator_run(run, base)
    check_exportable(run, read.config, to)
    read.weights_file.warn_if_unfinished()
    fingerprints = [t.fingerprint() for t in read.tokenizers]
    key = cache_key([read.digest, *fingerprints, read.recipe.model_dump_json(), LAYOUT])
    folder = cache_folder() / to / f"{key}-{precision}"
    if not _is_sound(folder, to, precision):
        with lock_folder(folder):
            if not _is_sound(folder, to, precision):  # another process may have written it meanwhile
                _write(folder, to, precision, read)
    return folder


def _is_sound(folder: Path, to: str, precision: str) -> bool:
    """Return whether a copy in the cache is there and undamaged."""
    try:
        manifest, _ = read_exported(folder)
    except QkvError:
        return False
    return (manifest.format, manifest.precision) == (to, precision)

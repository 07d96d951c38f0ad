"""A run for other programs: a folder with the model in their format, and all that is needed to use it."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator
from tokenizers import Tokenizer as Library

import qkv.interop
from qkv.base.config import Config
from qkv.base.errors import CheckpointError, ConfigError, QkvError
from qkv.base.files import atomic_folder, digest
from qkv.data.cache import cache_folder, key_of, lock_folder
from qkv.data.corpora import Tokenizers
from qkv.folder.networks import TranslatorRun, read_translator
from qkv.folder.run import WEIGHTS, load_tokenizers, newest_weights, read_recipe, save_tokenizers
from qkv.inference.engines import Engine, OnnxEngine
from qkv.interop.ctranslate2 import PRECISIONS, write_ctranslate2
from qkv.interop.ctranslate2_engine import CTranslate2Engine
from qkv.interop.huggingface_runs import export_huggingface
from qkv.interop.marian_runs import export_marian
from qkv.interop.onnx import graphs_of, write_onnx
from qkv.interop.onnx_model import OnnxModel
from qkv.interop.packages import needed
from qkv.interop.t5_runs import export_t5
from qkv.models.convolution import ConvolutionConfig
from qkv.models.rnn import RnnConfig
from qkv.models.transformer import TransformerConfig
from qkv.objectives.translation import TranslationConfig
from qkv.parts.attention_kinds import AttentiveConfig
from qkv.recipes import Recipe, TranslationRecipe
from qkv.text.tokenizer import SPECIAL_TOKENS

ABOUT = "export.json"
FORMATS = {"ctranslate2": tuple(PRECISIONS), "onnx": ("float32",)}  # and the precisions each has
ONNX_ALONE = ("rnn", "convolution")  # kinds of translators that go nowhere else
HF = "hf"  # Hugging Face transformers
PACKAGES = {"ctranslate2": ("ctranslate2",), "onnx": ("onnx", "onnxscript")}  # that writing needs
TEXTS = Path(qkv.interop.__file__).parent  # what a folder says to people who find it
LAYOUT = 3  # to be raised when what is written changes, so that no older copy in a cache is used
FEWEST_PLACES = 1024  # of a table of sinusoids: beyond any sentence
Shape = Annotated[TransformerConfig | RnnConfig | ConvolutionConfig, Field(discriminator="kind")]  # of a model that has a format


class About(Config):
    """What an exported folder says of itself, in export.json."""

    format: Literal["ctranslate2", "onnx"]
    precision: str
    max_positions: int | None = Field(ge=1)  # tokens a text may have on each side; null is no limit
    controls: dict[str, int]  # the control tokens and their ids
    graphs: dict[str, Any]  # inputs and outputs of each ONNX graph
    weights: str  # digest of the run's weights it was made from
    tokenizers: list[str]  # fingerprints
    recipe: TranslationRecipe[Shape, TranslationConfig]
    files: dict[str, str]  # digests of the files beside this one, but for the README, to which people may add
    layout: int
    made_with: dict[str, str]  # versions of packages

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        _check(self.format, self.precision)
        if self.format == "ctranslate2" and self.max_positions is None:
            raise ValueError("no number of places")
        return self


def export(run: str | Path, to: str, out: str | Path, precision: str = "float32", part: str | None = None) -> Path:
    """Write a finished run into the new folder `out`, in the format `to`: ctranslate2, onnx, or hf for transformers.

    `part` is generator or discriminator, of an ELECTRA.
    """
    source, folder = Path(run), Path(out)
    _check(to, precision)
    recipe = read_recipe(source)
    _check_kind(source, recipe, to, part)
    if folder.exists():
        raise ConfigError(f"{folder} exists already; choose another --out")
    if not (source / WEIGHTS).exists():
        raise CheckpointError(f"{source}: its training is not finished, there is no {WEIGHTS} yet; go on with qkv train")
    if to == HF:
        return _write_huggingface(source, folder, recipe.model.kind, part)
    _write(folder, to, precision, read_translator(source), source / WEIGHTS)
    return folder


def _write_huggingface(run: Path, folder: Path, kind: str, part: str | None) -> Path:
    if kind == "t5":
        return export_t5(run, folder)
    return export_marian(run, folder) if kind == "transformer" else export_huggingface(run, folder, part)


def _check_kind(run: Path, recipe: Recipe, to: str, part: str | None) -> None:
    """Translators go one way, encoders and T5s another."""
    if recipe.model.kind == "t5":
        if to != HF or part is not None:
            raise ConfigError(f"{run} is a t5, which is written as a whole, and for transformers alone; say --to {HF}, no --part")
        return
    translator = isinstance(recipe, TranslationRecipe)
    if translator:
        _check_model(run, recipe, to)
    elif to != HF:
        kind = recipe.model.attention.kind if isinstance(recipe.model, AttentiveConfig) else "full"
        instead = (
            f"say --to {HF}, or use it with qkv" if kind == "full" else f"transformers has none with {kind}; use it with qkv"
        )
        raise ConfigError(f"{run} is an encoder, which cannot be written as {to}; {instead}")
    if translator and part is not None:
        raise ConfigError(f"{run} is a translator and has no {part}; leave --part out")


def _check_model(run: Path, recipe: Recipe, to: str) -> None:
    """Refuse a translator that the format has no words for."""
    kind = recipe.model.kind
    if kind not in ("transformer", *ONNX_ALONE):
        raise ConfigError(f"{run}: a translator of kind {kind} has no other format; use qkv's own engine")
    if kind in ONNX_ALONE:
        if to != "onnx":
            raise ConfigError(f"{run}: {to} has no translators of kind {kind}, only onnx has; use that, or qkv's own engine")
        return
    attention, positions = recipe.model.attention.kind, recipe.model.positions
    alone = [f"model.attention={attention}"] if attention != "full" else []
    alone += [f"model.positions={positions}, which reads trees"] if recipe.model.reads_trees else []
    if alone and to != "onnx":
        raise ConfigError(f"{run}: {to} has no {alone[0]}, only onnx has; use that, or qkv's own engine")


def _check(to: str, precision: str) -> None:
    """Refuse what cannot be written before anything is read."""
    if to not in (*FORMATS, HF):
        raise ConfigError(f"no format {to!r} to export to; known are {', '.join([*FORMATS, HF])}")
    known = FORMATS.get(to, ("float32",))
    if precision not in known:
        raise ConfigError(f"{to} has no precision {precision!r}; it has {', '.join(known)}")


def _write(folder: Path, to: str, precision: str, run: TranslatorRun, weights: Path) -> None:
    recipe, tokenizers = run.recipe, run.tokenizers
    for package in PACKAGES[to]:
        needed(package)  # known before any work is done
    if not all(tokenizer.made_by_qkv for tokenizer in tokenizers):
        raise ConfigError(f"{to} has no words for another maker's tokenizer, as an imported translator has; say --to {HF}")
    model: Any = run.model()
    graphs = graphs_of(model) if to == "onnx" else None
    # The graphs of ONNX compute sinusoids as we do; CTranslate2 reads them from a table, which has an end.
    table = max(FEWEST_PLACES, 2 * recipe.data.max_tokens)
    max_positions: Any = model.longest or table if graphs is None else graphs.longest
    about: dict[str, Any] = {
        "format": to,
        "precision": precision,
        "max_positions": max_positions,
        "controls": {name: number for number, name in enumerate(SPECIAL_TOKENS)},
        "graphs": {} if graphs is None else graphs.told(),
        "weights": digest(weights),
        "tokenizers": [t.fingerprint() for t in tokenizers],
        "recipe": recipe.model_dump(),
        "layout": LAYOUT,
        "made_with": {name: version(name) for name in ("torch", *PACKAGES[to])},
    }
    with atomic_folder(folder) as aside:
        save_tokenizers(aside, tokenizers)
        if graphs is not None:
            write_onnx(graphs, aside)
        else:
            write_ctranslate2(model, _pieces(aside), max_positions, precision, aside)
        files = {file.name: digest(file) for file in sorted(aside.iterdir())}
        (aside / ABOUT).write_text(About(**about, files=files).model_dump_json(indent=1), encoding="utf-8")
        (aside / "README.md").write_text((TEXTS / f"{to}.md").read_text(encoding="utf-8"), encoding="utf-8")


def converted(run: Path, to: str, precision: str) -> Path:
    """A run in another format, made once for its present weights and kept in the cache."""
    _check(to, precision)
    read = read_translator(run)
    recipe, tokenizers = read.recipe, read.tokenizers
    _check_model(run, recipe, to)
    weights = newest_weights(run)
    if not weights.exists():
        raise CheckpointError(f"{weights}: no such file; is this a run folder whose training has saved something?")
    key = key_of([digest(weights), *(t.fingerprint() for t in tokenizers), recipe.model_dump_json(), LAYOUT])
    folder = cache_folder() / to / f"{key}-{precision}"
    if not _is_sound(folder, to, precision):
        with lock_folder(folder):
            if not _is_sound(folder, to, precision):  # another process may have made it meanwhile
                _write(folder, to, precision, read, weights)
    return folder


def _is_sound(folder: Path, to: str, precision: str) -> bool:
    """Whether a copy in the cache is there and undamaged."""
    try:
        about, _ = _read(folder)
    except QkvError:
        return False
    return (about.format, about.precision) == (to, precision)


def is_exported(folder: Path) -> bool:
    """Whether a folder is one that `export` wrote."""
    return (folder / ABOUT).exists()


def open_exported(
    folder: Path, device: str, engine: str | None, precision: str | None
) -> tuple[Engine, Tokenizers, TranslationRecipe[Any, Any]]:
    """The engine, the tokenizers and the recipe in an exported folder; other wishes than it was made for are refused."""
    about, tokenizers = _read(folder)
    for wish, has in ((engine, about.format), (precision, about.precision)):
        if wish not in (None, has):
            raise ConfigError(f"{folder} was exported as {has}, not {wish}; export the run again, or leave {wish} out")
    if about.format == "ctranslate2":
        opened = CTranslate2Engine(folder, about.max_positions, about.precision, device)
        if [len(opened.source), len(opened.target)] != [len(t) for t in tokenizers]:
            raise CheckpointError(f"{folder}: its vocabulary is not the tokenizer's; export the run again")
        return opened, tokenizers, about.recipe
    if device not in ("auto", "cpu"):
        raise ConfigError(f"the engine onnx runs on the CPU, not on {device}; leave --device out, or use another engine")
    return OnnxEngine(OnnxModel(folder, about.max_positions)), tokenizers, about.recipe


def _read(folder: Path) -> tuple[About, Tokenizers]:
    """What an exported folder says of itself, and its tokenizers, after a look whether all is as it was written."""
    about = _about(folder / ABOUT)
    for name, known in about.files.items():
        if _digest(folder / name) != known:
            raise CheckpointError(f"{folder / name}: damaged or missing, not what was exported; export the run again")
    tokenizers = load_tokenizers(folder)
    if tokenizers is None or [t.fingerprint() for t in tokenizers] != about.tokenizers:
        raise CheckpointError(f"{folder}: the tokenizer is not the one it was exported with; put the right one back")
    return about, tokenizers


def _about(path: Path) -> About:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not readable ({error}); export the run again") from None
    layout = values.get("layout") if isinstance(values, dict) else None
    if isinstance(layout, int) and layout != LAYOUT:
        raise CheckpointError(f"{path}: written by another version of qkv (layout {layout}, not {LAYOUT}); export the run again")
    try:
        return About.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        why = " ".join([*map(str, first["loc"]), first["msg"]])
    except ConfigError as error:
        why = str(error)
    raise CheckpointError(f"{path}: not what qkv export writes ({why}); export the run again")


def _digest(path: Path) -> str | None:
    """The digest of a file; None where it cannot be read."""
    try:
        return digest(path)
    except OSError:
        return None


def _pieces(folder: Path) -> tuple[list[str], list[str]]:
    """The tokens of each side in order of their ids, as tokenizer.json names them, so that others can use them too."""
    shared, source, target = (folder / f"tokenizer{side}.json" for side in ("", "-source", "-target"))
    paths = (shared, shared) if shared.exists() else (source, target)
    libraries = [Library.from_file(str(path)) for path in paths]
    first, second = ([str(library.id_to_token(i)) for i in range(library.get_vocab_size())] for library in libraries)
    return first, second

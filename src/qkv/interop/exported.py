"""An exported folder: a translator in another program's format, with its tokenizers and a manifest, export.json."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from qkv.base.config import Config
from qkv.base.errors import CheckpointError, ConfigError
from qkv.base.files import digest
from qkv.data.corpora import Tokenizers
from qkv.folder.run import MANIFEST, load_tokenizers
from qkv.interop.ctranslate2.writer import PRECISIONS
from qkv.models.convolution import ConvolutionConfig
from qkv.models.rnn import RnnConfig
from qkv.models.transformer import TransformerConfig
from qkv.objectives.translation import TranslationConfig
from qkv.recipes import TranslationRecipe

LAYOUT = 4  # raise it when the contents of a folder change, so that no older copy in a cache is used
FORMAT_PRECISIONS = {"ctranslate2": tuple(PRECISIONS), "onnx": ("float32",), "hf": ("float32",)}
ExportedConfig = Annotated[TransformerConfig | RnnConfig | ConvolutionConfig, Field(discriminator="kind")]


class ExportManifest(Config):
    """The contents of export.json."""

    format: Literal["ctranslate2", "onnx"]
    precision: str
    max_positions: int | None = Field(ge=1)  # tokens that a text may have on each side; null is no limit
    special_tokens: dict[str, int]  # with their ids
    graphs: dict[str, Any]  # inputs and outputs of each ONNX graph
    weights: str  # digest of the run's weights
    unfinished: str | None = None  # the step of these weights, if the run was still in training
    tokenizers: list[str]  # fingerprints
    recipe: TranslationRecipe[ExportedConfig, TranslationConfig]
    several_sentences: float | None = None  # of SourceStatistics, as is the next one
    without_letters: float | None = None
    files: dict[str, str]  # digests of the files beside this one, but for the README, to which people may add
    layout: int
    made_with: dict[str, str]  # versions of packages

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        check_precision(self.format, self.precision)
        if self.format == "ctranslate2" and self.max_positions is None:
            raise ValueError("max_positions is null")
        return self


def check_precision(to: str, precision: str) -> None:
    """Refuse a format or a precision that does not exist."""
    if to not in FORMAT_PRECISIONS:
        raise ConfigError(f"no format {to!r} to export to; known are {', '.join(FORMAT_PRECISIONS)}")
    if precision not in FORMAT_PRECISIONS[to]:
        raise ConfigError(f"{to} has no precision {precision!r}; it has {', '.join(FORMAT_PRECISIONS[to])}")


def read_exported(folder: Path) -> tuple[ExportManifest, Tokenizers]:
    """Read the manifest and the tokenizers of an exported folder after a check that all files are as they were written."""
    manifest = _read_manifest(folder / MANIFEST)
    for name, written in manifest.files.items():
        try:
            found = digest(folder / name)
        except OSError:
            found = None
        if found != written:
            raise CheckpointError(f"{folder / name}: damaged or missing, not what was exported; export the run again")
    tokenizers = load_tokenizers(folder)
    if tokenizers is None or [t.fingerprint() for t in tokenizers] != manifest.tokenizers:
        raise CheckpointError(f"{folder}: the tokenizer is not the one it was exported with; put the right one back")
    return manifest, tokenizers


def _read_manifest(path: Path) -> ExportManifest:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not readable ({error}); export the run again") from None
    layout = values.get("layout") if isinstance(values, dict) else None
    if isinstance(layout, int) and layout != LAYOUT:
        raise CheckpointError(f"{path}: written by another version of qkv (layout {layout}, not {LAYOUT}); export the run again")
    try:
        return ExportManifest.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        why = " ".join([*map(str, first["loc"]), first["msg"]])
    except ConfigError as error:
        why = str(error)
    raise CheckpointError(f"{path}: not what qkv export writes ({why}); export the run again")

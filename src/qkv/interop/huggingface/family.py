"""The mapping of a family to transformers: how its checkpoints are read and written."""

from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from torch import Tensor

from qkv.base.config import Config
from qkv.base.errors import CheckpointError
from qkv.data.corpora import Tokenizers
from qkv.folder.model_card import CARD
from qkv.folder.run import WeightsFile
from qkv.recipes import Recipe, parse_recipe
from qkv.text.tokenizer import Tokenizer

READMES = Path(__file__).parent  # where the READMEs of the families are


class ImportedRun(NamedTuple):
    """A checkpoint of transformers as the parts of a run's folder."""

    recipe: Recipe
    tokenizers: Tokenizers
    weights: dict[str, Tensor]  # named as in the run's model
    heads: tuple[str, ...] | None = None  # of an encoder; None where a model has no heads
    about: dict[str, Any] = {}  # noqa: RUF012  # further entries of the run's config.json


class HuggingFaceCheckpoint(NamedTuple):
    """A run as the parts of a folder that `from_pretrained` loads."""

    config: dict[str, Any]  # config.json
    weights: dict[str, Tensor]
    files: dict[str, str]  # text files by name, such as those of the tokenizer
    weights_file: WeightsFile  # that the weights were read from
    left_out: tuple[str, ...] = ()  # parts of the run that transformers has no place for


class HuggingFaceFamily(Protocol):
    """One family of models: its names and options in transformers, and how runs and checkpoints become one another."""

    kind: ClassVar[str]  # of our config
    model_types: ClassVar[tuple[str, ...]]  # in a config.json

    def problem(self, c: Any) -> str | None:
        """Return why a model with this config cannot be written for transformers; None where it can."""
        ...

    def import_run(self, folder: Path, config: dict[str, Any], weights: dict[str, Tensor]) -> ImportedRun:
        """Convert a checkpoint; the folder holds its tokenizer."""
        ...

    def export_run(self, run: Path, part: str | None) -> HuggingFaceCheckpoint:
        """Convert a run, or one network of it."""
        ...


def imported_recipe(folder: Path, c: Config, data: dict[str, Any], **more: Any) -> Recipe:
    """Return a recipe that could have made an imported model: its shape is known, its text and its training are not."""
    values = {"data": data, "model": c.model_dump(mode="json"), "training": {"steps": 1}, **more}
    return parse_recipe(values, str(folder))


def check_vocabulary(folder: Path, tokenizer: Tokenizer, vocab_size: int) -> None:
    """Refuse a tokenizer with more pieces than the model; fewer are common, as tables are rounded up."""
    if len(tokenizer) > vocab_size:
        raise CheckpointError(
            f"{folder}: the tokenizer has {len(tokenizer):,} pieces, the model knows {vocab_size:,}; they do not belong together"
        )


def readme(name: str) -> dict[str, str]:
    """Return how to use an exported folder, for its model card."""
    return {CARD: (READMES / f"exported_{name}.md").read_text(encoding="utf-8")}

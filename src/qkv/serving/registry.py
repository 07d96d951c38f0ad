"""The models of a service, loaded from folders; requests know only their names."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast

from qkv.base.errors import CheckpointError, ConfigError
from qkv.folder.run import is_exported
from qkv.inference.adapters import find_bases, load_adapters
from qkv.inference.load import load, load_translator
from qkv.serving.base_handler import AttentionHandler, Handler
from qkv.serving.errors import RequestError
from qkv.serving.handlers import EncoderHandler, GenerationHandler, TranslationHandler, VectorsHandler
from qkv.serving.service_config import name_and_folder
from qkv.vectors.word_vectors import TENSORS, WordVectors

H = TypeVar("H", bound=Handler, covariant=True)
HANDLERS: dict[str, Callable[[Any], Handler]] = {  # by what a run loads as
    "translator": TranslationHandler,
    "encoder": EncoderHandler,
    "generator": GenerationHandler,
}


@dataclass(frozen=True)
class Ability(Generic[H]):
    """A task that some models do, and the kind of handler that these models have."""

    name: str
    needs: str


TRANSLATE = Ability[TranslationHandler]("translate", "a translator")
EMBED = Ability[EncoderHandler]("embed", "an encoder")
FILL = Ability[EncoderHandler]("fill", "an encoder that predicts masked words")
PREDICT = Ability[EncoderHandler]("predict", "a fine-tuned encoder")
COMPLETE = Ability[GenerationHandler]("complete", "a GPT")
NEIGHBOURS = Ability[VectorsHandler]("neighbours", "word vectors")
MAP = Ability[VectorsHandler]("map", "word vectors")
LOOK = Ability[AttentionHandler]("look", "a model with attention to words")


@dataclass(frozen=True)
class ServedModel(Generic[H]):
    """A model and the name that requests use for it."""

    name: str
    handler: H

    def can(self, ability: Ability[Any]) -> bool:
        """Return whether the model does a task."""
        return ability.name in self.handler.abilities


class ModelRegistry:
    """All models of a service, in the order of the command line."""

    def __init__(self, models: Sequence[ServedModel[Handler]]):
        self.all = list(models)
        self.by_name = {model.name: model for model in models}
        if len(self.by_name) < len(self.all):
            twice = next(model.name for model in models if self.by_name[model.name] is not model)
            raise ConfigError(f"two runs are called {twice!r}; name one of them otherwise, as NAME=FOLDER")

    def find(self, name: str | None, ability: Ability[H]) -> ServedModel[H]:
        """Return the model of this name, or without a name the first that can do the task."""
        if name is None:
            able = self.all_with(ability)
            if not able:
                raise RequestError(404, "no_such_ability", f"no model here can {ability.name}; serve {ability.needs}", "model")
            return able[0]
        model = self.named(name)
        if not model.can(ability):
            raise RequestError(400, "model_cannot", f"{model.name} cannot {ability.name}; that needs {ability.needs}", "model")
        return cast(ServedModel[H], model)

    def named(self, name: str) -> ServedModel[Handler]:
        """Return the model of this name."""
        if name not in self.by_name:
            raise RequestError(
                404, "model_not_found", "there is no model of that name; GET /models lists those there are", "model"
            )
        return self.by_name[name]

    def all_with(self, ability: Ability[H]) -> list[ServedModel[H]]:
        """Return the models that can do a task."""
        return [cast(ServedModel[H], model) for model in self.all if model.can(ability)]


class ModelGroup(NamedTuple):
    """A run and its adapters, which are loaded together; equal groups have the same files."""

    name: str
    folder: Path
    adapters: tuple[tuple[str, Path], ...]
    stamps: tuple[int, ...]  # time and size of every file, so that a folder with new files is another group

    def can_be_shared(self, engine: str | None) -> bool:
        """Return whether a process that has loaded the group on the CPU can fork: other programs' engines have threads."""
        return sys.platform == "linux" and engine in (None, "own") and not is_exported(self.folder)

    def load(self, device: str, engine: str | None = None, precision: str | None = None) -> list[ServedModel[Handler]]:
        """Load the models of the group; in our own engine adapters share the weights of their run."""
        if self.adapters and engine in (None, "own") and precision is None:
            base, translators = load_adapters(self.folder, [adapter for _, adapter in self.adapters], device)
            models = [ServedModel[Handler](self.name, TranslationHandler(base))]
        else:
            models = [ServedModel(self.name, _load(self.folder, device, engine, precision))]
            translators = [load_translator(self.folder, device, engine, precision, adapter) for _, adapter in self.adapters]
        names = [name for name, _ in self.adapters]
        models += [ServedModel(name, TranslationHandler(found)) for name, found in zip(names, translators, strict=True)]
        for model in models:
            if not model.handler.try_out():
                raise CheckpointError(f"{model.name}: {self.folder} computes numbers that are not finite; serve another run")
        return models


def model_groups(runs: Sequence[tuple[str, Path]], adapters: Sequence[tuple[str, Path]] = ()) -> list[ModelGroup]:
    """Find the run that each adapter belongs to; models of a group stand in the order: run, adapters."""
    bases = find_bases([folder for _, folder in adapters], [folder for _, folder in runs])
    groups = []
    for name, folder in runs:
        own = tuple(adapter for adapter, base in zip(adapters, bases, strict=True) if base == folder)
        files = [file for _, each in ((name, folder), *own) for file in sorted(each.rglob("*")) if file.is_file()]
        stamps = tuple(number for file in map(Path.stat, files) for number in (file.st_mtime_ns, file.st_size, file.st_ino))
        groups.append(ModelGroup(name, folder, own, stamps))
    return groups


def load_models(
    runs: Sequence[str],
    device: str,
    engine: str | None = None,
    precision: str | None = None,
    adapters: Sequence[str] = (),
) -> ModelRegistry:
    """Load models from folders; each is named after its folder, or by the NAME of `NAME=FOLDER`.

    Adapters of a run are models of their own, after it.
    """
    groups = model_groups([name_and_folder(run) for run in runs], [name_and_folder(adapter) for adapter in adapters])
    return ModelRegistry([model for group in groups for model in group.load(device, engine, precision)])


def _load(folder: Path, device: str, engine: str | None, precision: str | None) -> Handler:
    if (folder / TENSORS).exists():
        return VectorsHandler(WordVectors.load(folder))
    loaded = load(folder, device, engine, precision)
    if loaded.loads_as not in HANDLERS:
        raise ConfigError(f"{folder} is a T5 that restores text, which is not served; train it on pairs with start={folder}")
    return HANDLERS[loaded.loads_as](loaded)

"""The models of a service, loaded once from the folders on the command line; requests know only their names."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from qkv.base.errors import ConfigError
from qkv.inference.adapters import find_bases, load_adapters
from qkv.inference.load import load, load_translator, read_role
from qkv.serving.base_handler import AttentionHandler, Handler
from qkv.serving.errors import RequestError
from qkv.serving.handlers import CompletionHandler, EncoderHandler, GenerationHandler, TranslationHandler, VectorsHandler
from qkv.serving.infill_handler import InfillHandler
from qkv.vectors.word_vectors import TENSORS, WordVectors

log = logging.getLogger("qkv.serving")
H = TypeVar("H", bound=Handler, covariant=True)
HANDLERS: dict[str, Callable[[Any], Handler]] = {  # by what a run loads as
    "translator": TranslationHandler,
    "encoder": EncoderHandler,
    "generator": GenerationHandler,
    "infiller": InfillHandler,
}


@dataclass(frozen=True)
class Ability(Generic[H]):
    """A task that some models do, and the kind of handler that these models have."""

    name: str
    needs: str


TRANSLATE = Ability[TranslationHandler]("translate", "a translator")
EMBED = Ability[EncoderHandler]("embed", "an encoder")
FILL = Ability[EncoderHandler | InfillHandler]("fill", "an encoder that predicts masked words, or a T5")
PREDICT = Ability[EncoderHandler]("predict", "a fine-tuned encoder")
COMPLETE = Ability[CompletionHandler]("complete", "a GPT or a T5")
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


def load_models(
    runs: Sequence[str],
    device: str,
    engine: str | None = None,
    precision: str | None = None,
    adapters: Sequence[str] = (),
) -> ModelRegistry:
    """Load models from folders; each is named after its folder, or by the NAME of `NAME=FOLDER`.

    Adapters of a run are models of their own, after it; in our own engine they share its weights. `engine` and `precision` are
    those of the translators.
    """
    named, named_adapters = [_name_and_folder(run) for run in runs], [_name_and_folder(adapter) for adapter in adapters]
    bases = find_bases([folder for _, folder in named_adapters], [folder for _, folder in named])
    others = [] if engine is None and precision is None else [name for name, folder in named if not _translates(folder)]
    listed = ", ".join(others)
    if len(others) == len(named):
        raise ConfigError(f"engine and precision are for translators, and there is none among {listed}; leave them out")
    if others:
        log.info("engine and precision are for translators; %s: as without them", listed)
    models: list[ServedModel[Handler]] = []
    for name, folder in named:
        own = [adapter for adapter, base in zip(named_adapters, bases, strict=True) if base == folder]
        if own and engine in (None, "own") and precision is None:
            base, translators = load_adapters(folder, [adapter for _, adapter in own], device)
            models.append(ServedModel(name, TranslationHandler(base)))
        else:
            models.append(ServedModel(name, _load(folder, device, *((None, None) if name in others else (engine, precision)))))
            translators = [load_translator(folder, device, engine, precision, adapter) for _, adapter in own]
        models += [ServedModel(name, TranslationHandler(found)) for (name, _), found in zip(own, translators, strict=True)]
    return ModelRegistry(models)


def _name_and_folder(given: str) -> tuple[str, Path]:
    """Split NAME=FOLDER; a folder without a name has its own."""
    name, equals, path = given.partition("=")
    if not (equals and name) or Path(given).exists():
        return Path(given).resolve().name, Path(given)
    return name, Path(path)


def _translates(folder: Path) -> bool:
    """Return whether a folder holds a translator."""
    return not (folder / TENSORS).exists() and read_role(folder) == "translator"


def _load(folder: Path, device: str, engine: str | None, precision: str | None) -> Handler:
    if (folder / TENSORS).exists():
        return VectorsHandler(WordVectors.load(folder))
    loaded = load(folder, device, engine, precision)
    return HANDLERS[loaded.loads_as](loaded)

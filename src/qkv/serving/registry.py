"""The models of a service, loaded from folders; requests know only their names."""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast

from qkv.base.errors import CheckpointError, ConfigError
from qkv.folder.run import is_exported
from qkv.inference.adapters import find_bases, load_adapters
from qkv.inference.load import load, load_translator, read_role
from qkv.serving.base_handler import AttentionHandler, Handler
from qkv.serving.errors import RequestError
from qkv.serving.handlers import CompletionHandler, EncoderHandler, GenerationHandler, TranslationHandler
from qkv.serving.infill_handler import InfillHandler
from qkv.serving.service_config import name_and_folder
from qkv.serving.vectors_handler import VectorsHandler
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
ARITHMETIC = Ability[AttentionHandler]("arithmetic", "a model with attention to words")
CHANGE = Ability[AttentionHandler]("change", "a model with attention to words")
PATCH = Ability[AttentionHandler]("patch", "a transformer, a T5, a convolution, a GPT, or an encoder other than an ELMo")
LAYERS = Ability[AttentionHandler]("layers", "a transformer, a T5, a convolution, a GPT, or an encoder that predicts [MASK]")
STEPS = Ability[AttentionHandler]("steps", "a translator or a GPT")
ATTRIBUTE = Ability[AttentionHandler]("attribute", "a model with attention to words")
THROUGH_TRAINING = Ability[AttentionHandler]("through_training", "a run with snapshots (training.snapshots=8)")
HEADS = Ability[AttentionHandler]("heads", "a run whose heads `qkv heads` has measured")
ANALOGY = Ability[VectorsHandler]("analogy", "word vectors")
PROJECTOR = Ability[VectorsHandler]("projector", "word vectors")
FOLLOW_WORDS = Ability[VectorsHandler]("neighbours_through_training", "word vectors with snapshots (--set snapshots=8)")


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

    def __init__(self, models: Sequence[ServedModel[Handler]], languages: Mapping[str, tuple[str, str]] | None = None):
        """`languages` of translators, by name, go before those of their runs."""
        self.all = list(models)
        self.by_name = {model.name: model for model in models}
        if len(self.by_name) < len(self.all):
            twice = next(model.name for model in models if self.by_name[model.name] is not model)
            raise ConfigError(f"two runs are called {twice!r}; name one of them otherwise, as NAME=FOLDER")
        for name, pair in (languages or {}).items():
            if not self.by_name[name].can(TRANSLATE):
                raise ConfigError(f"languages of {name!r}: it does not translate; leave them out")
            self.by_name[name].handler.languages = pair

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
    """A run and its adapters, which are loaded together; equal groups have the same files and are loaded in the same way."""

    name: str
    folder: Path
    adapters: tuple[tuple[str, Path], ...]
    stamps: tuple[int, ...]  # time, size and inode of every file, so that a folder with new files is another group
    device: str
    engine: str | None
    precision: str | None

    @property
    def can_be_shared(self) -> bool:
        """Whether a process that has loaded the group on the CPU can fork: other programs' engines have threads."""
        return sys.platform == "linux" and self.engine in (None, "own") and not is_exported(self.folder)

    def load(self) -> list[ServedModel[Handler]]:
        """Load and try the models of the group; in our own engine adapters share the weights of their run."""
        how = (self.device, self.engine, self.precision)
        if self.adapters and self.engine in (None, "own") and self.precision is None:
            base, translators = load_adapters(self.folder, [adapter for _, adapter in self.adapters], self.device)
            models = [ServedModel[Handler](self.name, TranslationHandler(base))]
        else:
            models = [ServedModel(self.name, _load(self.folder, *how))]
            translators = [load_translator(self.folder, *how, adapter) for _, adapter in self.adapters]
        names = [name for name, _ in self.adapters]
        models += [ServedModel(name, TranslationHandler(found)) for name, found in zip(names, translators, strict=True)]
        for model in models:
            if not model.handler.try_out():
                raise CheckpointError(f"{model.name}: {self.folder} computes numbers that are not finite; serve another run")
        return models


def model_groups(
    runs: Sequence[tuple[str, Path]],
    adapters: Sequence[tuple[str, Path]] = (),
    device: str = "auto",
    engine: str | None = None,
    precision: str | None = None,
) -> list[ModelGroup]:
    """Find the run that each adapter belongs to, and the runs that `engine` and `precision` are for: the translators."""
    bases = find_bases([folder for _, folder in adapters], [folder for _, folder in runs])
    others = [] if engine is None and precision is None else [name for name, folder in runs if not _translates(folder)]
    if len(others) == len(runs):
        listed = ", ".join(others)
        raise ConfigError(f"engine and precision are for translators, and there is none among {listed}; leave them out")
    if others:
        log.info("engine and precision are for translators; %s: as without them", ", ".join(others))
    groups = []
    names = {folder: name for name, folder in reversed(runs)}  # the first of each folder, which has the adapters
    for name, folder in runs:
        own = tuple(one for one, base in zip(adapters, bases, strict=True) if base == folder and names[folder] == name)
        files = [file for _, each in ((name, folder), *own) for file in sorted(each.rglob("*")) if file.is_file()]
        stamps = tuple(number for file in map(Path.stat, files) for number in (file.st_mtime_ns, file.st_size, file.st_ino))
        how = (None, None) if name in others else (engine, precision)
        groups.append(ModelGroup(name, folder, own, stamps, device, *how))
    return groups


def load_models(
    runs: Sequence[str],
    device: str,
    engine: str | None = None,
    precision: str | None = None,
    adapters: Sequence[str] = (),
) -> ModelRegistry:
    """Load models from folders; each is named after its folder, or by the NAME of `NAME=FOLDER`.

    Adapters of a run are models of their own, after it. `engine` and `precision` are those of the translators.
    """
    named, named_adapters = ([name_and_folder(each) for each in given] for given in (runs, adapters))
    groups = model_groups(named, named_adapters, device, engine, precision)
    return ModelRegistry([model for group in groups for model in group.load()])


def _translates(folder: Path) -> bool:
    """Return whether a folder holds a translator."""
    return not (folder / TENSORS).exists() and read_role(folder) == "translator"


def _load(folder: Path, device: str, engine: str | None, precision: str | None) -> Handler:
    if (folder / TENSORS).exists():
        return VectorsHandler(WordVectors.load(folder), folder)
    loaded = load(folder, device, engine, precision)
    return HANDLERS[loaded.loads_as](loaded)

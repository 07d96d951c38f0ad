"""The models of a service: opened once, from folders that the command line named; requests know their names and no more."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qkv.base.errors import ConfigError
from qkv.inference.infiller import Infiller
from qkv.inference.load import load
from qkv.inference.text_encoder import TextEncoder
from qkv.inference.text_generator import TextGenerator
from qkv.inference.translator import Translator
from qkv.serving.refusals import Refusal
from qkv.serving.works import AnyWork, GeneratorWork, ReaderWork, TranslatorWork, VectorsWork
from qkv.vectors.word_vectors import TENSORS, WordVectors

ABILITIES = {
    "translate": "a translator",
    "embed": "an encoder",
    "fill": "an encoder that guesses words",
    "predict": "a fine-tuned encoder",
    "complete": "a GPT",
    "neighbours": "word vectors",
    "map": "word vectors",
    "look": "a model with attention to words",
}


@dataclass(frozen=True)
class Model:
    """A model under the name it is asked by."""

    name: str
    kind: str  # translator, encoder, generator or vectors
    work: AnyWork
    languages: tuple[str, str] | None = None  # of a translator: from, to
    parameters: int | None = None

    @property
    def can(self) -> list[str]:
        return list(self.work.can)


class Models:
    """All models of a service, in the order in which they were given."""

    def __init__(self, models: Sequence[Model]):
        self.all = list(models)
        self.by_name = {model.name: model for model in models}
        if len(self.by_name) < len(self.all):
            twice = next(model.name for model in models if self.by_name[model.name] is not model)
            raise ConfigError(f"two runs are called {twice!r}; name one of them otherwise, as NAME=FOLDER")

    def find(self, name: str | None, ability: str) -> Model:
        """The model of that name, or the first that can do this; nothing else is looked at."""
        able = [model for model in self.all if ability in model.can]
        if name is None:
            if not able:
                raise Refusal(404, "no_such_ability", f"no model here can {ability}; serve {ABILITIES[ability]}", "model")
            return able[0]
        model = self.named(name)
        if model not in able:
            raise Refusal(400, "model_cannot", f"{model.name} cannot {ability}; that needs {ABILITIES[ability]}", "model")
        return model

    def named(self, name: str) -> Model:
        """The model of that name."""
        if name not in self.by_name:
            raise Refusal(404, "model_not_found", "there is no model of that name; GET /models lists those there are", "model")
        return self.by_name[name]

    def translators(self) -> list[Model]:
        """Models that translate."""
        return [model for model in self.all if "translate" in model.can]


def open_models(given: Sequence[str], device: str, engine: str | None = None, precision: str | None = None) -> Models:
    """Models of folders, each named by its folder, or by what is before a `=`."""
    return Models([_open(*_named(one), device, engine, precision) for one in given])


def _named(given: str) -> tuple[str, Path]:
    name, equals, folder = given.partition("=")
    if equals and name and not Path(given).exists():
        return name, Path(folder)
    return Path(given).resolve().name, Path(given)


def _open(name: str, folder: Path, device: str, engine: str | None, precision: str | None) -> Model:
    if (folder / TENSORS).exists():
        vectors = WordVectors.load(folder)
        return Model(name, "vectors", VectorsWork(vectors), None, int(vectors.matrix.size))
    loaded = load(folder, device, engine, precision)
    if isinstance(loaded, Infiller):
        raise ConfigError(f"{folder} is a T5 that restores text, which is not served; train it on pairs with start={folder}")
    if isinstance(loaded, Translator):
        return Model(name, "translator", TranslatorWork(loaded), loaded.recipe.data.languages, _size(loaded))
    if isinstance(loaded, TextGenerator):
        return Model(name, "generator", GeneratorWork(loaded), None, _size(loaded))
    return Model(name, "encoder", ReaderWork(loaded), None, _size(loaded))


def _size(loaded: Translator | TextEncoder | TextGenerator) -> int | None:
    """How many weights a model has; None where another program keeps them."""
    if isinstance(loaded, Translator):
        network = getattr(loaded.engine, "model", None)
    else:
        network = loaded.writer if isinstance(loaded, TextGenerator) else loaded.model
    count = getattr(network, "parameters", None)
    return None if count is None else sum(weight.numel() for weight in count())

"""Recipes: everything that decides a run, one class for each kind of run, chosen by `objective.kind`; and reading them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from qkv.base.config import Config, parse, read_yaml, with_settings
from qkv.base.errors import ConfigError
from qkv.models.t5 import T5Config
from qkv.parts.attention_kinds import KINDS
from qkv.parts.encoder import EncoderConfig
from qkv.recipes.finetuning import FINETUNED, FINETUNING, FinetuningRecipe
from qkv.recipes.pretraining import ENCODERS, PRETRAINING, SIZES, SPANS, PretrainingRecipe
from qkv.recipes.translation import TRANSLATORS, TranslationData, TranslationRecipe

__all__ = [
    "ENCODERS", "FINETUNING", "PRETRAINING", "RECIPES", "SIZES", "TRANSLATORS", "FinetuningRecipe", "PretrainingRecipe", "Recipe",
    "TranslationData", "TranslationRecipe", "kind_of_recipe", "load_recipe", "parse_recipe", "recipe_names", "with_size",
]  # fmt: skip

RECIPES = Path(__file__).parent
C = TypeVar("C", bound=Config)
Recipe = TranslationRecipe[Any] | PretrainingRecipe[Any, Any] | FinetuningRecipe[Any, Any]


def recipe_names() -> list[str]:
    """The recipes that come with the package."""
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def load_recipe(name: str, settings: list[str]) -> Recipe:
    """A recipe by name or from a file, with some of its values set anew."""
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        path = RECIPES / f"{name}.yaml"
        if not path.exists():
            known = ", ".join(recipe_names())
            raise ConfigError(f"no recipe {name!r}; known are {known}; or give a file that ends in .yaml")
    values = _giving_way(read_yaml(path), settings)
    for setting in settings:
        values = with_settings(_spelt_out(values), [setting])
    try:
        return parse_recipe(values, name)
    except ConfigError as error:
        raise ConfigError(f"{error}{_of_another_kind(path, values)}") from None


def _of_another_kind(path: Path, values: dict[str, Any]) -> str:
    """Where to find a model of a kind that was asked of a recipe for another: nothing else of it may fit."""
    kinds = {name: _kind(_with_usual_model(read_yaml(RECIPES / f"{name}.yaml")), "model", "") for name in recipe_names()}
    before, asked = (_kind(_with_usual_model(given), "model", "") for given in (read_yaml(path), values))
    made_for = [name for name, kind in kinds.items() if kind == asked]
    return f" (for model.kind={asked} begin with the recipe {' or '.join(made_for)})" if before != asked and made_for else ""


def _spelt_out(values: dict[str, Any]) -> dict[str, Any]:
    """The values with a kind of attention that one word names as keys, beside which others can be set."""
    model = values.get("model")
    word = model.get("attention") if isinstance(model, dict) else None
    return with_settings(values, [f"model.attention.kind={word}"]) if isinstance(word, str) and word in KINDS else values


def _giving_way(values: dict[str, Any], settings: list[str]) -> dict[str, Any]:
    """The values of a file without those that a setting takes the place of, though it has another name.

    A tokenizer's file says all of a tokenizer. The run to start from has a tokenizer, and a model of which little may change.
    """
    for key, _, value in (setting.partition("=") for setting in settings):
        if value in ("", "null", "~"):
            continue
        if key.startswith("tokenizer.") and key.endswith(".file"):
            values = with_settings(values, [f"{key.removesuffix('.file')}={{}}"])
        if key == "start":
            values = {name: inside for name, inside in values.items() if name != "tokenizer"}
            if isinstance(values.get("model"), dict):
                values["model"] = {
                    name: value for name, value in values["model"].items() if name in ("kind", "dropout", "frozen")
                }
    return values


def parse_recipe(values: Any, where: str) -> Recipe:
    """A recipe from plain values, as they stand in a file or in a run's folder."""
    training = values.get("training") if isinstance(values, dict) else None
    if isinstance(training, dict):
        training.pop("compile", None)  # a key of version 0.1, which nothing needs any more
    values = with_size(_with_usual_model(values), where)
    return parse(kind_of_recipe(values, where), values, where)


def _with_usual_model(values: Any) -> Any:
    """A translator is a Transformer unless another is asked for; only a T5 starts from another run."""
    if not isinstance(values, dict) or _kind(values, "objective", "translation") != "translation":
        return values
    model, usual = values.get("model"), "transformer" if values.get("start") is None else "t5"
    return {**values, "model": {"kind": usual, **(model or {})}} if model is None or isinstance(model, dict) else values


def with_size(values: Any, where: str) -> Any:
    """The values with `model.size`, the name of a published size, replaced by what it stands for; keys beside it win."""
    model = values.get("model") if isinstance(values, dict) else None
    if not isinstance(model, dict) or "size" not in model:
        return values
    sizes = SIZES.get(model.get("kind"), {})  # type: ignore[arg-type]
    if model["size"] not in sizes:
        known = f"of {model.get('kind')} known are {', '.join(sizes)}" if sizes else f"sizes have names for {', '.join(SIZES)}"
        raise ConfigError(f"{where}: no model.size {model['size']!r}; {known}")
    return {**values, "model": {**sizes[model["size"]], **{key: value for key, value in model.items() if key != "size"}}}


def kind_of_recipe(values: Any, where: str) -> type[Recipe]:
    """The class of the recipe that these values are of, by its objective and its model."""
    objective = _kind(values, "objective", "translation")
    if objective == "translation":
        return TranslationRecipe[_listed(TRANSLATORS, values, where)]  # type: ignore[misc, return-value]
    if objective == SPANS:
        kind = _kind(values, "model", None)
        model = T5Config if kind is None else _listed({"t5": T5Config}, values, where)
        return PretrainingRecipe[model, PRETRAINING[SPANS]]  # type: ignore[valid-type]
    if objective in PRETRAINING:
        return PretrainingRecipe[_encoder(values, where, ENCODERS), PRETRAINING[objective]]  # type: ignore[misc, return-value]
    if objective in FINETUNING:
        return FinetuningRecipe[_encoder(values, where, FINETUNED), FINETUNING[objective]]  # type: ignore[misc, return-value]
    known = ", ".join(["translation", *PRETRAINING, *FINETUNING])
    raise ConfigError(f"{where}: objective.kind {objective!r} is not one of {known}")


def _encoder(values: Any, where: str, known: Mapping[str, type[EncoderConfig]]) -> type[EncoderConfig]:
    """The config of the encoder that is asked for; of any, where it is not said but taken from another run."""
    if _kind(values, "model", None) is not None:
        return _listed(known, values, where)
    model = values.get("model") if isinstance(values, dict) else None
    for key in model if isinstance(model, dict) else ():
        kinds = [kind for kind, config in known.items() if key in config.model_fields]
        if kinds and key not in EncoderConfig.model_fields:
            raise ConfigError(f"{where}: model.{key} is a key of {', '.join(kinds)} alone; say model.kind beside it")
    return EncoderConfig


def _listed(known: Mapping[str, type[C]], values: Any, where: str) -> type[C]:
    """The config of the model that is asked for, among those that there are for the objective."""
    kind = _kind(values, "model", None)
    if kind is None or kind not in known:
        raise ConfigError(f"{where}: model.kind {kind!r} is not one of {', '.join(known)}")
    return known[kind]


def _kind(values: Any, part: str, usual: str | None) -> str | None:
    inside = values.get(part) if isinstance(values, dict) else None
    return inside.get("kind", usual) if isinstance(inside, dict) else usual

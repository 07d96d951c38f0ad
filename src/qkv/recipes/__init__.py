"""Recipes: all settings of a run. The schema stands beside the YAML files that come with the package.

`objective.kind` decides the job (translation, pretraining, fine-tuning) and so the class of the recipe; `model.kind` names the
family (`models/`), whose config holds the keys of `model`.
"""

from pathlib import Path
from typing import Any

from qkv.base.config import parse, read_yaml, with_settings
from qkv.base.errors import ConfigError
from qkv.models import FAMILIES
from qkv.models.family import Family
from qkv.objectives import OBJECTIVES
from qkv.parts.attention_kinds import KINDS
from qkv.parts.encoder import EncoderConfig
from qkv.recipes.finetuning import FinetuningRecipe
from qkv.recipes.pretraining import PretrainingRecipe
from qkv.recipes.translation import TranslationData, TranslationRecipe

__all__ = [
    "RECIPE", "RECIPES", "FinetuningRecipe", "PretrainingRecipe", "Recipe", "TranslationData", "TranslationRecipe",
    "load_recipe", "parse_recipe", "recipe_class", "recipe_job", "recipe_names", "with_size",
]  # fmt: skip

RECIPES = Path(__file__).parent
RECIPE = "recipe.yaml"  # the recipe of a run, in its folder
Recipe = TranslationRecipe[Any, Any] | PretrainingRecipe[Any, Any] | FinetuningRecipe[Any, Any]
CLASSES: dict[str, Any] = {"translation": TranslationRecipe, "pretraining": PretrainingRecipe, "finetuning": FinetuningRecipe}


def recipe_names() -> list[str]:
    """Return the names of the recipes that come with the package."""
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def load_recipe(name: str | Path | dict[str, Any], settings: list[str]) -> Recipe:
    """Return a recipe by its name, from a file or from plain values, with settings (`key=value`, in YAML) applied to it."""
    where, given, values = _read_values(name, settings)
    try:
        return parse_recipe(values, where)
    except ConfigError as error:
        raise ConfigError(f"{error}{_recipes_for_kind(given, values)}") from None


def recipe_job(name: str | Path | dict[str, Any], settings: list[str]) -> str:
    """Return the job of a recipe, which may be incomplete; "" for an unknown objective."""
    kind = _kind(_with_default_model(_read_values(name, settings)[2]), "objective", "translation")
    return OBJECTIVES[kind].config_class.job if kind in OBJECTIVES else ""


def _read_values(name: str | Path | dict[str, Any], settings: list[str]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return a recipe's name for messages, and its values without and with the settings."""
    where = "recipe" if isinstance(name, dict) else str(name)
    given = name if isinstance(name, dict) else read_yaml(_recipe_file(Path(name)))
    values = _without_replaced(given, settings)
    for setting in settings:
        model = values.get("model")
        word = model.get("attention") if isinstance(model, dict) else None
        if isinstance(word, str) and word in KINDS:  # spelled out, so that other keys can be set beside the kind
            values = with_settings(values, [f"model.attention.kind={word}"])
        values = with_settings(values, [setting])
    return where, given, values


def _recipe_file(path: Path) -> Path:
    """Return the YAML file of a recipe's name, or the file itself."""
    if path.suffix in (".yaml", ".yml"):
        return path
    if not (RECIPES / f"{path}.yaml").exists():
        known = ", ".join(recipe_names())
        raise ConfigError(f"no recipe {str(path)!r}; choose one of {known}, or give a file that ends in .yaml")
    return RECIPES / f"{path}.yaml"


def _recipes_for_kind(given: dict[str, Any], values: dict[str, Any]) -> str:
    """Name the recipes for a kind of model, for an error after a setting changed the kind of a recipe's model."""
    before, wanted = (_kind(_with_default_model(one), "model", "") for one in (given, values))
    if before == wanted:
        return ""
    kinds = {name: _kind(_with_default_model(read_yaml(RECIPES / f"{name}.yaml")), "model", "") for name in recipe_names()}
    made_for = " or ".join(name for name, kind in kinds.items() if kind == wanted)
    return f" (for model.kind={wanted} begin with the recipe {made_for})" if made_for else ""


def _without_replaced(values: dict[str, Any], settings: list[str]) -> dict[str, Any]:
    """Drop the values that a setting with another name replaces.

    A tokenizer's file replaces its other keys. The run to start from replaces the tokenizer and most of the model.
    """
    for key, _, value in (setting.partition("=") for setting in settings):
        if value in ("", "null", "~"):
            continue
        if key.startswith("tokenizer.") and key.endswith(".file"):
            values = with_settings(values, [f"{key.removesuffix('.file')}={{}}"])
        if key == "start":
            values = {name: inside for name, inside in values.items() if name != "tokenizer"}
            if isinstance(values.get("model"), dict):
                free = ("kind", "dropout", "frozen", "adapter")
                values["model"] = {name: value for name, value in values["model"].items() if name in free}
            if isinstance(values.get("data"), dict):
                values["data"] = {name: value for name, value in values["data"].items() if name != "protect"}
    return values


def parse_recipe(values: Any, where: str) -> Recipe:
    """Parse plain values, as they stand in a file or in a run's folder, into a recipe."""
    values = with_size(_with_default_model(values), where)
    return parse(recipe_class(values, where), values, where)


def _with_default_model(values: Any) -> Any:
    """Fill in model.kind where the objective has a default: for translation, and where it trains a single kind."""
    kind = _kind(values, "objective", None) or _usual_objective(values)
    model = values.get("model") if isinstance(values, dict) else None
    if not isinstance(values, dict) or kind not in OBJECTIVES or not (model is None or isinstance(model, dict)):
        return values
    trains = [family.kind for family in FAMILIES.values() if kind in family.objectives]
    if OBJECTIVES[kind].config_class.job == "translation":
        values = {**values, "objective": {"kind": kind, **(values.get("objective") or {})}}
    elif len(trains) != 1 or (model is None and values.get("start") is not None):
        return values
    if values.get("start") is not None and "kind" not in (model or {}):
        trains = [_kind_of_run(Path(str(values["start"]))) or trains[0]]
    return {**values, "model": {"kind": trains[0], **(model or {})}}


def _usual_objective(values: Any) -> str:
    """Return the objective of a recipe that names none: translation, in the form that the run to start from learns by."""
    start = values.get("start") if isinstance(values, dict) else None
    family = FAMILIES.get(_kind_of_run(Path(str(start))) or "") if start is not None else None
    known = family.objectives if family else ()
    return next((kind for kind in known if OBJECTIVES[kind].config_class.job == "translation"), "translation")


def _kind_of_run(run: Path) -> str | None:
    """Return the kind of model of the run that a recipe starts from; None if it is no run, which is refused later."""
    return _kind(read_yaml(run / RECIPE), "model", None) if (run / RECIPE).is_file() else None


def with_size(values: Any, where: str) -> Any:
    """Replace `model.size`, the name of a published size, by the keys it stands for; keys beside it win."""
    model = values.get("model") if isinstance(values, dict) else None
    if not isinstance(model, dict) or "size" not in model:
        return values
    family = FAMILIES.get(model.get("kind"))  # type: ignore[arg-type]
    sizes = family.sizes if family else {}
    if model["size"] not in sizes:
        named = ", ".join(family.kind for family in FAMILIES.values() if family.sizes)
        known = f"sizes of {model.get('kind')} are {', '.join(sizes)}" if sizes else f"named sizes exist for {named}"
        raise ConfigError(f"{where}: no model.size {model['size']!r}; {known}")
    return {**values, "model": {**sizes[model["size"]], **{key: value for key, value in model.items() if key != "size"}}}


def recipe_class(values: Any, where: str) -> Any:
    """Return the class of the recipe that these values describe: by its objective's job, its objective and its model."""
    kind = _kind(values, "objective", "translation")
    if kind not in OBJECTIVES:
        raise ConfigError(f"{where}: objective.kind {kind!r} is not one of {', '.join(OBJECTIVES)}")
    objective = OBJECTIVES[kind].config_class
    return CLASSES[objective.job][_model_config(values, where, kind, objective.job), objective]


def _model_config(values: Any, where: str, objective: str, job: str) -> Any:
    """Return the config class of model.kind; that of any encoder where the run to start from decides the kind."""
    families = {
        kind: family
        for kind, family in FAMILIES.items()
        if (family.can_be_finetuned if job == "finetuning" else objective in family.objectives)
    }
    kind = _kind(values, "model", None)
    if kind is None and job != "translation":
        _refuse_own_keys(values, where, families)
        return EncoderConfig
    if kind not in families:
        trained_by = FAMILIES[kind].objectives if kind in FAMILIES else ()
        hint = f" for objective.kind {objective}; model.kind {kind} learns by {', '.join(trained_by)}" if trained_by else ""
        raise ConfigError(f"{where}: model.kind {kind!r} is not one of {', '.join(families)}{hint}")
    return families[kind].config


def _refuse_own_keys(values: Any, where: str, families: dict[str, Family]) -> None:
    """Refuse keys that only some kinds of models have, where no kind is given."""
    model = values.get("model") if isinstance(values, dict) else None
    for key in model if isinstance(model, dict) else ():
        kinds = [kind for kind, family in families.items() if key in family.config.model_fields]
        if kinds and key not in EncoderConfig.model_fields:
            raise ConfigError(f"{where}: model.{key} is a key of {', '.join(kinds)} only; set model.kind too")


def _kind(values: Any, part: str, usual: str | None) -> Any:
    """Return the kind of a part of a recipe, model or objective."""
    inside = values.get(part) if isinstance(values, dict) else None
    return inside.get("kind", usual) if isinstance(inside, dict) else usual

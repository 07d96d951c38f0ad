"""What a run takes from the one that it starts from: the shape of the model, the tokenizer, weights, how long its texts were."""

from pathlib import Path
from typing import Any

from qkv.base.config import Config
from qkv.base.errors import ConfigError
from qkv.folder.networks import EncoderRun, SavedNetwork, read_encoder, trained_length_of
from qkv.folder.run import read_recipe, warn_if_unfinished
from qkv.folder.t5 import read_t5
from qkv.models.t5 import T5Config
from qkv.models.t5_encoder import T5EncoderConfig, encoder_weights
from qkv.parts.heads import ENCODER
from qkv.recipes import FinetuningRecipe, PretrainingRecipe, Recipe, TranslationRecipe, parse_recipe
from qkv.recipes.pretraining import SPANS
from qkv.text.tokenizer import Tokenizer
from qkv.training.progress import Progress

EncoderRecipe = PretrainingRecipe[Any, Any] | FinetuningRecipe[Any, Any]
TextToText = TranslationRecipe[Any] | PretrainingRecipe[Any, Any]


def complete(recipe: Recipe) -> Recipe:
    """The recipe with the shape of the model that it starts from; of that it may change what weights do not depend on."""
    if isinstance(recipe, TranslationRecipe) or (isinstance(recipe, PretrainingRecipe) and recipe.objective.kind == SPANS):
        return recipe if recipe.start is None else _complete_text_to_text(recipe, recipe.start)
    return recipe if recipe.start is None else _complete(recipe, recipe.start)


def _complete_text_to_text(recipe: TextToText, start: str) -> TextToText:
    """That of a T5 or a UniLM, from the run of another, whatever that was trained for."""
    begun, kind = read_recipe(Path(start)).model, "t5" if recipe.model is None else recipe.model.kind
    if begun.kind != kind:
        raise ConfigError(f"{start} is a {begun.kind}; a {kind} starts from the run of a {kind}")
    made = parse_recipe({**recipe.model_dump(mode="json"), "model": _shape(recipe, begun, {"dropout"}, start)}, start)
    assert isinstance(made, TranslationRecipe | PretrainingRecipe)
    return made


def _shape(recipe: Recipe, begun: Config, free: set[str], start: str) -> dict[str, Any]:
    """The shape of the model that a recipe starts from, with what the recipe says of what it is free to change."""
    model = begun.model_dump(mode="json")
    given = {} if recipe.model is None else recipe.model.model_dump(mode="json", include=recipe.model.model_fields_set)
    other = [f"model.{key} {value!r}" for key, value in given.items() if key not in free and value != model.get(key)]
    if other:
        raise ConfigError(f"{', '.join(other)}: not what {start} has; leave model out, it is taken from there")
    return {**model, **given}


def _complete(recipe: EncoderRecipe, start: str) -> EncoderRecipe:
    begun = read_start(Path(start))
    # The generator of an imported ELECTRA is not there, so that it may be of any size.
    free = {"dropout", "frozen"} if begun.generator else {"dropout", "frozen", "generator_size"}
    if (
        recipe.model is not None
        and not recipe.model.attention.one_text_per_row
        and not begun.network.config.attention.one_text_per_row
    ):
        free.add("attention")  # full, window and bigbird have the same weights
    model = _shape(recipe, begun.network.config, free, start)
    _check_tokenizer(recipe, begun.tokenizer)
    made = parse_recipe({**recipe.model_dump(mode="json"), "model": model}, start)
    assert not isinstance(made, TranslationRecipe)
    try:
        made.check_shape()
    except ValueError as error:
        raise ConfigError(f"{start}: {error}") from None
    return made


def _check_tokenizer(recipe: EncoderRecipe, begun: Tokenizer) -> None:
    """Refuse another tokenizer than that of the run that this one starts from: numbers would mean other words."""
    config = recipe.tokenizer
    if config is not None and (config.file is None or Tokenizer.load(Path(config.file)).fingerprint() != begun.fingerprint()):
        got = f"{config.file}: not" if config.file else "a new tokenizer is not"
        raise ConfigError(f"{got} the tokenizer of {recipe.start}; leave tokenizer out, it is taken from there")


def begin_with(start: str, progress: Progress) -> EncoderRun:
    """The run that another one starts from, as of its newest weights."""
    warn_if_unfinished(start, progress)
    return read_start(Path(start))


def read_start(run: Path) -> EncoderRun:
    """An encoder's run, as of its newest weights; of a T5's its encoder alone."""
    if not isinstance(read_recipe(run).model, T5Config):
        return read_encoder(run)
    found = read_t5(run)
    network = SavedNetwork(T5EncoderConfig.of(found.config), {ENCODER: encoder_weights(found.weights)})
    return EncoderRun(run, found.recipe, found.tokenizer, network)


def trained_length(start: str | None, longest: int) -> int | None:
    """Tokens of the longest text that a model has seen once it was trained on texts of `longest`; None where nobody knows.

    That is so of an imported one, which is taken to have seen texts of every length that it can read.
    """
    if start is None:
        return longest
    before = trained_length_of(Path(start))
    return None if before is None else max(before, longest)

"""Starting from another run: the shape of its model, its tokenizer, its weights, the length of its texts."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from qkv.base.errors import ConfigError, QkvError, QkvWarning
from qkv.folder.networks import NetworkRun, SavedNetwork, read_network_run, read_translator_run, trained_length_of
from qkv.folder.run import find_weights, read_recipe
from qkv.models import FAMILIES, seeded_initialisation
from qkv.parts.adapters import with_adapters
from qkv.parts.heads import ENCODER
from qkv.recipes import Recipe, parse_recipe
from qkv.recipes.abilities import describe, require
from qkv.text.corpus import read_pairs
from qkv.text.scripts import script_contradicts
from qkv.text.tokenizer import Tokenizer
from qkv.training.progress import Progress

FREE = {"dropout", "frozen", "adapter"}  # keys of the model that a run may change, because the weights do not depend on them


def complete_recipe(recipe: Recipe) -> Recipe:
    """Take the model's config from the run that a recipe starts from; the recipe may change keys that fit the same weights."""
    if recipe.start is None:
        return recipe
    start = recipe.start
    started_recipe: Any = read_recipe(Path(start))
    started = started_recipe.model
    if recipe.job != "translation" and not FAMILIES[started.kind].can_be_finetuned:
        require(started_recipe, start, "encoder", "generator", "infiller")
    if started.adapter is not None:
        raise ConfigError(
            f"{start} is an adapter, which has no weights but its own; run qkv merge {start} --out RUN, and start from that run"
        )
    if recipe.model is not None and recipe.model.kind != started.kind:
        raise ConfigError(
            f"{start} is of model.kind {started.kind}, and model.kind {recipe.model.kind} starts from a run of its own kind"
        )
    if recipe.model is not None and recipe.model.adapter is not None:
        _check_base(started_recipe, start)
    model = started.model_dump(mode="json")
    given = {} if recipe.model is None else recipe.model.model_dump(mode="json", include=recipe.model.model_fields_set)
    free = FREE | _free_keys(recipe, started)
    other = [f"model.{key} {value!r}" for key, value in given.items() if key not in free and value != model.get(key)]
    if other:
        raise ConfigError(f"{', '.join(other)}: not what {start} has; leave model out, it is taken from there")
    values = {**recipe.model_dump(mode="json"), "model": {**model, **given}}
    if recipe.job != "translation":
        _check_tokenizer(recipe, start)
    elif started_recipe.job == "translation":
        values |= _taken_over(recipe, started_recipe)
    made = parse_recipe(values, start)
    try:
        if made.job != "translation":
            made.check_shape()  # type: ignore[union-attr]
    except ValueError as error:
        raise ConfigError(f"{start}: {error}") from None
    return made


def _check_base(recipe: Any, start: str) -> None:
    """Refuse a run that an adapter cannot be trained for: its weights must be those of a whole translator, and final."""
    if recipe.job != "translation" and not FAMILIES[recipe.model.kind].pretrains_translator:
        raise ConfigError(
            f"{start} is {describe(recipe)}, and adapters are for translators; train one with start={start} without model.adapter"
        )
    unfinished = find_weights(Path(start), recipe).step
    if unfinished:
        raise ConfigError(
            f"{start} is still in training, at {unfinished}, and an adapter fits only final weights; finish its training first"
        )


def _taken_over(recipe: Any, started: Any) -> dict[str, Any]:
    """Return what a translator that goes on from another one takes over, unless its recipe says otherwise."""
    taken = {} if "decoding" in recipe.model_fields_set else {"decoding": started.decoding.model_dump(mode="json")}
    data = recipe.data.model_dump(mode="json")
    if "source_eos" in recipe.data.model_fields_set and recipe.data.source_eos != started.data.source_eos:
        raise ConfigError(f"data.source_eos is {started.data.source_eos} in {recipe.start}; leave it out, it is taken from there")
    languages = started.data.languages
    if "languages" not in recipe.data.model_fields_set and languages is not None:
        if script_contradicts(languages[1], _dev_targets(recipe.data, languages)):
            not_so = f"the targets of data.dev are not in the script of {languages[1]}"
            warnings.warn(f"{not_so}: data.languages of {recipe.start} are not taken over", QkvWarning, stacklevel=2)
        else:
            data["languages"] = languages
    for key in {"protect", "max_tokens"} - recipe.data.model_fields_set:
        data[key] = getattr(started.data, key)
    data["source_eos"] = started.data.source_eos  # the weights know sources with it, or without it
    return {**taken, "data": data}


def _dev_targets(data: Any, languages: tuple[str, str]) -> Iterator[str]:
    """Yield the targets of dev; none from a corpus that cannot be read, which is refused later."""
    for corpus in data.dev:
        with contextlib.suppress(QkvError):
            yield from (pair.target for pair in read_pairs(corpus, languages) if not pair.problem)


def _free_keys(recipe: Recipe, started: Any) -> set[str]:
    """Return further keys that this recipe may change."""
    free: set[str] = set()
    if FAMILIES[started.kind].networks and read_network_run(Path(recipe.start or "")).generator is None:
        # An imported ELECTRA has no generator: a new one may have any shape.
        free |= {"generator_size", "generator_layers", "tied_generator"}
    if recipe.model is not None and not recipe.model.one_text_per_row and not started.one_text_per_row:
        free.add("attention")  # full, window and bigbird attention have the same weights
    return free


def _check_tokenizer(recipe: Any, start: str) -> None:
    """Refuse a tokenizer other than that of the run to start from: token ids would mean other tokens."""
    config = recipe.tokenizer
    if config is None:
        return
    started = read_start(Path(start)).tokenizer
    if config.file is None or Tokenizer.load(Path(config.file)).fingerprint() != started.fingerprint():
        got = f"{config.file}: not" if config.file else "a new tokenizer is not"
        raise ConfigError(f"{got} the tokenizer of {start}; leave tokenizer out, it is taken from there")


def read_start(run: Path) -> NetworkRun:
    """Read the network of a run for new heads: a T5's encoder, any other network whole."""
    recipe = read_recipe(run)
    family = FAMILIES[recipe.model.kind]
    if not family.pretrains_translator or recipe.job == "finetuning":
        return read_network_run(run)
    whole = read_translator_run(run)
    assert family.network_weights is not None
    network = SavedNetwork(recipe.model, {ENCODER: family.network_weights(whole.weights)})
    return NetworkRun(run, recipe, whole.tokenizer, network, whole.weights_file)


def load_start(start: str, progress: Progress) -> NetworkRun:
    """Read the network of the run to start from, with its newest weights, and warn if it is not finished."""
    found = read_start(Path(start))
    if found.weights_file.warning:
        progress.warn(found.weights_file.warning)
    return found


def start_translator(recipe: Any, new: Callable[[], Any], progress: Progress) -> Any:
    """Return a translator with the weights of the run that a recipe starts from; `new` builds one with initial weights.

    A run that is no translator yet (UniLM) has no weights for some parts, which stay new.
    """
    if read_recipe(Path(recipe.start)).job == "translation" or FAMILIES[recipe.model.kind].pretrains_translator:
        found = read_translator_run(Path(recipe.start))
        if found.weights_file.warning:
            progress.warn(found.weights_file.warning)
        model = found.model(recipe)
        if recipe.model.adapter is None:
            return model
        with seeded_initialisation(recipe.seed):
            return with_adapters(model, recipe.model.adapter)
    model, weights = new(), load_start(recipe.start, progress).network.weights
    model.load(weights)
    for head in model.heads.keys() - weights.keys():
        progress.say(f"new, as {recipe.start} has none: {head}")
    return model


def trained_length(start: str | None, longest: int) -> int | None:
    """Return the tokens of the longest text a model has seen, after training on texts of `longest` tokens.

    None where it is not known: an imported model counts as trained on texts of every length that it can read.
    """
    if start is None:
        return longest
    before = trained_length_of(Path(start))
    return None if before is None else max(before, longest)

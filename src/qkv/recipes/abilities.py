"""The abilities of a trained run: the one table that loading, the CLI's verbs and serving use."""

from typing import Any, Literal

from qkv.base.errors import ConfigError
from qkv.models import FAMILIES
from qkv.models.family import Role

# Role of a run -> its name in messages, and the verbs for it.
NAMES = {"translator": "a translator", "encoder": "an encoder", "generator": "a language model", "infiller": "a text infiller"}
VERBS: dict[str, tuple[str, ...]] = {
    "translator": ("translate", "score", "evaluate", "look"),
    "encoder": ("fill", "embed", "score", "evaluate", "look"),
    "generator": ("generate", "score", "evaluate", "look"),
    "infiller": ("fill", "evaluate"),
}
FINETUNED = ("predict", "embed", "evaluate", "look")


def loads_as(recipe: Any) -> Role:
    """Return the role of a run of this recipe."""
    return recipe.objective.loads_as or FAMILIES[recipe.model.kind].loads_as


def verbs(recipe: Any) -> tuple[str, ...]:
    """Return the verbs for a run of this recipe."""
    if recipe.job == "finetuning":
        return FINETUNED
    family, role = FAMILIES[recipe.model.kind], loads_as(recipe)
    missing = {"fill": not family.fills, "score": role == "encoder" and not family.token_scores}
    return tuple(verb for verb in VERBS[role] if not missing.get(verb))


def require(recipe: Any, run: Any, *roles: Role) -> None:
    """Raise ConfigError unless a run has one of these roles; the message names the verbs to use instead."""
    if loads_as(recipe) in roles:
        return
    wanted = " or ".join(NAMES[wanted] for wanted in roles)
    start = f", or train {wanted} with start={run}" if can_start(recipe, roles) else ""
    raise ConfigError(f"{run} is {describe(recipe)}, not {wanted}; use {listed_verbs(recipe)}{start}")


def require_verb(recipe: Any, run: Any, verb: str, otherwise: str) -> None:
    """Raise ConfigError unless a verb is for a run; the message names the verbs that are, and what to do `otherwise`."""
    if verb not in verbs(recipe):
        raise ConfigError(
            f"{run} is {describe(recipe)}, and qkv {verb} is not for it; use {listed_verbs(recipe)}, or {otherwise}"
        )


def describe(recipe: Any) -> str:
    """Return what a run of this recipe is, for messages."""
    return f"{NAMES[loads_as(recipe)]} ({recipe.model.kind}, trained for {recipe.objective.kind})"


def listed_verbs(recipe: Any) -> str:
    """Return the verbs for a run of this recipe, for messages."""
    *others, last = (f"qkv {verb}" for verb in verbs(recipe))
    return f"{', '.join(others)} or {last}"


def evaluated_on(recipe: Any, run: Any) -> Literal["pairs", "examples", "text"]:
    """Return what `qkv evaluate` reads for a run: sentence pairs, labelled examples or text; raise ConfigError if none fits."""
    if recipe.job == "finetuning":
        return "examples"
    if recipe.job == "pretraining" and has_perplexity(recipe.objective):
        return "text"
    if loads_as(recipe) != "translator":
        pairs = "give --pairs FILE, or " if FAMILIES[recipe.model.kind].token_scores else ""
        raise ConfigError(f"{run} is {describe(recipe)} and has no perplexity; {pairs}fine-tune it")
    return "pairs"


def has_perplexity(objective: Any) -> bool:
    """Return whether a run pretrained for this objective has a perplexity, or a T5's loss of dropped spans."""
    return objective.whole_documents or objective.left_to_right_passages() is not None


def can_start(recipe: Any, roles: tuple[Role, ...]) -> bool:
    """Return whether a translator can start from a pretrained run."""
    return "translator" in roles and recipe.job == "pretraining" and FAMILIES[recipe.model.kind].translator is not None

"""The abilities of a trained run: the one table that loading, the CLI's verbs and serving use."""

from typing import Any

from qkv.base.errors import ConfigError
from qkv.models import FAMILIES
from qkv.models.family import Role

# Role of a run -> its name in messages, and the verbs for it.
NAMES = {"translator": "a translator", "encoder": "an encoder", "generator": "a language model", "infiller": "a text infiller"}
VERBS: dict[str, tuple[str, ...]] = {
    "translator": ("translate", "evaluate", "look"),
    "encoder": ("fill", "embed", "evaluate", "look"),
    "generator": ("generate", "evaluate", "look"),
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
    family = FAMILIES[recipe.model.kind]
    return tuple(verb for verb in VERBS[loads_as(recipe)] if verb != "fill" or family.fills)


def require(recipe: Any, run: Any, *roles: Role) -> None:
    """Raise ConfigError unless a run has one of these roles; the message names the verbs to use instead."""
    role = loads_as(recipe)
    if role in roles:
        return
    *others, last = (f"qkv {verb}" for verb in verbs(recipe))
    wanted = " or ".join(NAMES[wanted] for wanted in roles)
    start = f", or train {wanted} with start={run}" if can_start(recipe, roles) else ""
    raise ConfigError(
        f"{run} is {NAMES[role]} ({recipe.model.kind}, trained for {recipe.objective.kind}), not {wanted}; "
        f"use {', '.join(others)} or {last}{start}"
    )


def can_start(recipe: Any, roles: tuple[Role, ...]) -> bool:
    """Return whether a translator can start from a pretrained run."""
    return "translator" in roles and recipe.job == "pretraining" and FAMILIES[recipe.model.kind].translator is not None

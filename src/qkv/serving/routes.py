"""Ways from one language to another: a translator, or two with a pivot language between them."""

from collections.abc import Sequence
from dataclasses import dataclass

from qkv.serving.errors import invalid
from qkv.serving.handlers import TranslationHandler
from qkv.serving.languages import UNNAMED, detect_language
from qkv.serving.registry import TRANSLATE, ModelRegistry, ServedModel
from qkv.text.language_profile import LanguageProfile

AUTO = "auto"
Translator = ServedModel[TranslationHandler]


@dataclass(frozen=True)
class TranslationRoute:
    """The translators that a text passes through, one or two."""

    models: tuple[Translator, ...]

    @property
    def source(self) -> str:
        return languages_of(self.models[0])[0]

    @property
    def languages(self) -> tuple[str, str] | None:
        """The source and the target language; None where a run does not name them."""
        first, last = self.models[0].handler.languages, self.models[-1].handler.languages
        return (first[0], last[1]) if first and last else None

    @property
    def pivot(self) -> str | None:
        """The language between two translators."""
        return languages_of(self.models[0])[1] if len(self.models) > 1 else None


def languages_of(model: Translator) -> tuple[str, str]:
    """Return a model's source and target language; a run may leave them unnamed."""
    return model.handler.languages or UNNAMED


def find_routes(models: ModelRegistry) -> dict[tuple[str, str], TranslationRoute]:
    """Return the best route between each two languages: the first translator, else the first two that share a pivot."""
    translators = models.all_with(TRANSLATE)
    found: dict[tuple[str, str], TranslationRoute] = {}
    for model in translators:
        found.setdefault(languages_of(model), TranslationRoute((model,)))
    direct = dict(found)
    for (source, pivot), first in direct.items():
        for (again, target), second in direct.items():
            if again == pivot and target != source:
                found.setdefault((source, target), TranslationRoute((*first.models, *second.models)))
    return found


def choose_route(models: ModelRegistry, name: str | None, source: str | None, target: str | None, text: str) -> TranslationRoute:
    """Return the route for a request's model and languages; detect the source language where that is needed."""
    if name is not None or not models.all_with(TRANSLATE):
        one = models.find(name, TRANSLATE)
        routes = {languages_of(one): TranslationRoute((one,))}
    else:
        routes = find_routes(models)
    fitting = {
        pair: route
        for pair, route in routes.items()
        if (source is None or is_auto(source) or same_code(source, pair[0])) and (target is None or same_code(target, pair[1]))
    }
    if not fitting:
        unnamed = [model.name for model in models.all_with(TRANSLATE) if model.handler.languages is None]
        more = f"; {unnamed[0]} does not name its languages: name it as model, and leave source and target out" if unnamed else ""
        message = f"no model here translates between these languages; GET /languages lists those there are{more}"
        raise invalid(message, "target", "languages")
    codes = list(dict.fromkeys(code for code, _ in fitting))
    if len(codes) > 1:
        best, second = [one for one in rank_languages(models, text, codes) if one[0] in codes][:2]
        if best[1] == second[1]:
            raise invalid("the text does not tell its language; name it in source", "source", "languages")
        codes = [best[0]]
    return next(route for (code, _), route in fitting.items() if code == codes[0])


def same_code(code: str, other: str) -> bool:
    """Return whether two codes of languages are the same; their case does not matter (BCP 47)."""
    return code.casefold() == other.casefold()


def is_auto(source: str | None) -> bool:
    """Return whether a request asks for its source language to be detected."""
    return source is not None and same_code(source, AUTO)


def rank_languages(models: ModelRegistry, text: str, codes: Sequence[str]) -> list[tuple[str, float]]:
    """Rank these languages, and all others that the models have profiles of, with a confidence from 0 to 100."""
    profiles: dict[str, list[LanguageProfile]] = {code: [] for code in codes}
    for model in models.all_with(TRANSLATE):
        for code, profile in zip(languages_of(model), model.handler.profiles, strict=True):
            if profile is not None:
                profiles.setdefault(code, []).append(profile)
    return detect_language(text, {code: LanguageProfile.merged(found) if found else None for code, found in profiles.items()})

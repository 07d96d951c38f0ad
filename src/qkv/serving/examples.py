"""Examples of requests for the page of the API, which work with the models that are served."""

import itertools
import json
from collections.abc import Callable
from typing import Any

from qkv.serving.handlers import EncoderHandler
from qkv.serving.registry import (
    ANALOGY,
    ARITHMETIC,
    ATTRIBUTE,
    CHANGE,
    COMPLETE,
    EMBED,
    FILL,
    FOLLOW_WORDS,
    HEADS,
    LAYERS,
    LOOK,
    MAP,
    NEIGHBOURS,
    PATCH,
    PREDICT,
    PROJECTOR,
    STEPS,
    THROUGH_TRAINING,
    TRANSLATE,
    Ability,
    ModelRegistry,
    ServedModel,
)  # fmt: skip
from qkv.serving.routes import find_routes
from qkv.serving.vectors_handler import VectorsHandler
from qkv.text.tokenizer import Tokenizer

SENTENCES = {
    "ar": "كيف حالك؟", "cs": "Jak se máš?", "de": "Wie geht es dir?", "el": "Τι κάνεις;", "en": "How are you?",
    "es": "¿Cómo estás?", "fi": "Mitä kuuluu?", "fr": "Comment vas-tu ?", "he": "מה שלומך?", "hi": "आप कैसे हैं?",
    "it": "Come stai?", "ja": "お元気ですか。", "ko": "잘 지내요?", "nl": "Hoe gaat het?", "pl": "Jak się masz?",
    "pt": "Como vai?", "ro": "Ce mai faci?", "ru": "Как дела?", "sv": "Hur mår du?", "tr": "Nasılsın?", "uk": "Як справи?",
    "vi": "Bạn khỏe không?", "zh": "你好吗？",
}  # fmt: skip
ALIKE = (
    "dogs",
    "cats",
    "house",
    "street",
    "man",
    "woman",
    "a",
    "e",
    "i",
    "n",
    "我",
    "你",
    "大",
)  # some pairs have as many tokens
PREDICTED: dict[str | None, Any] = {
    "text": "A very good film.",
    "pair": ["A man sleeps.", "Somebody is asleep."],
    "words": ["Anna", "lives", "in", "Paris"],
    "question": ["Where does Anna live?", "Anna lives in Paris."],
}


class Example:
    """A request to try: its body as JSON, or the fields of its form and path; None where no model here can answer it.

    `hint` says what to fill in, where no value would do for everybody.
    """

    def __init__(self, fields: dict[str, Any] | None, needs: str = "", hint: str = ""):
        self.fields, self.needs, self.hint = fields, needs, hint

    @property
    def body(self) -> str:
        return json.dumps(self.fields, ensure_ascii=False, indent=2)


def find_examples(models: ModelRegistry) -> dict[str, Example]:
    """Return an example for each path that has one."""

    def make(ability: Ability[Any], fields: Any, hint: str = "") -> Example:
        able = models.all_with(ability)
        return Example(fields(able[0]), hint=hint) if able else Example(None, ability.needs)

    first = next(iter(models.all), None)
    source = next(iter(find_routes(models)), ("en", ""))[0].replace("_", "-").split("-")[0].lower()
    text = SENTENCES.get(source, SENTENCES["en"])
    return {
        "/translate": make(TRANSLATE, lambda model: {"q": text, **_languages(models), "alternatives": 2}),
        "/translate_file": make(TRANSLATE, lambda model: _languages(models)),
        "/detect": make(TRANSLATE, lambda model: {"q": text}),
        "/v1/models/{name}": Example({"name": first.name} if first else None, "a model"),
        "/download_file/{name}": make(TRANSLATE, lambda model: {}, "the end of translatedFileUrl"),
        "/admin/models": Example({"name": "new", "folder": "new"}),
        "/admin/models/{name}": Example({}, hint="a name of GET /admin/models"),  # none by default: a click would remove it
        "/v1/embeddings": make(EMBED, lambda model: {"model": model.name, "input": ["Where is it?", "Here it is."]}),
        "/v1/completions": make(
            COMPLETE,
            lambda model: {
                "model": model.name,
                "prompt": "Once upon a time",
                "max_tokens": 20,
                "temperature": 0.8,
                "stream": True,
            },
        ),
        "/fill": make(FILL, lambda model: {"model": model.name, "text": "Paris is the [MASK] of France.", "top": 3}),
        "/predict": make(PREDICT, _predict),
        "/look": make(LOOK, lambda model: {"model": model.name, "text": "good dogs", **_heads(model)}),
        "/neighbours": make(NEIGHBOURS, lambda model: {"model": model.name, "word": _words(model)[0], "top": 5}),
        "/map": make(MAP, lambda model: {"model": model.name, "words": _words(model)}),
        **_laboratory(make),
    }


def _laboratory(make: Callable[[Ability[Any], Callable[[ServedModel[Any]], dict[str, Any]]], Example]) -> dict[str, Example]:
    """Return the examples of the laboratory."""

    def text(model: ServedModel[Any]) -> dict[str, Any]:
        handler = model.handler
        encoder = handler.kind == "encoder" and not handler.reads_trees
        return {"model": model.name, "text": "good [MASK]" if encoder else "good dogs", **_heads(model)}

    def change(model: ServedModel[Any]) -> dict[str, Any]:
        sharper = {"change": "temperature", "value": 0.5}
        return {**text(model), "changes": [sharper], "maps": []}

    def patch(model: ServedModel[Any]) -> dict[str, Any]:
        first, second = _alike(model.handler.source)
        mask = " [MASK]" if model.handler.kind == "encoder" else ""
        return {"model": model.name, "text": first + mask, "other": second + mask}

    def analogy(model: ServedModel[VectorsHandler]) -> dict[str, Any]:
        return {"model": model.name, **dict(zip(("first", "second", "third"), _words(model), strict=False)), "top": 3}

    return {
        "/arithmetic": make(ARITHMETIC, text),
        "/change": make(CHANGE, change),
        "/layers": make(LAYERS, lambda model: {**text(model), "top": 3}),
        "/attribute": make(ATTRIBUTE, lambda model: {**text(model), "method": "occlusion"}),
        "/through_training": make(THROUGH_TRAINING, text),
        "/patch": make(PATCH, patch),
        "/steps": make(STEPS, lambda model: {"model": model.name, "text": "good dogs", "beam": 3, "top": 3}),
        "/heads": make(HEADS, lambda model: {"model": model.name}),
        "/analogy": make(ANALOGY, analogy),
        "/projector": make(PROJECTOR, lambda model: {"model": model.name, "count": 50}),
        "/neighbours_through_training": make(FOLLOW_WORDS, lambda model: {"model": model.name, "words": _words(model)[:2]}),
    }


def _alike(tokenizer: Tokenizer) -> tuple[str, str]:
    """Return two words of as many tokens that a tokenizer tells apart; any two if there are none among the usual ones."""
    encoded = {word: tokenizer.encode(word) for word in ALIKE}
    pairs = itertools.combinations(ALIKE, 2)
    return next(
        ((one, two) for one, two in pairs if len(encoded[one]) == len(encoded[two]) and encoded[one] != encoded[two]), ALIKE[:2]
    )


def _languages(models: ModelRegistry) -> dict[str, str]:
    source, target = next(iter(find_routes(models)))
    return {"source": source, "target": target}


def _predict(model: ServedModel[EncoderHandler]) -> dict[str, Any]:
    return {"model": model.name, "texts": [PREDICTED[model.handler.input_format]]}


def _heads(model: ServedModel[Any]) -> dict[str, Any]:
    return {"heads": [2, 0]} if model.handler.reads_trees else {}


def _words(model: ServedModel[VectorsHandler]) -> list[str]:
    """Return some of the words that have a vector, frequent ones that are not punctuation."""
    words = [word for word in model.handler.vectors.words[:2000] if word.isalpha() and len(word) > 2]
    return (words or model.handler.vectors.words)[:8]

"""The OpenAPI description of a service, with the limits of its settings."""

from typing import Any

from fastapi import FastAPI

from qkv.serving.settings import ServiceSettings

LABORATORY = ("ArithmeticRequest", "ChangeRequest", "LayersRequest", "AttributeRequest", "ThroughTrainingRequest")
TEXTS = (
    ("TranslateRequest", "q"),
    ("DetectRequest", "q"),
    ("FillRequest", "text"),
    ("PredictRequest", "texts"),
    ("LookRequest", "text"),
    ("LookRequest", "target"),
    ("NeighboursRequest", "word"),
    ("MapRequest", "words"),
    *((name, field) for name in LABORATORY for field in ("text", "target")),
    ("StepsRequest", "text"),
    *(("PatchRequest", field) for field in ("text", "other", "answer", "instead", "target")),
    ("AttributeRequest", "instead"),
    ("EmbeddingsRequest", "input"),
    ("CompletionRequest", "prompt"),
)


def describe(app: FastAPI, settings: ServiceSettings) -> dict[str, Any]:
    """Return the description; a number of texts, characters, tokens or alternatives beyond a limit does not conform to it."""
    description = app.openapi()
    schemas = description["components"]["schemas"]
    for schema, field in TEXTS:
        for option in _options(schemas[schema]["properties"][field]):
            if option.get("type") == "string":
                option["maxLength"] = settings.characters
            elif option.get("type") == "array":
                ids = option.get("items", {}).get("type") == "integer"
                option["maxItems"] = settings.characters if ids else settings.texts
    for schema, field, most in (
        ("TranslateRequest", "alternatives", settings.alternatives),
        ("CompletionRequest", "max_tokens", settings.new_tokens),
    ):
        for option in _options(schemas[schema]["properties"][field]):
            if option.get("type") == "integer":
                option["maximum"] = most
    return description


def _options(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the schemas of which a value must have one."""
    return schema.get("anyOf", [schema])

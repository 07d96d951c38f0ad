"""What the service says of itself: OpenAPI, and a page of it that needs nothing from elsewhere."""

import html
import json
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from qkv.base.config import Config
from qkv.serving.answers import OpenAIProblem, Problem
from qkv.serving.asks import ASKS

REASONS = {
    400: "The request cannot be used as it is.",
    401: "The API key is missing or wrong.",
    404: "No such model.",
    408: "The body came too slowly.",
    413: "The body is too large.",
    415: "The content type is not one that is read.",
    422: "The answer took longer than allowed.",
    429: "Too many requests; Retry-After says when to ask again.",
    500: "Something went wrong here.",
    503: "The service is stopping.",
}
FORM = "application/x-www-form-urlencoded"


def problems(openai: bool = False) -> dict[int | str, dict[str, Any]]:
    """How refusals are documented."""
    return {status: {"model": OpenAIProblem if openai else Problem, "description": why} for status, why in REASONS.items()}


def takes(kind: type[Config], form: bool = False) -> dict[str, Any]:
    """How a request's body is documented."""
    schema = {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}
    content = {"application/json": schema, FORM: schema} if form else {"application/json": schema}
    return {"requestBody": {"required": True, "content": content}}


def describe(app: FastAPI, keys: bool) -> dict[str, Any]:
    """The OpenAPI of the service."""
    found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    schemas = found.setdefault("components", {}).setdefault("schemas", {})
    for kind in ASKS:
        schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {})
        schemas[kind.__name__] = schema
    if keys:
        found["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"key": []}]
    return found


def page(openapi: dict[str, Any]) -> str:
    """The OpenAPI as a page."""
    parts = []
    for path, methods in openapi["paths"].items():
        for method, told in methods.items():
            parts.append(_endpoint(path, method, told, openapi["components"]["schemas"]))
    title = html.escape(openapi["info"]["title"])
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="stylesheet" href="page/docs.css"></head>'
        f"<body><main><h1>{title}</h1><p>{html.escape(openapi['info'].get('description', ''))} "
        f'The same for programs: <a href="openapi.json">openapi.json</a>.</p>\n{"".join(parts)}</main></body></html>\n'
    )


def _endpoint(path: str, method: str, told: dict[str, Any], schemas: dict[str, Any]) -> str:
    lines = [f"<section><h2><b>{method.upper()}</b> <code>{html.escape(path)}</code></h2>"]
    lines.append(f"<p>{html.escape(told.get('description') or told.get('summary', ''))}</p>")
    for sort, content in told.get("requestBody", {}).get("content", {}).items():
        lines.append(f"<h3>takes <code>{html.escape(sort)}</code></h3>{_schema(content['schema'], schemas)}")
    for status, answer in told.get("responses", {}).items():
        lines.append(f"<h3>{html.escape(status)}: {html.escape(answer.get('description', ''))}</h3>")
        if status == "200":
            lines += [
                _schema(content["schema"], schemas) for content in answer.get("content", {}).values() if content.get("schema")
            ]
    return "".join(lines) + "</section>\n"


def _schema(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    found = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
    return f"<pre>{html.escape(json.dumps(found, indent=2, ensure_ascii=False))}</pre>"

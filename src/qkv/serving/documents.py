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
    title, about = (html.escape(openapi["info"][name]) for name in ("title", "description"))
    schemas = openapi["components"]["schemas"]
    parts = [
        _endpoint(path, method, told, schemas) for path, methods in openapi["paths"].items() for method, told in methods.items()
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="page/icon.svg" type="image/svg+xml"><link rel="stylesheet" href="page/docs.css"></head>'
        f'<body><main><h1>{title}</h1><p>{about} The same for programs: <a href="openapi.json">openapi.json</a>.</p>\n'
        f"{''.join(parts)}{_refusals()}</main></body></html>\n"
    )


def _endpoint(path: str, method: str, told: dict[str, Any], schemas: dict[str, Any]) -> str:
    lines = [f"<section><h2><b>{method.upper()}</b> <code>{html.escape(path)}</code></h2>"]
    lines.append(f"<p>{html.escape(told.get('description') or told.get('summary', ''))}</p>")
    taken = told.get("requestBody", {}).get("content", {})
    if taken:
        sorts = " or ".join(f"<code>{html.escape(sort)}</code>" for sort in taken)
        lines.append(f"<h3>Takes {sorts}</h3>{_schema(next(iter(taken.values()))['schema'], schemas)}")
    for sort, content in told["responses"].get("200", {}).get("content", {}).items():
        lines.append(f"<h3>Gives <code>{html.escape(sort)}</code></h3>{_schema(content.get('schema', {}), schemas)}")
    return "".join(lines) + "</section>\n"


def _refusals() -> str:
    rows = "".join(f"<tr><th scope=row>{status}</th><td>{html.escape(why)}</td></tr>" for status, why in REASONS.items())
    return f"<section><h2>When there is no answer</h2><table>{rows}</table></section>\n"


def _schema(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    """What a value is: of an object a row for each of its fields."""
    found = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
    if "properties" not in found:
        return f"<p>{html.escape(_kind(found, schemas))}</p>"
    must = found.get("required", [])
    rows = [
        f"<tr><th scope=row><code>{html.escape(name)}</code></th><td>{html.escape(_kind(field, schemas))}</td>"
        f"<td>{'required' if name in must else _default(field)}</td></tr>"
        for name, field in found["properties"].items()
    ]
    return f"<p>{html.escape(found.get('description', ''))}</p><table>{''.join(rows)}</table>"


def _default(field: dict[str, Any]) -> str:
    return "" if field.get("default") is None else f"default {html.escape(json.dumps(field['default']))}"


KINDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "null": "null"}


def _kind(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    """A schema in words."""
    if "$ref" in schema:
        found = schemas[schema["$ref"].rpartition("/")[2]]
        return "{" + ", ".join(found["properties"]) + "}" if "properties" in found else _kind(found, schemas)
    if "anyOf" in schema:
        return " or ".join(_kind(one, schemas) for one in schema["anyOf"])
    if "const" in schema or "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}), schemas)}"
    least, most = (schema.get(name) for name in ("minimum", "maximum"))
    bounds = [f" {word} {bound}" for word, bound in (("from", least), ("to", most)) if bound is not None]
    return KINDS.get(schema.get("type", ""), "anything") + "".join(bounds)

"""The OpenAPI description as an HTML page without scripts."""

import html
import json
from typing import Any

from qkv.serving.response_models import STATUSES

TYPES = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "null": "null"}


def docs_page(openapi: dict[str, Any]) -> str:
    """Return the page."""
    title, about = (html.escape(openapi["info"][name]) for name in ("title", "description"))
    schemas = openapi["components"]["schemas"]
    endpoints = "".join(
        _endpoint(path, method, operation, schemas)
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    )
    rows = "".join(f"<tr><th scope=row>{status}</th><td>{html.escape(why)}</td></tr>" for status, why in STATUSES.items())
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="page/icon.svg" type="image/svg+xml"><link rel="stylesheet" href="page/docs.css"></head>'
        f'<body><main><h1>{title}</h1><p>{about} The same for programs: <a href="openapi.json">openapi.json</a>.</p>\n'
        f"{endpoints}<section><h2>Errors</h2><table>{rows}</table></section>\n</main></body></html>\n"
    )


def _endpoint(path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    lines = [f"<section><h2><b>{method.upper()}</b> <code>{html.escape(path)}</code></h2>"]
    lines.append(f"<p>{html.escape(operation.get('description') or operation.get('summary', ''))}</p>")
    body = operation.get("requestBody", {}).get("content", {})
    if body:
        media_types = " or ".join(f"<code>{html.escape(media_type)}</code>" for media_type in body)
        lines.append(f"<h3>Request: {media_types}</h3>{_schema(next(iter(body.values()))['schema'], schemas)}")
    for media_type, content in operation["responses"].get("200", {}).get("content", {}).items():
        lines.append(f"<h3>Response: <code>{html.escape(media_type)}</code></h3>{_schema(content.get('schema', {}), schemas)}")
    return "".join(lines) + "</section>\n"


def _schema(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    """Describe a value; an object is a table with a row for each of its fields."""
    found = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
    if "properties" not in found:
        return f"<p>{html.escape(_type(found, schemas))}</p>"
    rows = []
    for name, field in found["properties"].items():
        note = "" if field.get("default") is None else f"default {html.escape(json.dumps(field['default']))}"
        if name in found.get("required", []):
            note = "required"
        kind = html.escape(_type(field, schemas))
        rows.append(f"<tr><th scope=row><code>{html.escape(name)}</code></th><td>{kind}</td><td>{note}</td></tr>")
    return f"<p>{html.escape(found.get('description', ''))}</p><table>{''.join(rows)}</table>"


def _type(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    """Return a schema's type in words."""
    if "$ref" in schema:
        found = schemas[schema["$ref"].rpartition("/")[2]]
        return "{" + ", ".join(found["properties"]) + "}" if "properties" in found else _type(found, schemas)
    if "anyOf" in schema:
        return " or ".join(_type(one, schemas) for one in schema["anyOf"])
    if "const" in schema or "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}), schemas)}"
    bounds = ""
    for word, name in (("from", "minimum"), ("to", "maximum")):
        if schema.get(name) is not None:
            whole = float(schema[name]).is_integer()  # FastAPI writes whole bounds as floats
            bounds += f" {word} {int(schema[name]) if whole else schema[name]}"
    return TYPES.get(schema.get("type", ""), "anything") + bounds

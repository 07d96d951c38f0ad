"""The OpenAPI description as an HTML page, with an example of each request that can be tried."""

import html
import json
import re
from collections.abc import Mapping
from typing import Any

from qkv.serving.examples import Example

Endpoint = tuple[str, str, dict[str, Any]]  # path, method, operation
TYPES = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "null": "null"}
JSON_BODY, FORM_BODY = "application/json", "multipart/form-data"
HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}: API</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="page/icon.svg" type="image/svg+xml"><link rel="stylesheet" href="page/style.css">
<link rel="stylesheet" href="page/docs.css"><script src="page/theme.js"></script>
<script type="module" src="page/docs.js"></script>
</head><body>
<a class="skip" href="#main" data-say>Skip to the content</a>
<header><a class="brand" href="."><img src="page/icon.svg" alt="" width="28" height="28">qkv</a>
<a class="place" href="." data-say>Models</a><a class="place" href="docs" aria-current="page" data-say>API</a>
<button id="language" type="button"></button>
<button id="theme" type="button" role="switch" aria-checked="false" aria-label="Dark colours" data-say-label>
<span aria-hidden="true"></span></button>
</header>
"""
KEYS = {False: "qkv-key", True: "qkv-admin-key"}  # names of keys in the browser: of most requests, and of administrators' ones
ADMIN = "/admin/"  # paths that need an administrator's key


def docs_page(openapi: dict[str, Any], examples: Mapping[str, Example], needs_key: bool = False) -> str:
    """Return the page."""
    title, about = (html.escape(openapi["info"][name]) for name in ("title", "description"))
    endpoints = [(path, method, operation) for path, methods in openapi["paths"].items() for method, operation in methods.items()]
    lacking = [one for one in endpoints if one[0] in examples and examples[one[0]].fields is None]
    endpoints = [one for one in endpoints if one not in lacking]
    sections = [_endpoint(*one, openapi["components"]["schemas"], examples.get(one[0]), needs_key) for one in endpoints]
    return (
        f'{HEAD.format(title=title)}<div class="frame">{_index(endpoints)}<main id="main" class="docs" tabindex="-1"><h1>API</h1>'
        f'<p class="lead"><span data-say>{about}</span> <span data-say>Every request can be tried here, on this server.</span> '
        '<span data-say>The same for programs:</span> <a href="openapi.json">openapi.json</a></p>\n'
        "<noscript><p>Requests can be tried with JavaScript only.</p></noscript>"
        f'<div class="endpoints" lang="en">{"".join(sections)}{_lacking(lacking, examples)}{_errors(endpoints)}</div>'
        "</main></div>\n"
        "<footer data-say>All models run on this server. Nothing is sent elsewhere.</footer></body></html>\n"
    )


def _lacking(endpoints: list[Endpoint], examples: Mapping[str, Example]) -> str:
    """Name the endpoints that no model here can answer."""
    if not endpoints:
        return ""
    rows = "".join(
        f"<tr><th scope=row><code>{_breakable(path)}</code></th><td>serve {html.escape(examples[path].needs)}</td></tr>"
        for path, *_ in endpoints
    )
    return f'<section class="card" id="lacking"><h2 data-say>What no model here can do</h2><table>{rows}</table></section>'


def _errors(endpoints: list[Endpoint]) -> str:
    """List the errors that endpoints describe."""
    known = {status: response["description"] for *_, each in endpoints for status, response in each["responses"].items()}
    rows = "".join(
        f"<tr><th scope=row>{status}</th><td>{html.escape(known[status])}</td></tr>"
        for status in sorted(known)
        if status >= "400"
    )
    return f'<section class="card" id="errors"><h2 data-say>Errors</h2><table>{rows}</table></section>'


def _index(endpoints: list[Endpoint]) -> str:
    """Return the list of endpoints, by the API that they belong to."""
    groups: dict[str, list[str]] = {}
    for path, method, operation in endpoints:
        link = f'<li><a href="#{_anchor(path, method)}"><b>{method.upper()}</b><span>{_breakable(path)}</span></a></li>'
        groups.setdefault((operation.get("tags") or ["other"])[0], []).append(link)
    lists = "".join(f"<h2>{html.escape(name)}</h2><ul>{''.join(links)}</ul>" for name, links in groups.items())
    return f'<nav class="index" aria-label="Endpoints" data-say-label>{lists}</nav>\n'


def _anchor(path: str, method: str) -> str:
    return "-".join([method, *re.findall(r"\w+", path)])


def _text(text: str) -> str:
    """Return a docstring as HTML; names are in backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _breakable(path: str) -> str:
    """Return a path that may be broken after each slash."""
    return html.escape(path).replace("/", "/<wbr>")


def _endpoint(
    path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any], example: Example | None, needs_key: bool
) -> str:
    title = f"<h2><b>{method.upper()}</b> <code>{_breakable(path)}</code></h2>"
    lines = [f'<section class="card endpoint" id="{_anchor(path, method)}">{title}']
    lines.append(f"<p>{_text(operation.get('description') or operation.get('summary', ''))}</p>")
    body = operation.get("requestBody", {}).get("content", {})
    key = KEYS[path.startswith(ADMIN)] if needs_key or path.startswith(ADMIN) else ""
    lines.append(_form(path, method, body, schemas, example, key))
    fields = []
    if body:
        media_types = " or ".join(f"<code>{html.escape(media_type)}</code>" for media_type in body)
        described = _schema(next(iter(body.values()))["schema"], schemas)
        fields.append(f"<h3><span data-say>Request</span> {media_types}</h3>{described}")
    for media_type, content in operation["responses"].get("200", {}).get("content", {}).items():
        described = _schema(content.get("schema", {}), schemas)
        fields.append(f"<h3><span data-say>Response</span> <code>{html.escape(media_type)}</code></h3>{described}")
    lines.append(f"<details><summary data-say>Fields</summary>{''.join(fields)}</details>" if fields else "")
    return "".join(lines) + "</section>\n"


def _form(path: str, method: str, body: dict[str, Any], schemas: dict[str, Any], example: Example | None, key: str) -> str:
    """Return the form with which a request can be tried; `key` names the key that it needs."""
    name, fields = _anchor(path, method), (example.fields or {}) if example is not None else {}
    hint = example.hint if example is not None else ""
    inputs = [_input(name, part, fields.get(part, ""), hint, "required") for part in re.findall(r"{(\w+)}", path)]
    if FORM_BODY in body:
        chosen = f'<input id="{name}-file" name="file" type="file" required>'
        inputs.append(f'<div class="field"><label for="{name}-file">file</label>{chosen}</div>')
        inputs += [_input(name, field, value) for field, value in fields.items()]
    elif body:
        text = example.body if example is not None else json.dumps(_blank(body[JSON_BODY]["schema"], schemas), indent=2)
        inputs.append(
            f'<div class="field"><label for="{name}-body" data-say>Body</label>'
            f'<textarea id="{name}-body" name="body" spellcheck="false" '
            f'rows="{min(12, text.count(chr(10)) + 1)}">{html.escape(text)}</textarea></div>'
        )
    kind = "form" if FORM_BODY in body else "json" if body else "none"
    attributes = f'data-method="{method.upper()}" data-path="{html.escape(path)}" data-body="{kind}" data-key="{key}"'
    return (
        f"<form novalidate {attributes}>{''.join(inputs)}"
        '<div class="actions"><button type="submit" class="primary" data-say>Try</button>'
        '<button type="button" class="curl" data-say>Copy as curl</button>'
        '<span class="message" role="status"></span></div></form>'
        '<div class="answer" hidden><p class="status" role="status"></p>'
        '<pre tabindex="0" aria-label="Answer" data-say-label></pre></div>'
    )


def _input(name: str, field: str, value: Any, hint: str = "", required: str = "") -> str:
    where = f"{name}-{field}"
    return (
        f'<div class="field"><label for="{where}">{html.escape(field)}</label><input id="{where}" name="{html.escape(field)}" '
        f'value="{html.escape(str(value))}" placeholder="{html.escape(hint)}" {required}></div>'
    )


def _blank(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """Return a body with the required fields of a schema, empty."""
    found = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
    empty: dict[str, Any] = {"string": "", "array": [], "integer": 0, "number": 0, "boolean": False, "object": {}}
    return {name: empty.get(found["properties"][name].get("type", ""), "") for name in found.get("required", [])}


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
    return f"<p>{_text(found.get('description', ''))}</p><table>{''.join(rows)}</table>"


def _type(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    """Return a schema's type in words."""
    if "$ref" in schema:
        found = schemas[schema["$ref"].rpartition("/")[2]]
        return "{" + ", ".join(found["properties"]) + "}" if "properties" in found else _type(found, schemas)
    if "anyOf" in schema:
        return " or ".join(_type(one, schemas) for one in schema["anyOf"])
    if "const" in schema or "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    if schema.get("format") == "binary":
        return "a file"
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}), schemas)}"
    bounds = ""
    for word, name in (("from", "minimum"), ("to", "maximum")):
        if schema.get(name) is not None:
            whole = float(schema[name]).is_integer()  # FastAPI writes whole bounds as floats
            bounds += f" {word} {int(schema[name]) if whole else schema[name]}"
    return TYPES.get(schema.get("type", ""), "anything") + bounds

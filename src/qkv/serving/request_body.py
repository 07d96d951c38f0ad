"""Strict reading of request bodies: bounded in size and time; errors are one line that repeats nothing of the user's text."""

import asyncio
import inspect
import re
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from qkv.serving.errors import ClientGone, RequestError, invalid
from qkv.serving.request_models import RequestBody, TranslateFileRequest, UploadedFile
from qkv.serving.settings import ServiceSettings

JSON, FORM, MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
PARAMETER = re.compile("[a-z][a-z_]{0,30}")
Body = TypeVar("Body", bound=RequestBody)


class StrictBodyRoute(APIRoute):
    """A route whose body the service reads and validates itself; FastAPI only describes it, by the type of `body`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        body = inspect.signature(self.endpoint).parameters.get("body")
        if body is None:
            return super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await self.endpoint(request, await request.app.state.service.read_body(request, body.annotation))

        return handle


def also_as_form(model: type[RequestBody]) -> dict[str, Any]:
    """Return the OpenAPI extra of an endpoint whose body may be a form too."""
    return {"requestBody": {"content": {FORM: {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}}}


async def read_bytes(request: Request, settings: ServiceSettings, most: int | None = None) -> bytes:
    """Return a request's body; raise if it arrives too slowly, or is larger than `most`, by default settings.body_bytes."""
    most = settings.body_bytes if most is None else most
    too_large = RequestError(413, "body_too_large", f"the body has more than {most:,} bytes; send less at a time")
    announced = request.headers.get("content-length", "0")
    if not announced.isdigit() or int(announced) > 16 * most:  # too much to read to the end
        raise too_large
    parts, size = [], 0
    try:
        async with asyncio.timeout(settings.body_seconds):
            async for part in request.stream():
                size += len(part)
                if size <= most:
                    parts.append(part)
                elif size > 16 * most:
                    raise too_large
    except ClientDisconnect:
        raise ClientGone from None
    except TimeoutError:
        raise RequestError(408, "body_too_slow", f"the body did not arrive within {settings.body_seconds:g} s") from None
    if size > most:
        raise too_large
    return b"".join(parts)


def parse_body(body: bytes, content_type: str, model: type[Body]) -> Body:
    """Validate a body; an error is one line that repeats nothing of the body but the names of known keys."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type != JSON and not (model.accepts_form and media_type == FORM):
        wanted = f"{JSON} or {FORM}" if model.accepts_form else JSON
        raise RequestError(415, "content_type", f"the content type must be {wanted}")
    try:
        if media_type == JSON:
            return model.model_validate_json(body, strict=True)
        fields: dict[str, Any] = {}
        text = body.decode("utf-8", "replace")
        if text.lstrip().startswith("{"):
            raise invalid(f"the body is JSON, and its content type {FORM}; send {JSON}", None, "invalid_request")
        for name, value in parse_qsl(text, keep_blank_values=True, max_num_fields=1000, errors="replace"):
            fields.setdefault(name, []).append(value)
        return model.model_validate({name: values[0] if len(values) == 1 else values for name, values in fields.items()})
    except ValidationError as error:
        raise _invalid_body(error, model) from None
    except ValueError:  # parse_qsl raises it for too many fields
        raise invalid("the form cannot be read; send fewer fields", None, "invalid_request") from None


async def read_upload_form(request: Request, settings: ServiceSettings) -> TranslateFileRequest:
    """Return the form of a request that uploads a file."""
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != MULTIPART:
        raise RequestError(415, "content_type", f"the content type must be {MULTIPART}")
    content = await read_bytes(request, settings, settings.file_bytes + settings.body_bytes)

    async def stream() -> AsyncGenerator[bytes, None]:
        yield content
        yield b""

    parser = MultiPartParser(Headers({"content-type": content_type}), stream(), max_files=1, max_fields=10)
    parser.spool_max_size = len(content) + 1  # no temporary file: the content is in memory anyway, and the disk may be full
    try:
        form, fields = await parser.parse(), dict[str, Any]()
        for name, value in form.multi_items():
            fields[name] = UploadedFile(value.filename or "", await value.read()) if isinstance(value, UploadFile) else value
        await form.close()
        given = fields.get("file")
        if not isinstance(given, UploadedFile):
            raise invalid("the form has no file; send one in the field file", "file", "invalid_request")
        if len(given.content) > settings.file_bytes:
            raise RequestError(413, "body_too_large", f"the file has more than {settings.file_bytes:,} bytes; split it", "file")
        return TranslateFileRequest.model_validate(fields)
    except (MultiPartException, ValueError) as error:
        if isinstance(error, ValidationError):
            raise _invalid_body(error, TranslateFileRequest) from None
        raise invalid("the form cannot be read; send one file and the fields of this path", None, "invalid_request") from None


def _invalid_body(error: ValidationError, model: type[RequestBody]) -> RequestError:
    """Return the error for a body that is not what a model wants."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    steps = [str(step) for step in first["loc"] if isinstance(step, int) or str(step) in model.model_fields]
    where = ".".join(steps) or None
    field = model.model_fields.get(str(first["loc"][0])) if first["loc"] else None
    if field is not None and field.description and first["type"] != "missing":  # it may be one of several types
        return invalid(f"{where} must be {field.description}", where, "invalid_request")
    return invalid(f"{where or 'the body'}: {_explain(first)}", where, "invalid_request")


def _explain(mistake: Any) -> str:
    if mistake["type"] == "extra_forbidden":
        name = str(mistake["loc"][-1])
        named = f" {name}" if PARAMETER.fullmatch(name) else ""  # anything else may be a user's text
        return f"unknown field{named}; leave it out"
    if mistake["type"] == "json_invalid":
        return "it is not valid JSON"
    message = str(mistake["msg"]).removeprefix("Value error, ")
    return message[:1].lower() + message[1:200]

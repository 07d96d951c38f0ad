"""LibreTranslate's API."""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse, JSONResponse

from qkv.serving import response_models
from qkv.serving.languages import language_name
from qkv.serving.registry import TRANSLATE
from qkv.serving.request_body import MULTIPART, StrictBodyRoute, also_as_form, read_upload_form
from qkv.serving.request_models import DetectRequest, TranslateFileRequest, TranslateRequest
from qkv.serving.response_models import ERRORS, FILE_ERRORS, ErrorResponse
from qkv.serving.routes import find_routes, languages_of, rank_languages
from qkv.serving.service import Service
from qkv.serving.translation import stream_translation, translate, translate_upload
from qkv.text.translatable import SUFFIXES

UPLOAD_SCHEMA = {
    "requestBody": {
        "required": True,
        "content": {MULTIPART: {"schema": TranslateFileRequest.model_json_schema()}},
    }
}


def libretranslate_router(service: Service) -> APIRouter:
    """Return the router of these endpoints."""
    router = APIRouter(tags=["LibreTranslate"], route_class=StrictBodyRoute)
    streamed: dict[int | str, dict[str, Any]] = {
        200: {"content": {"text/event-stream": {}}, "description": "The translations, or with stream the sentences of them."}
    }

    @router.post(
        "/translate",
        response_model=response_models.TranslateResponse,
        responses={**ERRORS, **streamed},
        openapi_extra=also_as_form(TranslateRequest),
    )
    async def post_translate(request: Request, body: TranslateRequest) -> Response:
        """Translate one or several texts, or HTML; with `stream`, sentence by sentence as server-sent events."""
        if body.stream:
            return await stream_translation(service, request, body)
        return JSONResponse(await translate(service, request, body))

    @router.post(
        "/translate_file",
        response_model=response_models.TranslateFileResponse,
        responses=FILE_ERRORS,
        openapi_extra=UPLOAD_SCHEMA,
    )
    async def translate_file(request: Request) -> JSONResponse:
        """Translate an uploaded document; the answer says where to fetch it."""
        body = await read_upload_form(request, service.settings)
        service.admit(request, body.api_key)
        found, name = await translate_upload(service, request, body)
        return JSONResponse({"translatedFileUrl": str(request.url_for("download_file", name=name)), **found})

    @router.get("/download_file/{name}", response_class=FileResponse, responses={404: {"model": ErrorResponse}})
    async def download_file(name: str) -> FileResponse:
        """Return a translated file."""
        path = service.downloads.path(name)
        return FileResponse(path, media_type="application/octet-stream", filename=name.partition(".")[2])

    @router.post(
        "/detect",
        response_model=list[response_models.DetectedLanguage],
        responses=ERRORS,
        openapi_extra=also_as_form(DetectRequest),
    )
    async def detect(request: Request, body: DetectRequest) -> JSONResponse:
        """Detect the language of a text among those of the models."""
        service.check_texts([body.q], "q")
        found = await service.prepare(request, lambda: rank_languages(service.models, body.q, list(_targets(service))))
        return JSONResponse([{"language": code, "confidence": round(confidence, 2)} for code, confidence in found])

    @router.get("/languages", response_model=list[response_models.LanguageInfo])
    async def languages() -> JSONResponse:
        """List the source languages, each with its target languages; some may take two models, with a pivot between them."""
        return JSONResponse(
            [{"code": code, "name": language_name(code), "targets": to} for code, to in _targets(service).items()]
        )

    @router.get("/frontend/settings", response_model=response_models.FrontendSettings)
    async def frontend_settings() -> JSONResponse:
        """Return the settings that a page for translation needs."""
        first = next(iter(service.models.all_with(TRANSLATE)), None)
        pair = None
        if first is not None:
            sides = zip(("source", "target"), languages_of(first), strict=True)
            pair = {side: {"code": code, "name": language_name(code)} for side, code in sides}
        return JSONResponse(
            {
                "apiKeys": bool(service.settings.keys),
                "charLimit": service.settings.characters,
                "filesTranslation": first is not None,
                "frontendTimeout": 500,
                "keyRequired": bool(service.settings.keys),
                "language": pair,
                "suggestions": False,
                "supportedFilesFormat": list(SUFFIXES) if first is not None else [],
            }
        )

    return router


def _targets(service: Service) -> dict[str, list[str]]:
    """Return the source languages, each with its target languages."""
    found: dict[str, list[str]] = {}
    for source, target in find_routes(service.models):
        found.setdefault(source, []).append(target)
    return found

"""LibreTranslate's API."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from qkv.base.errors import DataError
from qkv.serving import response_models
from qkv.serving.errors import invalid
from qkv.serving.handlers import TranslationHandler
from qkv.serving.languages import UNNAMED, detect_language, language_name
from qkv.serving.registry import TRANSLATE, ServedModel
from qkv.serving.request_body import StrictBodyRoute, also_as_form
from qkv.serving.request_models import DetectRequest, TranslateRequest
from qkv.serving.response_models import ERRORS
from qkv.serving.service import Service
from qkv.text.glossary import Glossary

AUTO = "auto"


def libretranslate_router(service: Service) -> APIRouter:
    """Return the router of these endpoints."""
    router = APIRouter(tags=["LibreTranslate"], route_class=StrictBodyRoute)

    @router.post(
        "/translate",
        response_model=response_models.TranslateResponse,
        responses=ERRORS,
        openapi_extra=also_as_form(TranslateRequest),
    )
    async def translate(request: Request, body: TranslateRequest) -> JSONResponse:
        """Translate one or several texts."""
        return JSONResponse(await _translate(service, request, body))

    @router.post(
        "/detect",
        response_model=list[response_models.DetectedLanguage],
        responses=ERRORS,
        openapi_extra=also_as_form(DetectRequest),
    )
    async def detect(request: Request, body: DetectRequest) -> JSONResponse:
        """Detect the language of a text among the source languages, by its script."""
        service.check_texts([body.q], "q")
        found = detect_language(body.q, list(_targets(service)))
        return JSONResponse([{"language": code, "confidence": confidence} for code, confidence in found])

    @router.get("/languages", response_model=list[response_models.LanguageInfo])
    async def languages() -> JSONResponse:
        """List the source languages, each with its target languages."""
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
                "filesTranslation": False,
                "frontendTimeout": 500,
                "keyRequired": bool(service.settings.keys),
                "language": pair,
                "suggestions": False,
                "supportedFilesFormat": [],
            }
        )

    return router


async def _translate(service: Service, request: Request, body: TranslateRequest) -> dict[str, Any]:
    single = isinstance(body.q, str)
    texts = [body.q] if isinstance(body.q, str) else body.q
    service.check_texts(texts, "q")
    if body.alternatives > service.settings.alternatives:
        most = service.settings.alternatives
        raise invalid(f"{body.alternatives} alternatives; ask for {most} at most", "alternatives", "too_many_alternatives")
    model = _choose(service, body, " ".join(texts))
    if body.confidence and not model.handler.has_confidence:
        raise invalid(f"{model.name} has no calibration of confidence; leave confidence out", "confidence", "no_confidence")
    try:
        glossary = Glossary(body.glossary) if body.glossary else None
    except DataError:  # its message repeats the term
        raise invalid(
            "the glossary has a term that is empty, there twice, or with a * or = in a wrong place",
            "glossary",
            "invalid_glossary",
        ) from None
    outputs = await service.answer(request, model, lambda: model.handler.translate(texts, body.alternatives, glossary, body.soft))

    def shaped(values: list[Any]) -> Any:
        return values[0] if single else values

    response: dict[str, Any] = {"translatedText": shaped([best.text for best, *_ in outputs])}
    if body.source == AUTO:
        code = languages_of(model)[0]
        confidences = [dict(detect_language(text, [code]))[code] for text in texts]
        response["detectedLanguage"] = shaped([{"language": code, "confidence": one} for one in confidences])
    if body.alternatives:
        response["alternatives"] = shaped([[output.text for output in each[1:]] for each in outputs])
        response["scores"] = shaped([[output.score for output in each] for each in outputs])
    if body.confidence:
        response["confidences"] = shaped(await service.answer(request, model, lambda: model.handler.confidences(outputs)))
    if glossary is not None:
        response["missingTerms"] = shaped([[term.source for term in best.missing_terms] for best, *_ in outputs])
    return response


def languages_of(model: ServedModel[TranslationHandler]) -> tuple[str, str]:
    """Return a model's source and target language; a run may leave them unnamed."""
    return model.handler.languages or UNNAMED


def _choose(service: Service, body: TranslateRequest, text: str) -> ServedModel[TranslationHandler]:
    """Return the translator for a request's model and languages; detect the source language where that is needed."""
    able = service.models.all_with(TRANSLATE)
    if body.model is not None or not able:
        able = [service.models.find(body.model, TRANSLATE)]
    source = None if body.source == AUTO else body.source
    chosen = [m for m in able if source in (None, languages_of(m)[0]) and body.target in (None, languages_of(m)[1])]
    if not chosen:
        raise invalid(
            "no model here translates between these languages; GET /languages lists those there are", "target", "languages"
        )
    codes = list(dict.fromkeys(languages_of(model)[0] for model in chosen))
    if len(codes) > 1:
        best, second = detect_language(text, codes)[:2]
        if best[1] == second[1]:
            raise invalid("the script does not tell the language; name it in source", "source", "languages")
        chosen = [model for model in chosen if languages_of(model)[0] == best[0]]
    return chosen[0]


def _targets(service: Service) -> dict[str, list[str]]:
    """Return the source languages, each with its target languages."""
    found: dict[str, list[str]] = {}
    for model in service.models.all_with(TRANSLATE):
        source, target = languages_of(model)
        found.setdefault(source, [])
        if target not in found[source]:
            found[source].append(target)
    return found

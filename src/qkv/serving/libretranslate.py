"""LibreTranslate's API: what its clients ask of a translator."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from qkv.serving import answers
from qkv.serving.asks import DetectAsk, TranslateAsk
from qkv.serving.documents import problems, takes
from qkv.serving.languages import UNKNOWN, detect, name_of
from qkv.serving.models import Model
from qkv.serving.refusals import wrong
from qkv.serving.service import Service
from qkv.serving.works import TranslatorWork

AUTO = "auto"


def libretranslate(service: Service) -> APIRouter:
    """The endpoints."""
    router = APIRouter(tags=["LibreTranslate"])

    @router.post("/translate", response_model=answers.Translated, responses=problems(), openapi_extra=takes(TranslateAsk, True))
    async def translate(request: Request) -> JSONResponse:
        """Translate a text or several."""
        ask = await service.read(request, TranslateAsk, form=True)
        return JSONResponse(await _translate(service, request, ask))

    @router.post("/detect", response_model=list[answers.Detected], responses=problems(), openapi_extra=takes(DetectAsk, True))
    async def detect_language(request: Request) -> JSONResponse:
        """Tell which of the languages that can be translated from a text may be in, by how it is written."""
        ask = await service.read(request, DetectAsk, form=True)
        service.check_texts([ask.q], "q")
        found = detect(ask.q, list(_pairs(service)))
        return JSONResponse([{"language": code, "confidence": confidence} for code, confidence in found])

    @router.get("/languages", response_model=list[answers.Language])
    async def languages() -> JSONResponse:
        """Languages that can be translated from, and into which."""
        return JSONResponse([{"code": code, "name": name_of(code), "targets": to} for code, to in _pairs(service).items()])

    @router.get("/frontend/settings", response_model=answers.FrontendSettings)
    async def frontend_settings() -> JSONResponse:
        """What a page that translates must know."""
        return JSONResponse(_frontend(service))

    return router


async def _translate(service: Service, request: Request, ask: TranslateAsk) -> dict[str, Any]:
    texts = [ask.q] if isinstance(ask.q, str) else ask.q
    service.check_texts(texts, "q")
    if ask.alternatives > service.settings.alternatives:
        most = service.settings.alternatives
        raise wrong(f"{ask.alternatives} alternatives; ask for {most} at most", "alternatives", "too_many_alternatives")
    model = _choose(service, ask, " ".join(texts))
    work = model.work
    assert isinstance(work, TranslatorWork)
    found = await service.answer(request, model, lambda: work.translate(texts, ask.alternatives))
    single = isinstance(ask.q, str)

    def shaped(values: list[Any]) -> Any:
        return values[0] if single else values

    told: dict[str, Any] = {"translatedText": shaped([outputs[0].text for outputs in found])}
    if ask.source == AUTO:
        code = languages_of(model)[0]
        likely = [dict(detect(text, [code])) for text in texts]
        told["detectedLanguage"] = shaped([{"language": code, "confidence": one[code]} for one in likely])
    if ask.alternatives:
        told["alternatives"] = shaped([[output.text for output in outputs[1:]] for outputs in found])
        told["scores"] = shaped([[output.score for output in outputs] for outputs in found])
    return told


def languages_of(model: Model) -> tuple[str, str]:
    """From which language into which a model translates; a run need not have named them."""
    return model.languages or UNKNOWN


def _choose(service: Service, ask: TranslateAsk, text: str) -> Model:
    """The translator that a request means."""
    able = service.models.translators() if ask.model is None else [service.models.find(ask.model, "translate")]
    if not able:
        return service.models.find(None, "translate")
    source = None if ask.source == AUTO else ask.source
    chosen = [m for m in able if source in (None, languages_of(m)[0]) and ask.target in (None, languages_of(m)[1])]
    if not chosen:
        raise wrong(
            "no model here translates between these languages; GET /languages lists those there are", "target", "languages"
        )
    codes = list(dict.fromkeys(languages_of(model)[0] for model in chosen))
    if len(codes) > 1:
        best, second = detect(text, codes)[:2]
        if best[1] == second[1]:
            raise wrong("the writing does not tell the language; name it in source", "source", "languages")
        chosen = [model for model in chosen if languages_of(model)[0] == best[0]]
    return chosen[0]


def _pairs(service: Service) -> dict[str, list[str]]:
    """The languages that can be translated from, each with those that it can be translated into."""
    found: dict[str, list[str]] = {}
    for model in service.models.translators():
        source, target = languages_of(model)
        found.setdefault(source, [])
        if target not in found[source]:
            found[source].append(target)
    return found


def _frontend(service: Service) -> dict[str, Any]:
    translators = service.models.translators()
    codes = languages_of(translators[0]) if translators else None
    pair = codes and {side: {"code": code, "name": name_of(code)} for side, code in zip(("source", "target"), codes, strict=True)}
    return {
        "apiKeys": bool(service.settings.keys),
        "charLimit": service.settings.characters,
        "filesTranslation": False,
        "frontendTimeout": 500,
        "keyRequired": bool(service.settings.keys),
        "language": pair,
        "suggestions": False,
        "supportedFilesFormat": [],
    }

"""Translation of the texts and documents of a request, along a route of one or two models."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import Request, Response

from qkv.base.errors import DataError
from qkv.inference.segmenter import TranslatedPart, TranslatedText
from qkv.serving.batching import OutputPlace, PreparedRequest
from qkv.serving.documents import DocumentOptions, read_html, read_upload, translate_documents
from qkv.serving.errors import invalid
from qkv.serving.request_models import TranslateFileRequest, TranslateRequest
from qkv.serving.routes import TranslationRoute, choose_route, find_routes, is_auto, rank_languages
from qkv.serving.service import Service
from qkv.serving.streaming import EventStreamResponse, RequestStream
from qkv.text.glossary import Glossary
from qkv.text.translatable import SUFFIXES

Outputs = list[list[TranslatedText]]


async def translate(service: Service, request: Request, body: TranslateRequest) -> dict[str, Any]:
    """Return the translations of a request's texts."""
    texts, route, glossary = await service.prepare(request, lambda: _check(service, body))
    if body.format == "html":
        return await _translate_html(service, request, body, route, glossary)
    model, read = route.models[-1], await _first_leg(service, request, route, texts)
    outputs = await service.answer(request, model, lambda: model.handler.translate(read, body.alternatives, glossary, body.soft))
    response = await service.prepare(request, lambda: _response(service, body, route, outputs, glossary))
    if body.confidence:
        confidences = await service.answer(request, model, lambda: model.handler.confidences(outputs))
        response["confidences"] = _shaped(body, confidences)
    return response


async def stream_translation(service: Service, request: Request, body: TranslateRequest) -> Response:
    """Return the translations of a request's texts sentence by sentence, then the whole answer."""
    if body.format == "html" or body.confidence:
        raise invalid("only plain texts without confidence are streamed; leave stream out", "stream", "unsupported")
    texts, route, glossary = await service.prepare(request, lambda: _check(service, body))
    model, read = route.models[-1], await _first_leg(service, request, route, texts)
    stream = RequestStream(service, request, model)
    prepared = await stream.start(lambda: model.handler.translate(read, body.alternatives, glossary, body.soft), by_item=True)

    async def events() -> AsyncIterator[list[Any]]:
        async for index, piece in _in_order(stream, prepared):
            yield [{"index": index, "text": piece}]
        results = await stream.results()
        whole = await service.prepare(request, lambda: _response(service, body, route, prepared.answer(results), glossary))
        yield [whole, "[DONE]"]

    return EventStreamResponse(request, events(), stream.close)


async def translate_upload(service: Service, request: Request, body: TranslateFileRequest) -> tuple[dict[str, Any], str]:
    """Translate an uploaded file; return the facts for the answer, and its name for the download."""
    name, content = Path(body.file.name), body.file.content
    if name.suffix.lower() not in SUFFIXES:
        raise invalid(f"the file's name must end in one of {' '.join(SUFFIXES)}", "file", "unsupported_format")
    file_format = SUFFIXES[name.suffix.lower()]
    sample = content[:4000].decode("utf-8", "replace") if file_format != "docx" else ""
    route = await service.prepare(request, lambda: choose_route(service.models, body.model, body.source, body.target, sample))
    options, read = DocumentOptions(glossary=_read_glossary(body.glossary, route)), partial(read_upload, file_format)
    (document,) = await translate_documents(service, request, route, [content], read, options)
    stem = f"{name.stem}_{route.languages[1]}" if route.languages else name.stem
    facts = {"translated": document.translated, "left": document.left, **({"pivot": route.pivot} if route.pivot else {})}
    return facts, await service.prepare(request, lambda: service.downloads.save(document.contents[0], stem, name.suffix))


def _check(service: Service, body: TranslateRequest) -> tuple[list[str], TranslationRoute, Glossary | None]:
    """Check a request; return its texts, its route and its glossary."""
    texts = [body.q] if isinstance(body.q, str) else body.q
    service.check_texts(texts, "q")
    if body.alternatives > service.settings.alternatives:
        most = service.settings.alternatives
        raise invalid(f"{body.alternatives} alternatives; ask for {most} at most", "alternatives", "too_many_alternatives")
    route = choose_route(service.models, body.model, body.source, body.target, " ".join(texts))
    last = route.models[-1]
    if body.confidence and (route.pivot or body.format == "html" or not last.handler.has_confidence):
        why = (
            "has no calibration of confidence" if not last.handler.has_confidence else "gives it to plain texts, without a pivot"
        )
        raise invalid(f"{last.name} {why}; leave confidence out", "confidence", "no_confidence")
    return texts, route, _read_glossary(body.glossary, route)


def _read_glossary(terms: dict[str, Any] | None, route: TranslationRoute) -> Glossary | None:
    """Return the glossary of a request."""
    if not terms:
        return None
    if route.pivot:
        raise invalid(f"no model translates directly, as a glossary needs; {route.pivot} is between", "glossary", "unsupported")
    try:
        return Glossary(terms)
    except DataError:  # its message repeats the term
        raise invalid(
            "the glossary has a term that is empty, there twice, or with a * or = in a wrong place",
            "glossary",
            "invalid_glossary",
        ) from None


async def _first_leg(service: Service, request: Request, route: TranslationRoute, texts: list[str]) -> list[str]:
    """Return the texts that the last model of a route reads."""
    for model in route.models[:-1]:
        outputs: Outputs = await service.answer(request, model, lambda: model.handler.translate(texts, 0))  # noqa: B023
        texts = [best.text for best, *_ in outputs]
    return texts


async def _translate_html(
    service: Service, request: Request, body: TranslateRequest, route: TranslationRoute, glossary: Glossary | None
) -> dict[str, Any]:
    """Translate each text as a page, or a part of one: tags stay around the right words."""
    pages = [text.encode() for text in ([body.q] if isinstance(body.q, str) else body.q)]
    options = DocumentOptions(body.alternatives, glossary, body.soft)
    found: Outputs = []
    for document in await translate_documents(service, request, route, pages, read_html, options):
        missing = tuple(term for best, *_ in document.outputs for term in best.missing_terms)
        ranked = enumerate(document.contents)
        scores = [
            sum(each[min(rank, len(each) - 1)].score for each in document.outputs) for rank in range(len(document.contents))
        ]
        found.append([TranslatedText(page.decode(), scores[rank], missing_terms=missing) for rank, page in ranked])
    return await service.prepare(request, lambda: _response(service, body, route, found, glossary))


def _response(
    service: Service, body: TranslateRequest, route: TranslationRoute, outputs: Outputs, glossary: Glossary | None
) -> dict[str, Any]:
    response: dict[str, Any] = {"translatedText": _shaped(body, [best.text for best, *_ in outputs])}
    if is_auto(body.source):
        texts = [body.q] if isinstance(body.q, str) else body.q
        codes = list(dict.fromkeys([route.source, *(code for code, _ in find_routes(service.models))]))
        confidences = [round(dict(rank_languages(service.models, text, codes))[route.source], 2) for text in texts]
        response["detectedLanguage"] = _shaped(body, [{"language": route.source, "confidence": one} for one in confidences])
    if body.alternatives:
        response["alternatives"] = _shaped(body, [[output.text for output in each[1:]] for each in outputs])
        response["scores"] = _shaped(body, [[output.score for output in each] for each in outputs])
    if glossary is not None:
        response["missingTerms"] = _shaped(body, [[term.source for term in best.missing_terms] for best, *_ in outputs])
    if route.pivot is not None:
        response["pivot"] = route.pivot
    return response


def _shaped(body: TranslateRequest, values: list[Any]) -> Any:
    """Return one value for a request of one text, else all."""
    return values[0] if isinstance(body.q, str) else values


async def _in_order(stream: RequestStream, prepared: PreparedRequest) -> AsyncIterator[tuple[int, str]]:
    """Return the index of a text and the next piece of its translation, in the order of the texts."""
    done: dict[int, str] = {}
    following = 0
    async for new in stream.received():
        for index, translations in new:
            best: TranslatedPart = translations[0]
            place: OutputPlace = prepared.places[index]
            done[index] = f"{place.before}{best.text}{place.after}"
        while following in done:
            yield prepared.places[following].text, done.pop(following)
            following += 1

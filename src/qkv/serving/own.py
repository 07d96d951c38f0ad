"""Endpoints of our own: hidden words, predictions, neighbours of words, and what there is to ask."""

import math
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from qkv.serving import answers
from qkv.serving.asks import FillAsk, LookAsk, MapAsk, NeighboursAsk, PredictAsk
from qkv.serving.documents import problems, takes
from qkv.serving.looks import Looking
from qkv.serving.models import Model
from qkv.serving.refusals import Refusal
from qkv.serving.service import JSON, Service
from qkv.serving.works import ReaderWork, VectorsWork


def own(service: Service) -> APIRouter:
    """The endpoints."""
    router = APIRouter(tags=["qkv"])

    @router.get("/models", response_model=list[answers.ModelInfo], responses=problems())
    async def models(request: Request) -> JSONResponse:
        """Models that can be asked, and what each can do."""
        service.admit(request)
        return JSONResponse([_told(model) for model in service.models.all])

    @router.post("/fill", response_model=answers.Filled, responses=problems(), openapi_extra=takes(FillAsk))
    async def fill(request: Request) -> JSONResponse:
        """For each [MASK] in a text the likeliest words."""
        ask = await service.read(request, FillAsk)
        service.check_texts([ask.text], "text")
        model = service.models.find(ask.model, "fill")
        work = model.work
        assert isinstance(work, ReaderWork)
        found = await service.answer(request, model, lambda: work.fill(ask.text, ask.top))
        return JSONResponse({"masks": [[{"word": g.word, "probability": g.probability} for g in mask] for mask in found]})

    @router.post("/predict", response_model=answers.Predicted, responses=problems(), openapi_extra=takes(PredictAsk))
    async def predict(request: Request) -> JSONResponse:
        """What a fine-tuned model says of each text."""
        ask = await service.read(request, PredictAsk)
        service.check_texts([one if isinstance(one, str) else " ".join(one) for one in ask.texts], "texts")
        model = service.models.find(ask.model, "predict")
        work = model.work
        assert isinstance(work, ReaderWork)
        found = await service.answer(request, model, lambda: work.predict(ask.texts))
        return JSONResponse({"model": model.name, "predictions": [_finite(one) for one in found]})

    @router.post("/look", response_model=answers.Looked, responses=problems(), openapi_extra=takes(LookAsk))
    async def look(request: Request) -> Response:
        """What a model's attention does with a text: as `qkv look` shows it."""
        ask = await service.read(request, LookAsk)
        service.check_texts([ask.text, ask.target or ""], "text")
        model = service.models.find(ask.model, "look")
        work = model.work
        assert isinstance(work, Looking)
        most = service.settings.look_tokens
        heads = (ask.heads, ask.target_heads)
        found = await service.answer(request, model, lambda: work.look(ask.text, ask.target, most, heads))
        return Response(found, media_type=JSON)

    _of_words(router, service)
    return router


def _of_words(router: APIRouter, service: Service) -> None:
    @router.post("/neighbours", response_model=answers.Neighbours, responses=problems(), openapi_extra=takes(NeighboursAsk))
    async def neighbours(request: Request) -> JSONResponse:
        """The words whose vectors are nearest to a word's."""
        ask = await service.read(request, NeighboursAsk)
        service.check_texts([ask.word], "word")
        model = service.models.find(ask.model, "neighbours")
        work = model.work
        assert isinstance(work, VectorsWork)
        found = await service.answer(request, model, lambda: work.neighbours(ask.word, ask.top))
        return JSONResponse({"neighbours": [{"word": word, "similarity": value} for word, value in found]})

    @router.post("/map", response_model=answers.Mapped, responses=problems(), openapi_extra=takes(MapAsk))
    async def map_words(request: Request) -> JSONResponse:
        """Points of words in the plane in which their vectors differ the most; words without a vector are named."""
        ask = await service.read(request, MapAsk)
        service.check_texts(ask.words, "words")
        model = service.models.find(ask.model, "map")
        work = model.work
        assert isinstance(work, VectorsWork)
        points, missing = await service.answer(request, model, lambda: work.map(ask.words))
        return JSONResponse({"points": [{"word": word, "x": x, "y": y} for word, x, y in points], "missing": missing})


def seen_from_outside(service: Service) -> APIRouter:
    """Whether the service lives, whether it takes requests, and what it counts."""
    router = APIRouter(tags=["operation"])

    @router.get("/healthz", response_model=answers.Health, responses={503: {"model": answers.Problem}})
    async def healthz() -> JSONResponse:
        """Whether the service lives: every model's worker does."""
        dead = [name for name, worker in service.workers.items() if not worker.alive]
        if dead and not service.stopping:
            raise Refusal(503, "worker_ended", f"nobody computes for {', '.join(dead)} any more; start the service again")
        return JSONResponse({"status": "ok"})

    @router.get("/readyz", response_model=answers.Health, responses={503: {"model": answers.Problem}})
    async def readyz() -> JSONResponse:
        """Whether the service takes requests."""
        if service.stopping:
            raise Refusal(503, "stopping", "the service is stopping", retry_after=5)
        return JSONResponse({"status": "ready"})

    @router.get("/metrics", response_class=PlainTextResponse, responses=problems())
    async def metrics(request: Request) -> PlainTextResponse:
        """Counts for Prometheus."""
        service.admit(request)
        queues = {name: (worker.inside, worker.waiting) for name, worker in service.workers.items()}
        return PlainTextResponse(service.metrics.text(queues), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def _told(model: Model) -> dict[str, Any]:
    languages = None if model.languages is None else list(model.languages)
    takes = model.work.takes if isinstance(model.work, ReaderWork) else None
    trees = isinstance(model.work, Looking) and model.work.loaded.trees
    told = {"id": model.name, "kind": model.kind, "can": model.can, "languages": languages, "takes": takes}
    return {**told, "trees": trees, "parameters": model.parameters}


def _finite(prediction: dict[str, Any]) -> dict[str, Any]:
    """A prediction without numbers that JSON cannot say."""
    return {name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in prediction.items()}

"""qkv's own endpoints: masked words, predictions, attention, neighbours of words, and the list of models."""

import functools
import math

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from qkv.serving import response_models
from qkv.serving.model_info import model_info
from qkv.serving.registry import FILL, LOOK, MAP, NEIGHBOURS, PREDICT
from qkv.serving.request_body import JSON, StrictBodyRoute
from qkv.serving.request_models import FillRequest, LookRequest, MapRequest, NeighboursRequest, PredictRequest
from qkv.serving.response_models import ERRORS
from qkv.serving.service import Service


def native_router(service: Service) -> APIRouter:
    """Return the router of these endpoints."""
    router = APIRouter(tags=["qkv"], route_class=StrictBodyRoute)
    infos = functools.cache(lambda: [model_info(model) for model in service.models.all])

    @router.get("/models", response_model=list[response_models.ModelInfo], responses=ERRORS)
    async def models(request: Request) -> JSONResponse:
        """List the models: what each is and can do, how good it is, and texts to try it with."""
        service.admit(request)
        return JSONResponse(infos())

    @router.post("/fill", response_model=response_models.FillResponse, responses=ERRORS)
    async def fill(request: Request, body: FillRequest) -> JSONResponse:
        """Predict the most probable words for each [MASK] in a text."""
        service.check_texts([body.text], "text")
        model = service.models.find(body.model, FILL)
        found = await service.answer(request, model, lambda: model.handler.fill(body.text, body.top))
        return JSONResponse({"masks": [[{"word": g.word, "probability": g.probability} for g in mask] for mask in found]})

    @router.post("/predict", response_model=response_models.PredictResponse, responses=ERRORS)
    async def predict(request: Request, body: PredictRequest) -> JSONResponse:
        """Predict a label, tags, an answer or a number for each text, with a fine-tuned model."""
        service.check_texts([one if isinstance(one, str) else " ".join(one) for one in body.texts], "texts")
        model = service.models.find(body.model, PREDICT)
        found = await service.answer(request, model, lambda: model.handler.predict(body.texts))
        # JSON has no NaN and no infinity.
        finite = [
            {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in one.items()}
            for one in found
        ]
        return JSONResponse({"model": model.name, "predictions": finite})

    @router.post("/look", response_model=response_models.LookResponse, responses=ERRORS)
    async def look(request: Request, body: LookRequest) -> Response:
        """Return a model's attention to a text, which `qkv look` shows as a page."""
        service.check_texts([body.text, body.target or ""], "text")
        model, most = service.models.find(body.model, LOOK), service.settings.look_tokens
        found = await service.answer(request, model, lambda: model.handler.look(model.handler.read_text(body, most)))
        return Response(found, media_type=JSON)

    @router.post("/neighbours", response_model=response_models.NeighboursResponse, responses=ERRORS)
    async def neighbours(request: Request, body: NeighboursRequest) -> JSONResponse:
        """Return the words whose vectors are nearest to a word's."""
        service.check_texts([body.word], "word")
        model = service.models.find(body.model, NEIGHBOURS)
        found = await service.answer(request, model, lambda: model.handler.neighbours(body.word, body.top))
        return JSONResponse({"neighbours": [{"word": word, "similarity": value} for word, value in found]})

    @router.post("/map", response_model=response_models.MapResponse, responses=ERRORS)
    async def map_words(request: Request, body: MapRequest) -> JSONResponse:
        """Place words in a plane by the first two principal components of their vectors; list the words without a vector."""
        service.check_texts(body.words, "words")
        model = service.models.find(body.model, MAP)
        points, missing = await service.answer(request, model, lambda: model.handler.map(body.words))
        return JSONResponse({"points": [{"word": word, "x": x, "y": y} for word, x, y in points], "missing": missing})

    return router

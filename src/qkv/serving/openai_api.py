"""OpenAI's API: embeddings from encoders, completions from GPTs and T5s."""

import base64
import time
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from qkv.serving import response_models
from qkv.serving.completions import Completion, as_list
from qkv.serving.errors import invalid
from qkv.serving.json_answer import write_with_list
from qkv.serving.registry import COMPLETE, EMBED, ServedModel
from qkv.serving.request_body import JSON, StrictBodyRoute
from qkv.serving.request_models import CompletionRequest, EmbeddingsRequest
from qkv.serving.response_models import OPENAI_ERRORS
from qkv.serving.service import Service

STARTED = int(time.time())


def openai_router(service: Service) -> APIRouter:
    """Return the router of these endpoints."""
    router = APIRouter(prefix="/v1", tags=["OpenAI"], route_class=StrictBodyRoute)

    @router.get("/models", response_model=response_models.OpenAIModelList, responses=OPENAI_ERRORS)
    async def models(request: Request) -> JSONResponse:
        """List the models."""
        service.admit(request)
        return JSONResponse({"object": "list", "data": [_model_info(model) for model in service.models.all]})

    @router.get("/models/{name}", response_model=response_models.OpenAIModel, responses=OPENAI_ERRORS)
    async def model(request: Request, name: str) -> JSONResponse:
        """Return a model by its name."""
        service.admit(request)
        return JSONResponse(_model_info(service.models.named(name)))

    @router.post("/embeddings", response_model=response_models.EmbeddingsResponse, responses=OPENAI_ERRORS)
    async def embeddings(request: Request, body: EmbeddingsRequest) -> Response:
        """Embed each text."""
        return Response(await _embeddings(service, request, body), media_type=JSON)

    streamed: dict[int | str, dict[str, Any]] = {
        200: {"content": {"text/event-stream": {}}, "description": "The texts, or with stream the pieces of them."}
    }

    @router.post("/completions", response_model=response_models.CompletionResponse, responses={**OPENAI_ERRORS, **streamed})
    async def completions(request: Request, body: CompletionRequest) -> Response:
        """Continue each text, or fill in what stands between it and `suffix`; with `stream`, piece by piece."""
        completion = Completion(service, request, body, service.models.find(body.model, COMPLETE))
        return await (completion.stream() if body.stream else completion.answer())

    return router


def _model_info(model: ServedModel[Any]) -> dict[str, Any]:
    return {"id": model.name, "object": "model", "created": STARTED, "owned_by": "qkv"}


async def _embeddings(service: Service, request: Request, body: EmbeddingsRequest) -> bytes:
    texts = as_list(body.input)
    service.check_texts(texts, "input")
    model = service.models.find(body.model, EMBED)
    width = model.handler.encoder.model.encoder.config.width
    if body.dimensions is not None and body.dimensions > width:
        raise invalid(f"the vectors of {model.name} have {width} dimensions; ask for fewer or leave it out", "dimensions")
    found = await service.answer(request, model, lambda: model.handler.embed(texts))

    def encoded(vector: np.ndarray) -> Any:
        if body.dimensions is not None:  # the first ones, of length 1 again
            vector = vector[: body.dimensions]
            vector = vector / max(float(np.linalg.norm(vector)), 1e-12)
        if body.encoding_format == "base64":
            return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()
        return vector.tolist()

    tokens = sum(length for _, length in found)
    fields = {"object": "list", "model": model.name, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
    data = ({"object": "embedding", "index": index, "embedding": encoded(vector)} for index, (vector, _) in enumerate(found))
    return await service.prepare(request, lambda: write_with_list(fields, "data", data))

"""OpenAI's API: embeddings from encoders, completions from GPTs."""

import base64
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from qkv.inference.text_generator import GeneratedText, Prompt
from qkv.serving import response_models
from qkv.serving.batching import PreparedRequest
from qkv.serving.errors import invalid
from qkv.serving.handlers import GenerationHandler
from qkv.serving.registry import COMPLETE, EMBED, ServedModel
from qkv.serving.request_body import StrictBodyRoute
from qkv.serving.request_models import CompletionRequest, EmbeddingsRequest
from qkv.serving.response_models import OPENAI_ERRORS
from qkv.serving.service import Service
from qkv.serving.streaming import CompletionStream, EventStreamResponse

GREEDY_BELOW = 0.01  # temperature below which the most probable token is taken
STARTED = int(time.time())
DEFAULT_TOKENS = 16  # that OpenAI generates where max_tokens is null

ServedGpt = ServedModel[GenerationHandler]


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
    async def embeddings(request: Request, body: EmbeddingsRequest) -> JSONResponse:
        """Embed each text."""
        return JSONResponse(await _embeddings(service, request, body))

    streamed: dict[int | str, dict[str, Any]] = {
        200: {"content": {"text/event-stream": {}}, "description": "The texts, or with stream the pieces of them."}
    }

    @router.post("/completions", response_model=response_models.CompletionResponse, responses={**OPENAI_ERRORS, **streamed})
    async def completions(request: Request, body: CompletionRequest) -> Response:
        """Continue each text; with `stream`, piece by piece as server-sent events."""
        gpt = service.models.find(body.model, COMPLETE)
        texts = _prompt_texts(service, body)
        return await (_stream if body.stream else _complete)(service, request, body, gpt, texts)

    return router


def _model_info(model: ServedModel[Any]) -> dict[str, Any]:
    return {"id": model.name, "object": "model", "created": STARTED, "owned_by": "qkv"}


async def _embeddings(service: Service, request: Request, body: EmbeddingsRequest) -> dict[str, Any]:
    texts = [body.input] if isinstance(body.input, str) else body.input
    service.check_texts(texts, "input")
    model = service.models.find(body.model, EMBED)
    width = model.handler.encoder.model.encoder.config.width
    if body.dimensions not in (None, width):
        raise invalid(f"the vectors of {model.name} have {width} dimensions; ask for these or leave it out", "dimensions")
    found = await service.answer(request, model, lambda: model.handler.embed(texts))

    def encoded(vector: np.ndarray) -> Any:
        if body.encoding_format == "base64":
            return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()
        return vector.tolist()

    data = [{"object": "embedding", "index": index, "embedding": encoded(vector)} for index, (vector, _) in enumerate(found)]
    tokens = sum(length for _, length in found)
    return {"object": "list", "model": model.name, "data": data, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


def _prompt_texts(service: Service, body: CompletionRequest) -> list[str]:
    """Check a request's limits, and return the prompt of each choice."""
    given = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    service.check_texts(given, "prompt")
    if (body.max_tokens or 0) > service.settings.new_tokens:
        most = service.settings.new_tokens
        raise invalid(f"{body.max_tokens:,} tokens; ask for {most:,} at most", "max_tokens", "too_many_tokens")
    texts = [text for text in given for _ in range(body.n or 1)]
    if len(texts) > service.settings.texts:
        raise invalid(f"{len(texts):,} texts to generate; ask for {service.settings.texts:,} at most", "n", "too_many_texts")
    return texts


async def _complete(service: Service, request: Request, body: CompletionRequest, gpt: ServedGpt, texts: list[str]) -> Response:
    most = service.settings.new_tokens
    found: list[GeneratedText] = await service.answer(request, gpt, lambda: _prepare(gpt, body, texts, most))
    choices = [
        _choice(index, (text if body.echo else "") + one.text, one)
        for index, (text, one) in enumerate(zip(texts, found, strict=True))
    ]
    return JSONResponse({**_completion(gpt), "choices": choices, "usage": _usage(gpt, body, texts, found)})


async def _stream(service: Service, request: Request, body: CompletionRequest, gpt: ServedGpt, texts: list[str]) -> Response:
    stream = CompletionStream(service, request, gpt)
    await stream.start(lambda: _prepare(gpt, body, texts, service.settings.new_tokens, stream))
    return EventStreamResponse(request, _events(stream, gpt, body, texts), stream.close)


async def _events(stream: CompletionStream, gpt: ServedGpt, body: CompletionRequest, texts: Sequence[str]) -> AsyncIterator[Any]:
    """Return the pieces of all texts as they are generated, then the reason why each ended."""
    completion = _completion(gpt)
    if body.echo:
        for index, text in enumerate(texts):
            yield {**completion, "choices": [_choice(index, text)]}
    async for index, text in stream.pieces():
        yield {**completion, "choices": [_choice(index, text)]}
    found: list[GeneratedText] = await stream.results()
    for index, one in enumerate(found):
        yield {**completion, "choices": [_choice(index, "", one)]}
    if body.stream_options and body.stream_options.include_usage:
        yield {**completion, "choices": [], "usage": _usage(gpt, body, texts, found)}
    yield "[DONE]"


def _prepare(
    gpt: ServedGpt, body: CompletionRequest, texts: Sequence[str], most: int, stream: CompletionStream | None = None
) -> PreparedRequest:
    """Prepare a prompt for each choice; without a seed, each choice samples from a random stream of its own."""
    generator = gpt.handler.generator
    temperature = 1.0 if body.temperature is None else body.temperature
    options: dict[str, Any] = {}
    if temperature >= GREEDY_BELOW:
        options = {"sampling": True, "temperature": temperature, "top_p": body.top_p or 1.0, "top_k": body.top_k or 0}
        options["seed"] = (body.seed or 0) % 2**64
    prompts = []
    for index, text in enumerate(texts):
        number = secrets.randbits(48) if body.seed is None else index
        callback = stream.callback(index) if stream else None
        ids = generator.prompt(text)
        prompts.append(Prompt(ids, number, body.stop_strings, callback, body.max_tokens or DEFAULT_TOKENS))
    return gpt.handler.complete(prompts, generator.decoding(most, **options))


def _completion(gpt: ServedGpt) -> dict[str, Any]:
    """Return the fields that every part of a completion repeats."""
    return {"id": f"cmpl-{secrets.token_hex(12)}", "object": "text_completion", "created": int(time.time()), "model": gpt.name}


def _choice(index: int, text: str, generated: GeneratedText | None = None) -> dict[str, Any]:
    """Return a choice, with the reason why it ended if it is complete."""
    reason = None if generated is None else "stop" if generated.ended else "length"
    return {"index": index, "text": text, "logprobs": None, "finish_reason": reason}


def _usage(gpt: ServedGpt, body: CompletionRequest, texts: Sequence[str], found: Sequence[GeneratedText]) -> dict[str, int]:
    prompted = sum(len(gpt.handler.generator.prompt(text)) for text in texts[:: body.n or 1])
    generated = sum(len(one.ids) for one in found)
    return {"prompt_tokens": prompted, "completion_tokens": generated, "total_tokens": prompted + generated}

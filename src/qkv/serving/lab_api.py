"""Endpoints of the laboratory: views of a model at work, of changes to it, of its layers, its search and its training."""

from collections.abc import Callable

from fastapi import APIRouter, Request, Response

from qkv.serving import lab_requests as asked
from qkv.serving import lab_responses as answered
from qkv.serving.base_handler import AttentionHandler
from qkv.serving.batching import PreparedRequest
from qkv.serving.json_answer import ANY
from qkv.serving.laboratory import GivenText
from qkv.serving.registry import (
    ANALOGY,
    ARITHMETIC,
    ATTRIBUTE,
    CHANGE,
    FOLLOW_WORDS,
    HEADS,
    LAYERS,
    PATCH,
    PROJECTOR,
    STEPS,
    THROUGH_TRAINING,
    Ability,
)
from qkv.serving.request_body import JSON, StrictBodyRoute
from qkv.serving.request_models import LookRequest
from qkv.serving.response_models import ERRORS
from qkv.serving.service import Service


def lab_router(service: Service) -> APIRouter:
    """Return the router of these endpoints."""
    router = APIRouter(tags=["laboratory"], route_class=StrictBodyRoute)
    most = service.settings.look_tokens

    async def view(
        request: Request,
        body: LookRequest,
        ability: Ability[AttentionHandler],
        prepare: Callable[[AttentionHandler, GivenText], PreparedRequest],
        *more: str | None,
    ) -> Response:
        service.check_texts([body.text, body.target or "", *(text or "" for text in more)], "text")
        model = service.models.find(body.model, ability)
        return _json(await service.answer(request, model, lambda: prepare(model.handler, model.handler.read_text(body, most))))

    @router.post("/arithmetic", response_model=answered.ArithmeticResponse, responses=ERRORS)
    async def arithmetic(request: Request, body: asked.ArithmeticRequest) -> Response:
        """Return the numbers of one attention head at one position, step by step, as `qkv arithmetic` does."""
        return await view(request, body, ARITHMETIC, lambda handler, given: handler.laboratory.arithmetic(body, given))

    @router.post("/change", response_model=answered.ChangeResponse, responses=ERRORS)
    async def change(request: Request, body: asked.ChangeRequest) -> Response:
        """Return a model before and after changes, of its heads, layers and weights or of words, as `qkv change` does."""
        texts = [one.text for one in body.changes if isinstance(one, asked.ReplaceChange)]
        return await view(request, body, CHANGE, lambda handler, given: handler.laboratory.change(body, given), *texts)

    @router.post("/layers", response_model=answered.LayersResponse, responses=ERRORS)
    async def layers(request: Request, body: asked.LayersRequest) -> Response:
        """Return what each layer would predict if it were the last, as `qkv layers` does."""
        return await view(request, body, LAYERS, lambda handler, given: handler.laboratory.predict_by_layer(body, given))

    @router.post("/attribute", response_model=answered.AttributeResponse, responses=ERRORS)
    async def attribute(request: Request, body: asked.AttributeRequest) -> Response:
        """Return how much each token of a text contributed to the output, as `qkv attribute` does."""
        return await view(
            request, body, ATTRIBUTE, lambda handler, given: handler.laboratory.attribute(body, given), body.instead
        )

    @router.post("/through_training", response_model=answered.ThroughTrainingResponse, responses=ERRORS)
    async def through_training(request: Request, body: asked.ThroughTrainingRequest) -> Response:
        """Return attention, output and probabilities at each snapshot of a run's training."""
        return await view(
            request, body, THROUGH_TRAINING, lambda handler, given: handler.laboratory.through_training(body, given)
        )

    @router.post("/patch", response_model=answered.PatchResponse, responses=ERRORS)
    async def patch(request: Request, body: asked.PatchRequest) -> Response:
        """Return which heads and states carry an answer that depends on a word, as `qkv patch` does."""
        texts = [body.text, body.other]
        service.check_texts([*texts, *(text or "" for text in (body.answer, body.instead, body.target))], "text")
        model = service.models.find(body.model, PATCH)

        def prepare() -> PreparedRequest:
            given = model.handler.read_plain_texts(texts, body.target, most)
            return model.handler.laboratory.patch(body, given, service.settings.patch_tokens)

        return _json(await service.answer(request, model, prepare))

    @router.post("/steps", response_model=answered.StepsResponse, responses=ERRORS)
    async def steps(request: Request, body: asked.StepsRequest) -> Response:
        """Return how a model writes: the most probable tokens of each step, and the search as a tree, as `qkv steps` does."""
        service.check_texts([body.text], "text")
        model = service.models.find(body.model, STEPS)
        return _json(
            await service.answer(
                request,
                model,
                lambda: model.handler.laboratory.steps(body, model.handler.read_plain_texts([body.text], None, most)),
            )
        )

    @router.post("/heads", response_model=answered.HeadEffectsResponse, responses=ERRORS)
    async def heads(request: Request, body: asked.HeadEffectsRequest) -> Response:
        """Return what a model loses without each of its heads, where `qkv heads` has measured it."""
        model = service.models.find(body.model, HEADS)
        return _json(ANY.dump_json(model.handler.laboratory.loaded.head_effects.json()))

    _add_words(router, service)
    return router


def _add_words(router: APIRouter, service: Service) -> None:
    """Add the endpoints of word vectors."""

    @router.post("/analogy", response_model=answered.AnalogyResponse, responses=ERRORS)
    async def analogy(request: Request, body: asked.AnalogyRequest) -> Response:
        """Return the words that are to the third as the second is to the first, in a plane with arrows."""
        question = (body.first, body.second, body.third)
        service.check_texts(question, "first")
        model = service.models.find(body.model, ANALOGY)
        return _json(await service.answer(request, model, lambda: model.handler.analogy(question, body.top, body.method)))

    @router.post("/projector", response_model=answered.ProjectorResponse, responses=ERRORS)
    async def projector(request: Request, body: asked.ProjectorRequest) -> Response:
        """Place many words in a plane by PCA, or by PCA and t-SNE, with the neighbours and the frequency of each."""
        service.check_texts(body.words or [], "words", any_number=True)
        model = service.models.find(body.model, PROJECTOR)
        return _json(await service.answer(request, model, lambda: model.handler.project(body.words, body.count, body.method)))

    @router.post("/neighbours_through_training", response_model=answered.FollowWordsResponse, responses=ERRORS)
    async def neighbours_through_training(request: Request, body: asked.FollowWordsRequest) -> Response:
        """Return the words nearest to each word at each snapshot of the training of their vectors."""
        service.check_texts(body.words, "words")
        model = service.models.find(body.model, FOLLOW_WORDS)
        return _json(await service.answer(request, model, lambda: model.handler.follow(body.words, body.top)))


def _json(written: bytes) -> Response:
    return Response(written, media_type=JSON)

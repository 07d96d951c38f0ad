"""The service as an ASGI application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import FileResponse, HTMLResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

import qkv
from qkv.serving.documents import describe, page
from qkv.serving.gate import Gate, error_body, error_headers
from qkv.serving.libretranslate import libretranslate
from qkv.serving.models import Models
from qkv.serving.openai import openai
from qkv.serving.own import own, seen_from_outside
from qkv.serving.refusals import Refusal
from qkv.serving.service import Service
from qkv.serving.settings import Settings

PAGE, VIEWER = files("qkv.serving").joinpath("page"), files("qkv.lens").joinpath("viewer")
ABOUT = "Translates, fills blanks, makes vectors of texts, continues them and compares words, with models trained by qkv."


def make_app(models: Models, settings: Settings | None = None) -> FastAPI:
    """The application that serves these models; its workers run until it is shut down."""
    service = Service(models, settings or Settings())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="qkv",
        version=qkv.__version__,
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.service = service
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(HTTPException, _unknown)
    for router in (libretranslate(service), openai(service), own(service), seen_from_outside(service)):
        app.include_router(router)
    _add_pages(app, service)
    if service.settings.origins:
        allowed = list(service.settings.origins)
        app.add_middleware(
            CORSMiddleware,
            allow_origins=allowed,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["Retry-After"],
        )
    app.add_middleware(Gate, service=service)
    return app


def _add_pages(app: FastAPI, service: Service) -> None:
    told = describe(app, bool(service.settings.keys))
    text = page(told)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> dict[str, Any]:
        return told

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(text)

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def index() -> FileResponse:
        return FileResponse(str(PAGE.joinpath("index.html")))

    app.mount("/page", StaticFiles(directory=str(PAGE)), name="page")
    if VIEWER.is_dir():
        app.mount("/viewer", StaticFiles(directory=str(VIEWER)), name="viewer")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return Response(error_body(request.url.path, error), error.status, error_headers(error))


async def _unknown(request: Request, error: Exception) -> Response:
    """Paths and methods that are not there."""
    assert isinstance(error, HTTPException)
    known = {
        404: ("not_found", "there is nothing at this path; see /docs"),
        405: ("wrong_method", "this path takes another method; see /docs"),
    }
    refusal = Refusal(error.status_code, *known.get(error.status_code, ("invalid_request", "the request cannot be used")))
    return Response(
        error_body(request.url.path, refusal), error.status_code, {**error_headers(refusal), **dict(error.headers or {})}
    )

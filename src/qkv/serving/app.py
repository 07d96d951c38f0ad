"""The service as an ASGI application."""

import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import FileResponse, HTMLResponse
from fastapi.security import HTTPBearer
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

import qkv
from qkv.serving.admin_api import admin_router
from qkv.serving.docs_page import docs_page
from qkv.serving.errors import RequestError, error_body, error_headers
from qkv.serving.examples import find_examples
from qkv.serving.lab_api import lab_router
from qkv.serving.libretranslate_api import libretranslate_router
from qkv.serving.middleware import ServiceMiddleware
from qkv.serving.monitoring_api import monitoring_router
from qkv.serving.native_api import native_router
from qkv.serving.openai_api import openai_router
from qkv.serving.openapi import describe
from qkv.serving.registry import ModelRegistry
from qkv.serving.service import Service
from qkv.serving.settings import ServiceSettings
from qkv.serving.shared_limits import SharedLimits
from qkv.serving.supervisor_link import SupervisorLink

PAGE, VIEWER = files("qkv.serving").joinpath("page"), files("qkv.lens").joinpath("viewer")
ABOUT = "Translates, fills blanks, embeds and continues texts and compares words, with models trained by qkv."
ROUTING_ERRORS = {
    404: ("not_found", "there is nothing at this path; see /docs"),
    405: ("wrong_method", "this path takes another method; see /docs"),
}


def create_app(
    models: ModelRegistry,
    settings: ServiceSettings | None = None,
    limits: SharedLimits | None = None,
    supervisor: SupervisorLink | None = None,
) -> FastAPI:
    """Create the application that serves these models; its threads run until it is shut down.

    `limits` and `supervisor` are those of a service of several processes.
    """
    service = Service(models, settings or ServiceSettings(), limits, supervisor)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    # FastAPI describes the key; `Service.admit` checks it, since LibreTranslate's clients send it in the body.
    keys = [Depends(HTTPBearer(scheme_name="key", auto_error=False))] if service.settings.keys else []
    app = FastAPI(
        title="qkv",
        version=qkv.__version__,
        description=ABOUT,
        lifespan=lifespan,
        dependencies=keys,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.service = service
    app.add_exception_handler(RequestError, _request_error)
    app.add_exception_handler(HTTPException, _routing_error)
    for router in (libretranslate_router, openai_router, native_router, lab_router, monitoring_router):
        app.include_router(router(service))
    if service.settings.admin_keys and supervisor is not None:
        app.include_router(admin_router(service, supervisor))
    _add_pages(app, service)
    if service.settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(service.settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["Retry-After"],
        )
    app.add_middleware(ServiceMiddleware, service=service)
    return app


def _add_pages(app: FastAPI, service: Service) -> None:
    """Add the OpenAPI description, its page, and the page for people with its files."""

    # Describing the API takes half a second, so a worker does it when somebody asks, on another thread.
    @functools.cache
    def description() -> dict[str, Any]:
        return describe(app, service.settings)

    @functools.cache
    def docs() -> str:
        return docs_page(description(), find_examples(service.models), bool(service.settings.keys))

    @app.get("/openapi.json", include_in_schema=False)
    def get_openapi() -> dict[str, Any]:
        return description()

    @app.get("/docs", include_in_schema=False)
    def get_docs() -> HTMLResponse:
        return HTMLResponse(docs())

    @app.get("/", include_in_schema=False)
    async def get_index() -> FileResponse:
        return FileResponse(str(PAGE.joinpath("index.html")))

    app.mount("/page", StaticFiles(directory=str(PAGE)), name="page")
    if VIEWER.is_dir():
        app.mount("/viewer", StaticFiles(directory=str(VIEWER)), name="viewer")


async def _request_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return Response(error_body(request.url.path, error), error.status, error_headers(error))


async def _routing_error(request: Request, error: Exception) -> Response:
    """Answer a request for an unknown path or method."""
    assert isinstance(error, HTTPException)
    reason = ROUTING_ERRORS.get(error.status_code, ("invalid_request", "the request cannot be used"))
    if error.status_code == 404 and request.url.path.startswith("/v1/chat/"):
        reason = ("not_found", "no model here holds conversations; send the text to continue to /v1/completions")
    shown = RequestError(error.status_code, *reason)
    headers = {**error_headers(shown), **dict(error.headers or {})}
    return Response(error_body(request.url.path, shown), error.status_code, headers)

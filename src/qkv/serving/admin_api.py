"""Endpoints that change the models of a running service; they need a key of the file `--admin-keys`."""

from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer

from qkv.serving.errors import RequestError, internal_error
from qkv.serving.request_body import StrictBodyRoute
from qkv.serving.request_models import AddModelRequest
from qkv.serving.response_models import ADMIN_ERRORS, ServedFolders
from qkv.serving.service import Service
from qkv.serving.supervisor_link import SupervisorLink


def admin_router(service: Service, supervisor: SupervisorLink) -> APIRouter:
    """Return the router of these endpoints; each answers when all workers have changed, or none."""
    key = Depends(HTTPBearer(scheme_name="administrator's key", auto_error=False))  # described here, checked by `admit_admin`
    router = APIRouter(tags=["administration"], route_class=StrictBodyRoute, dependencies=[key])

    async def ask(**question: Any) -> JSONResponse:
        answer = await supervisor.ask(**question)
        if "fault" in answer:
            raise internal_error()
        if "failed" in answer:
            raise RequestError(409, "not_changed", f"nothing has changed: {answer['failed']}")
        return JSONResponse(answer["served"])

    @router.get("/admin/models", response_model=ServedFolders, responses=ADMIN_ERRORS)
    async def list_models(request: Request) -> JSONResponse:
        """List the models and their folders."""
        service.admit_admin(request)
        return await ask(what="list")

    @router.post("/admin/models", response_model=ServedFolders, responses=ADMIN_ERRORS)
    async def add_model(request: Request, body: AddModelRequest) -> JSONResponse:
        """Serve a model from a folder below --model-root, under a new name or instead of the model of that name."""
        return await ask(what="add", **body.model_dump())

    @router.delete("/admin/models/{name}", response_model=ServedFolders, responses=ADMIN_ERRORS)
    async def remove_model(request: Request, name: str) -> JSONResponse:
        """Stop serving a model."""
        service.admit_admin(request)
        return await ask(what="remove", name=name)

    @router.post("/admin/reload", response_model=ServedFolders, responses=ADMIN_ERRORS)
    async def reload(request: Request) -> JSONResponse:
        """Read the config file, the files of keys and changed folders again, as on SIGHUP."""
        service.admit_admin(request)
        return await ask(what="reload")

    return router

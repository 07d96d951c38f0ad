"""Endpoints for operators: health, readiness and metrics."""

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse

from qkv.serving.errors import RequestError
from qkv.serving.metrics import CONTENT_TYPE
from qkv.serving.response_models import ERRORS, ErrorResponse, HealthResponse
from qkv.serving.service import Service


def monitoring_router(service: Service) -> APIRouter:
    """Return the router of these endpoints."""
    router = APIRouter(tags=["operation"])

    @router.get("/healthz", response_model=HealthResponse, responses={503: {"model": ErrorResponse}})
    async def healthz() -> JSONResponse:
        """Check that the thread of every model runs."""
        dead = [name for name, worker in service.workers.items() if not worker.alive]
        if dead and not service.stopping:
            raise RequestError(503, "worker_ended", f"nobody computes for {', '.join(dead)} any more; start the service again")
        return JSONResponse({"status": "ok"})

    @router.get("/readyz", response_model=HealthResponse, responses={503: {"model": ErrorResponse}})
    async def readyz() -> JSONResponse:
        """Check that the service accepts requests."""
        if service.stopping:
            raise RequestError(503, "stopping", "the service is stopping", retry_after=5)
        return JSONResponse({"status": "ready"})

    @router.get("/metrics", response_class=PlainTextResponse, responses=ERRORS)
    async def metrics(request: Request) -> PlainTextResponse:
        """Return metrics in Prometheus' text format."""
        service.admit(request)
        return PlainTextResponse(service.metrics.text(), media_type=CONTENT_TYPE)

    return router

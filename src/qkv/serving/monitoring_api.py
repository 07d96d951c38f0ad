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
        if service.dead and not service.stopping:
            raise RequestError(503, "worker_ended", f"the compute thread of {', '.join(service.dead)} has ended")
        return JSONResponse({"status": "ok"})

    @router.get("/readyz", response_model=HealthResponse, responses={503: {"model": ErrorResponse}})
    async def readyz() -> JSONResponse:
        """Check that the service accepts requests: it is not stopping, and all its processes and threads live."""
        supervisor = service.supervisor
        replaced = supervisor is not None and supervisor.replaced  # others serve already
        if service.stopping and not replaced:
            raise RequestError(503, "stopping", "the service is stopping", retry_after=5)
        if service.dead and not replaced:
            raise RequestError(503, "worker_ended", "a thread that computes has ended", retry_after=5)
        if supervisor is not None and supervisor.alive < supervisor.workers:
            missing = f"{supervisor.alive} of {supervisor.workers} workers serve"
            raise RequestError(503, "workers_missing", missing, retry_after=1)
        return JSONResponse({"status": "ready"})

    @router.get("/metrics", response_class=PlainTextResponse, responses=ERRORS)
    async def metrics(request: Request) -> PlainTextResponse:
        """Return metrics in Prometheus' text format."""
        service.admit(request)
        return PlainTextResponse(service.metrics.text(), media_type=CONTENT_TYPE)

    return router

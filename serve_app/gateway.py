"""The gateway's HTTP application: what is passed to the replicas, and its own health."""

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from serve_app.api_error import ApiError
from serve_app.config import GatewayConfig
from serve_app.console import WatchLike, console_routes
from serve_app.page import page_routes
from serve_app.passthrough import Passthrough, ReplicasLike, TurnsLike
from serve_app.router_client import RouterLike

PASSED_PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/models",
    "/tokenize",
    "/detokenize",
)
METHODS = ("DELETE", "GET", "OPTIONS", "PATCH", "POST", "PUT")
"""Passed for every path: vLLM says itself which of them a path takes."""


def build_gateway(
    replicas: ReplicasLike,
    turns: TurnsLike,
    router: RouterLike,
    watch: WatchLike,
    config: GatewayConfig,
) -> Starlette:
    """Return the ASGI application that serves clients from these replicas."""
    passthrough = Passthrough(replicas, turns, config)
    return Starlette(
        routes=[
            Route("/health", _health),
            Route("/ready", _ready(replicas, config.ready_timeout_s)),
            *page_routes(),
            *console_routes(router, watch),
            *(Route(path, passthrough, methods=METHODS) for path in PASSED_PATHS),
        ],
        exception_handlers={HTTPException: _not_served},
    )


async def _health(_: Request) -> Response:
    return JSONResponse({"status": "alive"})


def _ready(replicas: ReplicasLike, timeout_s: float) -> Callable[[Request], Awaitable[Response]]:
    async def ready(_: Request) -> Response:
        if await replicas.ready(timeout_s):
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "no replica answers"}, status_code=503)

    return ready


async def _not_served(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path
    answer = ApiError(error.status_code, f"{request.method} {path} is not served here")
    return Response(answer.body(path), answer.status, media_type="application/json")

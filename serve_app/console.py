"""What the router knows, and why it decided so, as JSON over HTTP."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from serve_app.api_error import ApiError
from serve_app.route_request import RouterStatus
from serve_app.router_client import RouterLike, RouterSilent
from serve_app.session_id import short_id

TIMEOUT_S = 5.0
DEFAULT_SESSIONS = 100
MAX_SESSIONS = 10_000


class WatchLike(Protocol):
    """Whether the router answers; RouterWatch is the real one."""

    status: RouterStatus | None
    settings_error: str | None


def console_routes(router: RouterLike, watch: WatchLike) -> list[Route]:
    """Return the routes under /warmturn."""

    async def decision(request: Request) -> Any:
        request_id = short_id(request.path_params["request_id"])
        found = await router.call("decision", request_id, timeout_s=TIMEOUT_S)
        if found is None:
            raise ApiError(404, f"no decision on request {request_id} is remembered")
        return found

    async def replicas(_: Request) -> Any:
        found = await router.call("replicas", timeout_s=TIMEOUT_S)
        return {
            "router": watch.status and asdict(watch.status),
            "settings_error": watch.settings_error,
            "replicas": found,
        }

    async def sessions(request: Request) -> Any:
        limit = request.query_params.get("limit", str(DEFAULT_SESSIONS))
        if not re.fullmatch(r"[0-9]{1,5}", limit) or not 0 < int(limit) <= MAX_SESSIONS:
            raise ApiError(400, f"limit must be a number from 1 to {MAX_SESSIONS}")
        return {"sessions": await router.call("sessions", int(limit), timeout_s=TIMEOUT_S)}

    return [
        Route("/warmturn/decisions/{request_id:path}", _json(decision)),
        Route("/warmturn/replicas", _json(replicas)),
        Route("/warmturn/sessions", _json(sessions)),
    ]


def _json(answer: Callable[[Request], Awaitable[Any]]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            return JSONResponse(await answer(request))
        except RouterSilent as silence:
            error = ApiError(503, f"the router does not answer: {silence}", retry_after_s=1)
        except ApiError as refused:
            error = refused
        headers = {name.decode(): value.decode() for name, value in error.headers()}
        return Response(error.body(request.url.path), error.status, headers)

    return endpoint

"""What the router knows, and why it decided so, over HTTP: JSON, and metrics for Prometheus."""

import math
import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, Protocol

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from policies.fleet_load import dispersion_ratio
from serve_app.api_error import ApiError
from serve_app.decision_log import MAX_TURNS
from serve_app.exposition import exposition
from serve_app.route_request import RouterStatus
from serve_app.router_client import RouterLike, RouterSilent
from serve_app.session_id import short_id

TIMEOUT_S = 5.0
DEFAULT_DECISIONS = 100
DEFAULT_SESSIONS = 100
MAX_SESSIONS = 10_000


class WatchLike(Protocol):
    """Whether the router answers; RouterWatch is the real one."""

    status: RouterStatus | None
    settings_error: str | None


def console_routes(router: RouterLike, watch: WatchLike) -> list[Route]:
    """Return the routes under /warmturn."""

    async def decision(request: Request) -> Any:
        request_id = _id(request, "request_id")
        found = await router.call("decision", request_id, timeout_s=TIMEOUT_S)
        if found is None:
            raise ApiError(404, f"no decision on request {request_id} is remembered")
        return found

    async def decisions(request: Request) -> Any:
        limit = _limit(request, DEFAULT_DECISIONS, MAX_TURNS)
        found = await router.call("decisions", limit, timeout_s=TIMEOUT_S)
        return Response(found, media_type="application/json")

    async def replicas(_: Request) -> Any:
        found = await router.call("replicas", timeout_s=TIMEOUT_S)
        return {
            "router": watch.status and asdict(watch.status),
            "settings_error": watch.settings_error,
            "dispersion_ratio": round(dispersion_ratio([one["requests"] for one in found]), 4),
            "replicas": found,
        }

    async def session(request: Request) -> Any:
        session_id = _id(request, "session_id")
        found = await router.call("session", session_id, timeout_s=TIMEOUT_S)
        if found is None:
            raise ApiError(404, f"no session {session_id} is remembered")
        return found

    async def sessions(request: Request) -> Any:
        limit = _limit(request, DEFAULT_SESSIONS, MAX_SESSIONS)
        within_s = _within_s(request)
        found = await router.call("sessions", limit, within_s, timeout_s=TIMEOUT_S)
        return Response(found, media_type="application/json")

    async def metrics(_: Request) -> Response:
        text = exposition(await router.call("samples", timeout_s=TIMEOUT_S))
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return [
        Route("/warmturn/decisions", _endpoint(decisions)),
        Route("/warmturn/decisions/{request_id:path}", _endpoint(decision)),
        Route("/warmturn/replicas", _endpoint(replicas)),
        Route("/warmturn/sessions", _endpoint(sessions)),
        Route("/warmturn/sessions/{session_id:path}", _endpoint(session)),
        Route("/warmturn/metrics", _endpoint(metrics)),
    ]


def _id(request: Request, name: str) -> str:
    """Return the id in the path, or in the query: no browser asks for a path that ends in `..`."""
    return short_id(request.path_params[name] or request.query_params.get("id", ""))


def _limit(request: Request, default: int, most: int) -> int:
    limit = request.query_params.get("limit", str(default))
    if not re.fullmatch(r"[0-9]{1,5}", limit) or not 0 < int(limit) <= most:
        raise ApiError(400, f"limit must be a number from 1 to {most}")
    return int(limit)


def _within_s(request: Request) -> float:
    within_s = request.query_params.get("within_s")
    if within_s is None:
        return math.inf
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", within_s):
        raise ApiError(400, "within_s must be a number of seconds")
    return float(within_s)


def _endpoint(
    answer: Callable[[Request], Awaitable[Any]],
) -> Callable[[Request], Awaitable[Response]]:
    """Return what answers with a Response as it is, with anything else as JSON."""

    async def endpoint(request: Request) -> Response:
        try:
            answered = await answer(request)
            return answered if isinstance(answered, Response) else JSONResponse(answered)
        except RouterSilent as silence:
            error = ApiError(503, f"the router does not answer: {silence}", retry_after_s=1)
        except ApiError as refused:
            error = refused
        headers = {name.decode(): value.decode() for name, value in error.headers()}
        return Response(error.body(request.url.path), error.status, headers)

    return endpoint

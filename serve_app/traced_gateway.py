"""The gateway's parts with spans around them: numbers, names and ids, never what was said.

The spans of a turn, the last of which is vLLM's own:

    POST /v1/messages ─┬ read_prompt
                       └ attempt: one per replica tried, until its first byte ─┬ route
                                                                               └ llm_request
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import msgspec
from opentelemetry.context import get_current
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.semconv.attributes.http_attributes import (
    HTTP_REQUEST_METHOD,
    HTTP_RESPONSE_STATUS_CODE,
    HTTP_ROUTE,
)
from opentelemetry.semconv.attributes.url_attributes import URL_PATH, URL_SCHEME
from opentelemetry.semconv.attributes.user_agent_attributes import USER_AGENT_ORIGINAL
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, get_current_span, use_span
from opentelemetry.util.types import AttributeValue
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from policies.types import SessionId
from serve_app.http_message import REPLICA_HEADER, SESSION_HEADER, Headers, HttpRequest, Response
from serve_app.passthrough import ReplicasLike, TurnsLike
from serve_app.route_request import RouteRequest
from serve_app.session_id import NO_JSON, short_id
from serve_app.tracing import CANCELLED, carried, carrying, fail, known, span
from serve_app.turns import is_turn

SESSION = "warmturn.session"
REPLICA = "warmturn.replica"
MODEL = "gen_ai.request.model"
INPUT_TOKENS = "gen_ai.usage.input_tokens"


class TracedGateway:
    """The gateway's ASGI application, with a span for each turn."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the application does; a `traceparent` of the client's is continued."""
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        if not is_turn(scope.get("method", ""), path):
            await self._app(scope, receive, send)
            return
        headers: Headers = tuple(scope["headers"])
        context = carried(headers)
        asked = _asked(scope, path, headers)
        with span(self._tracer, f"POST {path}", context, SpanKind.SERVER, asked) as turn:
            is_answered = False

            async def sent(message: Message) -> None:
                nonlocal is_answered
                if message["type"] == "http.response.start":
                    is_answered = True
                    _answered(turn, message["status"], tuple(message["headers"]), 500)
                await send(message)

            with use_span(turn, record_exception=False, set_status_on_exception=False):
                await self._app(scope, receive, sent)
            if not is_answered:  # its client left before
                turn.set_attribute(CANCELLED, True)


class TracedTurns:
    """Turns, with a span for the reading of each prompt."""

    def __init__(self, turns: TurnsLike, tracer: Tracer) -> None:
        self._turns = turns
        self._tracer = tracer

    async def read(
        self, request: HttpRequest, session: SessionId | None, sent: bytes
    ) -> tuple[HttpRequest, RouteRequest | None]:
        """Return what Turns.read returns."""
        if not is_turn(request.method, request.path):
            return await self._turns.read(request, session, sent)
        whole = get_current_span()
        if whole.is_recording():
            whole.set_attributes(known({SESSION: session, MODEL: _model(request.body)}))
        with span(self._tracer, "read_prompt") as reading:
            request, turn = await self._turns.read(request, session, sent)
            if turn:
                reading.set_attributes(_read(turn))
        return request, turn


class TracedReplicas:
    """Replicas, with a span for each attempt, of which the replica is told."""

    def __init__(self, replicas: ReplicasLike, tracer: Tracer) -> None:
        self._replicas = replicas
        self._tracer = tracer

    @asynccontextmanager
    async def send(
        self, request: HttpRequest, turn: RouteRequest | None
    ) -> AsyncGenerator[Response, None]:
        """Do what Replicas.send does."""
        if turn is None:
            async with self._replicas.send(request, turn) as answer:
                yield answer
            return
        whole, context = get_current_span(), get_current()
        with ExitStack() as trying:
            attempt = trying.enter_context(span(self._tracer, "attempt", context, SpanKind.CLIENT))

            async def body(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
                first = await anext(pieces, b"")
                trying.close()
                try:
                    yield first
                    async for piece in pieces:
                        yield piece
                except BaseException as error:
                    fail(whole, error)
                    raise

            request = replace(request, headers=carrying(request.headers, attempt))
            async with (
                self._replicas.send(request, turn) as answer,
                aclosing(body(answer.body)) as pieces,
            ):
                _answered(attempt, answer.start.status, answer.start.headers, 400)
                yield Response(answer.start, pieces)

    async def ready(self, timeout_s: float) -> bool:
        """Tell what Replicas.ready tells."""
        return await self._replicas.ready(timeout_s)


class _Body(msgspec.Struct):
    model: Any = None


_decode = msgspec.json.Decoder(_Body).decode


def _model(body: bytes) -> str | None:
    try:
        model = _decode(body).model
    except NO_JSON:
        return None
    return model if isinstance(model, str) else None


def _asked(scope: Scope, path: str, headers: Headers) -> dict[str, AttributeValue]:
    values = {name: value.decode("latin-1") for name, value in headers}
    return {
        HTTP_REQUEST_METHOD: scope["method"],
        HTTP_ROUTE: path,
        URL_PATH: path,
        URL_SCHEME: scope.get("scheme", "http"),
        USER_AGENT_ORIGINAL: values.get(b"user-agent", ""),
        "gen_ai.operation.name": "text_completion" if path == "/v1/completions" else "chat",
        "warmturn.request_id": short_id(values.get(b"x-request-id", "")),
    }


def _read(turn: RouteRequest) -> dict[str, AttributeValue]:
    is_counted = turn.not_rendered is None and len(turn.hashes)
    broken = turn.prefix_break
    return known(
        {
            INPUT_TOKENS: turn.prompt_tokens if is_counted else None,
            "warmturn.not_rendered": turn.not_rendered,
            "warmturn.prefix_break": broken.kind.value if broken else None,
            "warmturn.lost_tokens": broken.lost_tokens if broken else None,
        }
    )


def _answered(span: Span, status: int, headers: Headers, first_error: int) -> None:
    """Note an answer: whose fault a status is depends on the side that sees it."""
    values = {name: value.decode("latin-1") for name, value in headers}
    session = values.get(SESSION_HEADER)
    told = {REPLICA: values.get(REPLICA_HEADER), SESSION: session and unquote(session)}
    span.set_attributes({HTTP_RESPONSE_STATUS_CODE: status, **known(told)})
    if status >= first_error:
        span.set_attribute(ERROR_TYPE, str(status))
        span.set_status(StatusCode.ERROR)

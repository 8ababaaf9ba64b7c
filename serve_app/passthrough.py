"""Hands a request to a replica, as a turn of its session, and the answer back as it comes."""

import asyncio
import logging
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Protocol

from starlette.types import Receive, Scope, Send

from policies.types import SessionId
from serve_app.agent_metrics import counter, histogram
from serve_app.api_error import ApiError, in_form_of
from serve_app.canonical import VolatileLines
from serve_app.config import GatewayConfig
from serve_app.http_message import (
    FIRST_ERROR_STATUS,
    HOP_BY_HOP,
    Headers,
    HttpRequest,
    Response,
    is_event_stream,
)
from serve_app.metrics import ERRORS, TTFT, TTFT_SLO_S, VOLATILE_LINES_REMOVED
from serve_app.replicas import NoReplicas, ReplicaLost, ReplicasFull
from serve_app.reply import Reply
from serve_app.route_request import RouteRequest, TurnedAway
from serve_app.session_id import find_session_id, with_session_id
from serve_app.turns import is_streamed_turn

logger = logging.getLogger("ray.serve")

RETRY_PAUSE_S = 0.2
"""Pause before a request whose replica was lost is tried on another."""

BODY_IDLE_S = 60.0
"""How long a client may pause in the middle of its request."""


class ReplicasLike(Protocol):
    """What the gateway needs of the engine deployment; Replicas is the real one."""

    def send(
        self, request: HttpRequest, turn: RouteRequest | None
    ) -> AbstractAsyncContextManager[Response]:
        """Send a request to a replica, as Replicas.send does."""

    async def ready(self, timeout_s: float) -> bool:
        """Tell whether a replica can answer, as Replicas.ready does."""


class TurnsLike(Protocol):
    """What the gateway needs to know of prompts; Turns is the real one."""

    async def read(
        self, request: HttpRequest, session: SessionId | None, sent: bytes
    ) -> tuple[HttpRequest, RouteRequest | None]:
        """Return the request to send on, and what the router decides by, as Turns.read does."""


class ClientGone(Exception):
    """The client hung up before its request was whole."""


class Passthrough:
    """ASGI endpoint; errors that are not a replica's own get the form of the API called."""

    def __init__(self, replicas: ReplicasLike, turns: TurnsLike, config: GatewayConfig) -> None:
        self._replicas = replicas
        self._turns = turns
        self._config = config
        self._volatile_lines = VolatileLines(config.volatile_lines)
        self._volatile_lines_removed = counter(VOLATILE_LINES_REMOVED)
        self._ttft_s = histogram(TTFT)
        self._errors = counter(ERRORS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; a client that hangs up cancels this."""
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        reply = Reply(path, send)
        request = None
        try:
            async with asyncio.timeout(self._config.request_timeout_s):
                headers: Headers = tuple(
                    (name, value) for name, value in scope["headers"] if name not in HOP_BY_HOP
                )
                body = await self._read_body(headers, receive)
                request = HttpRequest(scope["method"], path, scope["query_string"], headers, body)
                await self._answer(self._canonical(request), body, reply)
        except ClientGone:
            return
        except asyncio.CancelledError:
            if request and not reply.started and is_streamed_turn(request):
                self._note_none(reply)
            raise
        except Exception as error:
            explained = self._explain(error)
            self._errors.inc(1, {"status": str(explained.status)})
            await reply.fail(explained)

    async def _read_body(self, headers: Headers, receive: Receive) -> bytes:
        limit_bytes = int(self._config.max_body_mib * 2**20)
        declared_bytes = int(dict(headers).get(b"content-length", 0))
        pieces: list[bytes] = []
        size_bytes = 0
        more = True
        while more:
            if max(declared_bytes, size_bytes) > limit_bytes:
                raise ApiError(413, f"the request body is over {self._config.max_body_mib:g} MiB")
            try:
                async with asyncio.timeout(BODY_IDLE_S):
                    message = await receive()
            except TimeoutError as error:
                reason = f"nothing more of the request came in {BODY_IDLE_S:g} s"
                raise ApiError(408, reason) from error
            if message["type"] == "http.disconnect":
                raise ClientGone
            pieces.append(message.get("body", b""))
            size_bytes += len(pieces[-1])
            more = message.get("more_body", False)
        return b"".join(pieces)

    def _canonical(self, request: HttpRequest) -> HttpRequest:
        """Return the request without volatile lines, and count those."""
        canonical = self._volatile_lines.removed_from(request.body)
        if not canonical.removed:
            return request
        for pattern, lines in canonical.removed.items():
            self._volatile_lines_removed.inc(lines, {"pattern": pattern})
        return request.with_body(canonical.body)

    async def _answer(self, request: HttpRequest, sent: bytes, reply: Reply) -> None:
        session_id = find_session_id(request.headers, request.body, self._config.session_headers)
        request, turn = await self._turns.read(request, session_id, sent)
        if session_id is not None:
            request = replace(request, headers=with_session_id(request.headers, session_id))
        losses = 0
        while True:
            try:
                return await self._stream(request, turn, reply)
            except ReplicaLost as error:
                losses += 1
                if reply.started or losses == self._config.max_attempts:
                    raise
                logger.warning("%s: replica lost (%s), trying another", request.path, error)
            except (ReplicasFull, TurnedAway):
                # A request that was let in before its replica was lost keeps its right to wait.
                if not losses:
                    raise
            await asyncio.sleep(RETRY_PAUSE_S)

    async def _stream(self, request: HttpRequest, turn: RouteRequest | None, reply: Reply) -> None:
        """Stream one replica's answer; nothing is sent before its first body byte is here."""
        async with self._replicas.send(request, turn) as answer:
            start, first = answer.start, await anext(answer.body, b"")
            if start.status >= FIRST_ERROR_STATUS:
                start, first = in_form_of(request.path, start, first)
            await reply.start(start)
            await reply.body(first)
            if turn and is_event_stream(start.headers):
                self._note_ttft(reply)
            async for piece in answer.body:
                await reply.body(piece)
        await reply.end()

    def _note_ttft(self, reply: Reply) -> None:
        self._ttft_s.observe(time.monotonic() - reply.opened_at_s)

    def _note_none(self, reply: Reply) -> None:
        """Count a first byte that nobody waits for, if it is late; else nobody knows."""
        if time.monotonic() - reply.opened_at_s > TTFT_SLO_S:
            self._note_ttft(reply)

    def _explain(self, error: Exception) -> ApiError:
        retry_after_s = self._config.retry_after_s
        match error:
            case ApiError():
                return error
            case ReplicasFull():
                return ApiError(429, "all replicas are busy", retry_after_s)
            case TurnedAway():
                return ApiError(429, f"overloaded: {error}", retry_after_s)
            case NoReplicas():
                return ApiError(503, str(error), retry_after_s)
            case ReplicaLost():
                return ApiError(503, "the replica that served this was lost", retry_after_s)
            case TimeoutError():
                return ApiError(504, f"no whole answer in {self._config.request_timeout_s:g} s")
        logger.error("unexpected error in the gateway", exc_info=error)
        return ApiError(500, "internal error in the gateway")

"""The replica: one vLLM engine behind vLLM's own HTTP application."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from contextvars import copy_context
from typing import NoReturn
from urllib.parse import quote

from opentelemetry import trace
from ray import serve

from policies.types import ReplicaId
from serve_app import asgi_client
from serve_app.agent_metrics import counter
from serve_app.config import AppConfig
from serve_app.engine_turn import EngineTurn, current_turn
from serve_app.http_message import (
    CACHED_HEADER,
    EXPECTED_HEADER,
    FIRST_ERROR_STATUS,
    REPLICA_HEADER,
    SESSION_HEADER,
    Headers,
    HttpRequest,
    ResponseStart,
    is_event_stream,
)
from serve_app.log_handlers import kept_targets
from serve_app.metrics import KV_AUDITS
from serve_app.ray_node import this_node
from serve_app.replica_report import Outcome
from serve_app.route_request import RouteRequest
from serve_app.router_client import RouterClient
from serve_app.tracing import ENGINE_SERVICE, close, set_defaults

logger = logging.getLogger("ray.serve")

DEATH_CHECK_S = 0.25


class Engine:
    """A Serve replica; every argument of its engine comes from `AppConfig.engine`.

    It reports to the router actor. When the engine dies its process ends too: requests that have
    not begun to answer go to another replica at once, and Serve starts a new one.
    """

    async def __init__(self, config: AppConfig) -> None:  # type: ignore[misc]  # Serve awaits it
        self._sockets = ExitStack()
        set_defaults(ENGINE_SERVICE)
        # vLLM takes seconds to import, and only replicas need it.
        with kept_targets(logger.name):  # vLLM configures logging as it is imported and starts
            from serve_app.kv_audit import KvAudit
            from serve_app.kv_event_stream import private_endpoints
            from serve_app.reporter import Reporter
            from serve_app.vllm_server import VllmServer

            context = serve.get_replica_context()
            self._replica = ReplicaId(context.replica_id.unique_id)
            endpoints = self._sockets.enter_context(private_endpoints())
            self._vllm = await VllmServer.start(config, self._replica, endpoints)
        client = RouterClient(context.app_name)
        self._reporter = Reporter(client, this_node(), self._vllm.load, config.model)
        self._vllm.engine.watcher = self._reporter
        await self._reporter.send()  # so that the router knows a replica before it's asked for it
        self._tasks = [
            asyncio.create_task(self._reporter.follow(endpoints)),
            asyncio.create_task(self._reporter.run()),
        ]
        if config.kv_audit_interval_s:
            verdicts = counter(KV_AUDITS)
            audit = KvAudit(
                self._vllm.engine,
                config.kv_audit_interval_s,
                lambda verdict: verdicts.inc(1, {"verdict": verdict}),
                self._vllm.engine.model_config.max_logprobs,
            )
            self._vllm.engine.audit = audit
            self._tasks.append(asyncio.create_task(audit.run()))
        self._end = asyncio.create_task(self._end_with_engine())

    async def http(
        self, request: HttpRequest, turn: RouteRequest | None
    ) -> AsyncGenerator[ResponseStart | bytes, None]:
        """Yield vLLM's ResponseStart, with our headers, and then the body's pieces.

        `turn` is what the router was asked; None where it was not.
        """
        engine_turn = None
        if turn:
            engine_turn = EngineTurn(turn.request)
            self._reporter.began(turn)
        status = 0
        context = copy_context()
        context.run(current_turn.set, engine_turn)
        try:
            async for message in asgi_client.call(self._vllm.app, request, context):
                await self._hold_if_dead()
                if isinstance(message, ResponseStart):
                    status = message.status
                    ours = self._headers(turn, engine_turn, message)
                    message = ResponseStart(message.status, (*message.headers, *ours))
                yield message
            if engine_turn:
                is_error = status >= FIRST_ERROR_STATUS
                engine_turn.outcome = Outcome.FAILED if is_error else Outcome.ANSWERED
        except Exception:
            if engine_turn:
                engine_turn.outcome = Outcome.FAILED
            await self._hold_if_dead()
            raise
        finally:
            if engine_turn:
                self._reporter.ended(engine_turn)

    def _headers(
        self, turn: RouteRequest | None, engine_turn: EngineTurn | None, start: ResponseStart
    ) -> Headers:
        headers = [(REPLICA_HEADER, self._replica.encode())]
        if turn and turn.placement:
            if turn.placement.session is not None:
                headers.append((SESSION_HEADER, quote(turn.placement.session, " ").encode()))
            if turn.placement.expected_cached_tokens is not None:
                headers.append((EXPECTED_HEADER, b"%d" % turn.placement.expected_cached_tokens))
        if engine_turn and not is_event_stream(start.headers):
            headers.append((CACHED_HEADER, b"%d" % engine_turn.cached_tokens))
        return tuple(headers)

    async def check_health(self) -> None:
        """Serve's health check, and the gateway's proof that this replica answers.

        Raises:
            EngineDeadError: the engine is gone.
            Exception: what ended the reports to the router or the audits, which is a defect.
        """
        await self._vllm.engine.check_health()
        for task in self._tasks:
            if task.done():
                task.result()

    def __del__(self) -> None:
        """Leave no sockets and spans behind; Serve calls this when it stops a replica in order."""
        self._sockets.close()
        close(trace.get_tracer_provider())

    async def _hold_if_dead(self) -> None:
        """Answer nothing more once the engine is dead; this process is about to end."""
        if self._vllm.engine.errored:
            await asyncio.shield(self._end)

    async def _end_with_engine(self) -> NoReturn:
        while not self._vllm.engine.errored:  # noqa: ASYNC110  # vLLM has no event for it
            await asyncio.sleep(DEATH_CHECK_S)
        logger.error("the engine died: this replica ends, Serve starts another")
        self._sockets.close()
        os._exit(1)

"""The engine deployment as the gateway sees it: send a request, stream the answer."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any

from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    RayActorError,
    RayError,
    RpcError,
    WorkerCrashedError,
)
from ray.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    RayServeException,
    ReplicaUnavailableError,
)
from ray.serve.handle import DeploymentHandle

from serve_app.http_message import HttpRequest, Response, ResponseStream
from serve_app.route_request import RouteRequest
from serve_app.router_client import RouterClient

RECENT_S = 2.0
"""An answer this young proves that a replica can answer."""

READY_ASKS = 4

LOST = (
    NodeDiedError,
    ObjectLostError,
    RayActorError,
    ReplicaUnavailableError,
    RpcError,
    WorkerCrashedError,
)
"""How Ray says that the process at the other end is gone."""


class ReplicasFull(Exception):
    """Every replica is at its limit and so is the queue before them."""


class ReplicaLost(Exception):
    """The replica went away; `str()` says how."""


class NoReplicas(Exception):
    """The deployment cannot run any replica."""


class Replicas:
    """Sends requests through a Serve handle and speaks of its failures in our own terms."""

    def __init__(self, handle: DeploymentHandle[Any], router: RouterClient) -> None:
        self._handle = handle
        self._router = router
        self._answered_at: float | None = None

    @asynccontextmanager
    async def send(
        self, request: HttpRequest, turn: RouteRequest | None
    ) -> AsyncGenerator[Response, None]:
        """Send a request to one replica; leaving the context aborts it there if it still runs.

        `turn` is what the router decides by; other requests, without one, go anywhere.

        Raises:
            ReplicasFull: nothing was sent.
            TurnedAway: nothing was sent.
            NoReplicas: nothing was sent.
            ReplicaLost: the replica went away; while the body is read, too.
        """
        session = (turn and turn.session) or ""
        handle = self._handle.options(stream=True, session_id=session)
        answer: Any = handle.http.remote(request, turn)
        async with aclosing(self._messages(answer, turn)) as messages:
            start: Any = await anext(messages)
            body: Any = messages
            yield Response(start, body)

    async def _messages(self, answer: Any, turn: RouteRequest | None) -> ResponseStream:
        try:
            with _our_errors():
                async for message in answer:
                    self._answered_at = time.monotonic()
                    yield message
        except ReplicaLost:
            if turn and turn.placement:
                # If it lives after all, it tells the router all it holds once more.
                self._router.tell("lose", turn.placement.replica)
            raise
        except (GeneratorExit, asyncio.CancelledError):
            answer.cancel()
            if turn:
                # The replica tells of its end, but it may not have got it yet, and never will.
                self._router.tell("give_up", turn.request)
            raise

    async def ready(self, timeout_s: float) -> bool:
        """Tell whether at least one replica can answer, asking unless one just did.

        Asks READY_ASKS times, as different sessions, so that one replica that hangs does not speak
        for all of them.
        """
        if self._answered_at is not None and time.monotonic() - self._answered_at < RECENT_S:
            return True
        for _ in range(READY_ASKS):
            if await self._asked(timeout_s / READY_ASKS):
                return True
        return False

    async def _asked(self, timeout_s: float) -> bool:
        handle = self._handle.options(session_id=f"ready-{uuid.uuid4()}")
        response: Any = handle.check_health.remote()
        try:
            async with asyncio.timeout(timeout_s):
                await response
        except BackPressureError:
            pass  # full is not dead
        except TimeoutError:
            response.cancel()
            return False
        except (RayError, RayServeException):
            return False
        return True


@contextmanager
def _our_errors() -> Iterator[None]:
    try:
        yield
    except BackPressureError as error:
        raise ReplicasFull from error
    except DeploymentUnavailableError as error:
        raise NoReplicas(error.message) from error
    except LOST as error:
        raise ReplicaLost(type(error).__name__) from error

"""The gateways' side of waiting: each asks again and again until its request is placed."""

import asyncio
from dataclasses import dataclass

from policies.types import Decision, Refusal, RequestId


@dataclass(slots=True)
class _Waiter:
    decided: asyncio.Future[Decision | Refusal]
    asked_at_s: float


class Waiters:
    """Waiting requests, their decisions once made, and when a gateway last asked for them."""

    def __init__(self) -> None:
        self._waiters: dict[RequestId, _Waiter] = {}

    def __contains__(self, request: RequestId) -> bool:
        """Whether this one waits, or has a decision that nobody asked for yet."""
        return request in self._waiters

    def open(self, request: RequestId, now_s: float) -> None:
        """Let gateways ask for a request."""
        self._waiters[request] = _Waiter(asyncio.get_running_loop().create_future(), now_s)

    def close(self, request: RequestId) -> None:
        """Answer no more for a request."""
        self._waiters.pop(request, None)

    def decide(self, request: RequestId, outcome: Decision | Refusal) -> None:
        """Keep what was decided on a request for the one who asks."""
        waiter = self._waiters.get(request)
        if waiter and not waiter.decided.done():
            waiter.decided.set_result(outcome)

    async def ask(
        self, request: RequestId, now_s: float, timeout_s: float
    ) -> Decision | Refusal | None:
        """Return the decision, which is then forgotten here, or None if there is none in time.

        Raises:
            KeyError: this request does not wait.
        """
        waiter = self._waiters[request]
        waiter.asked_at_s = now_s
        await asyncio.wait({waiter.decided}, timeout=timeout_s)
        if not waiter.decided.done():
            return None
        self.close(request)
        return waiter.decided.result()

    def abandoned(self, now_s: float, after_s: float) -> list[RequestId]:
        """Return those for which nobody asked in the last `after_s`."""
        waiters = self._waiters.items()
        return [request for request, one in waiters if now_s - one.asked_at_s > after_s]

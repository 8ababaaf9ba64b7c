"""This project's own policies."""

from collections.abc import Sequence
from random import Random

from benchmarks.peers.policy import Wait
from policies.kv_events import EventBatch
from policies.router import Router
from policies.tunables import SCORER_NAMES, Tunables
from policies.types import Decision, Park, ReplicaId, ReplicaState, Request, RequestId


class Warmturn:
    """`policies.router.Router`, as it is."""

    def __init__(self, tunables: Tunables, rng: Random) -> None:
        self.router = Router(tunables)
        self._rng = rng

    def place(
        self, request: Request, replicas: Sequence[ReplicaState], now_s: float
    ) -> ReplicaId | Wait | None:
        """Return where a request goes, or that it waits or is turned away."""
        outcome = self.router.decide(request, replicas, now_s, self._rng)
        if isinstance(outcome, Park):
            return Wait(outcome.until_s)
        return outcome.replica if isinstance(outcome, Decision) else None

    def place_waiting(
        self, replicas: Sequence[ReplicaState], now_s: float
    ) -> list[tuple[RequestId, ReplicaId | None]]:
        """Return which of the waiting requests go now, and where, or are turned away."""
        return [
            (one.request, one.replica if isinstance(one, Decision) else None)
            for one in self.router.place_waiting(replicas, now_s, self._rng)
        ]

    def first_byte(self, request: RequestId, now_s: float) -> None:
        """Note that a request's prefill is done."""
        self.router.first_byte(request, now_s)

    def end(self, request: RequestId, now_s: float) -> None:
        """Note that a request ended."""
        self.router.end_at_replica(request, now_s)

    def apply(self, batch: EventBatch, now_s: float) -> None:
        """Note what changed in a replica's caches."""
        self.router.index.apply(batch, now_s)

    def forget(self, replica: ReplicaId, now_s: float) -> None:
        """Forget a replica that is gone."""
        self.router.forget(replica, now_s)

    def tick(self, replicas: int, now_s: float) -> None:
        """Let go of what is too old."""
        self.router.expire(now_s, replicas)


def make_warmturn(rng: Random, **settings: float) -> Warmturn:
    """Make it with other tunables than the shipped ones; a scorer's name sets its weight."""
    weights = {name: settings.pop(name, 1.0) for name in SCORER_NAMES}
    return Warmturn(Tunables(weights=weights, **settings), rng)  # type: ignore[arg-type]

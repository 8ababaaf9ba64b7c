"""What a simulated router can be: ours and our peers' implement this."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from policies.kv_events import EventBatch
from policies.types import ReplicaId, ReplicaState, Request, RequestId


@dataclass(frozen=True, slots=True)
class Wait:
    """A request waits at the router, until `until_s` at most."""

    until_s: float


class Policy(Protocol):
    """Places requests; is told what becomes of them and of the replicas' caches."""

    def place(
        self, request: Request, replicas: Sequence[ReplicaState], now_s: float
    ) -> ReplicaId | Wait | None:
        """Return where a request goes, or that it waits: `place_waiting` says when it goes.

        None turns it away: its client is to try again later.
        """

    def place_waiting(
        self, replicas: Sequence[ReplicaState], now_s: float
    ) -> list[tuple[RequestId, ReplicaId | None]]:
        """Return which of the waiting requests go now, and where, or are turned away.

        Asked whenever a request ended, and when one has waited as long as it may.
        """

    def first_byte(self, request: RequestId, now_s: float) -> None:
        """Note that a request's prefill is done."""

    def end(self, request: RequestId, now_s: float) -> None:
        """Note that a request ended."""

    def apply(self, batch: EventBatch, now_s: float) -> None:
        """Note what changed in a replica's caches."""

    def forget(self, replica: ReplicaId, now_s: float) -> None:
        """Note that a replica is gone, with all that it held; it has no requests any more."""

    def tick(self, replicas: int, now_s: float) -> None:
        """Do what is to be done once a second, while so many replicas take requests."""


class Peer:
    """A policy that takes no notice of anything; peers override what they look at."""

    def place_waiting(
        self, replicas: Sequence[ReplicaState], now_s: float
    ) -> list[tuple[RequestId, ReplicaId | None]]:
        """Let none wait."""
        return []

    def first_byte(self, request: RequestId, now_s: float) -> None:
        """Take no notice."""

    def end(self, request: RequestId, now_s: float) -> None:
        """Take no notice."""

    def apply(self, batch: EventBatch, now_s: float) -> None:
        """Take no notice."""

    def tick(self, replicas: int, now_s: float) -> None:
        """Take no notice."""

    def forget(self, replica: ReplicaId, now_s: float) -> None:
        """Take no notice."""

"""How a turn stands: whether it waits or runs, or how it ended."""

from dataclasses import dataclass
from enum import StrEnum

from policies.router import Router
from policies.types import RequestId
from serve_app.fleet import Fleet
from serve_app.replica_report import Outcome


class Open(StrEnum):
    """How a turn stands that has not ended."""

    WAITS = "waits"
    """At the router, for room."""
    RUNS = "runs"
    """At a replica, or on its way there."""


TurnState = Open | Outcome


@dataclass(frozen=True, slots=True)
class TurnStates:
    """Tells it by what waits, what is booked, and what replicas say that they have."""

    router: Router
    fleet: Fleet

    def of(self, request: RequestId, outcome: Outcome | None, *, is_given_up: bool) -> TurnState:
        """Return how a turn stands of which a replica told this outcome, if any did.

        One whose end nobody told, and that is nowhere any more, has the outcome that a recording
        of it has.
        """
        if outcome:
            return outcome
        if request in self.router.waiting:
            return Open.WAITS
        if request in self.router.in_flight or self.fleet.has(request):
            return Open.RUNS
        return Outcome.ABORTED if is_given_up else Outcome.LOST

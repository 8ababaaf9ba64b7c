"""Requests that wait at the router until a replica has room for them."""

from collections.abc import Iterable, Iterator

from policies.candidate import is_open, pinned_blocks
from policies.in_flight import InFlight
from policies.types import Booking, Park, ReplicaState, Request, RequestId


class Waiting:
    """Who waits, and who of them may go."""

    def __init__(self) -> None:
        self._parked: dict[RequestId, tuple[Request, Park]] = {}

    def __len__(self) -> int:
        """How many wait."""
        return len(self._parked)

    def __contains__(self, request: RequestId) -> bool:
        """Whether this one waits."""
        return request in self._parked

    def add(self, request: Request, park: Park) -> None:
        """Let a request wait, anew if it did already."""
        self._parked[request.request] = request, park

    def discard(self, request: RequestId) -> None:
        """Let a request wait no longer."""
        self._parked.pop(request, None)

    def bookings(self) -> Iterator[Booking]:
        """Yield what each of them is expected to take."""
        return (park.booking for _, park in self._parked.values())

    def due(
        self, replicas: Iterable[ReplicaState], in_flight: InFlight, now_s: float
    ) -> Iterator[Request]:
        """Yield those that a replica may have room for, or that waited long enough, in order.

        What the caller books for one counts before the next is looked at.
        """
        states = list(replicas)
        for request, park in sorted(self._parked.values(), key=lambda parked: parked[1].order):
            blocks = park.booking.blocks
            if now_s >= park.until_s or any(_fits(blocks, one, in_flight) for one in states):
                yield request


def _fits(blocks: int, state: ReplicaState, in_flight: InFlight) -> bool:
    """Tell whether a replica may have room for so many blocks, or for as many as it has at all."""
    load = in_flight.load(state.replica)
    free = state.total_blocks - pinned_blocks(state, load)
    return is_open(state, load) and free >= min(blocks, state.total_blocks)

"""Requests that wait at the router until the replica of their choice has room for them."""

from collections.abc import Iterable, Iterator
from itertools import islice

from policies.admission import Admission
from policies.candidate import is_open, pinned_blocks
from policies.in_flight import InFlight
from policies.types import Booking, Park, ReplicaId, ReplicaState, Request, RequestId, SessionId


class Waiting:
    """Who waits, and who of them is to be decided anew."""

    def __init__(self) -> None:
        self._parked: dict[RequestId, tuple[Request, Park]] = {}  # the one decided last at the end

    def __len__(self) -> int:
        """How many wait."""
        return len(self._parked)

    def __contains__(self, request: RequestId) -> bool:
        """Whether this one waits."""
        return request in self._parked

    def add(self, request: Request, park: Park) -> None:
        """Let a request wait, anew if it did already."""
        self.discard(request.request)
        self._parked[request.request] = request, park

    def discard(self, request: RequestId) -> None:
        """Let a request wait no longer."""
        self._parked.pop(request, None)

    @property
    def sessions(self) -> set[SessionId | None]:
        """Those that have a place and wait for room."""
        return {park.booking.session for _, park in self._parked.values() if not park.held}

    @property
    def held(self) -> int:
        """How many wait for a place of their session."""
        return sum(park.held for _, park in self._parked.values())

    @property
    def held_sessions(self) -> set[SessionId | None]:
        """Those that wait for a place."""
        return {park.booking.session for _, park in self._parked.values() if park.held}

    def bookings(self) -> Iterator[Booking]:
        """Yield what each of them is expected to take."""
        return (park.booking for _, park in self._parked.values())

    def due(
        self,
        replicas: Iterable[ReplicaState],
        in_flight: InFlight,
        admission: Admission,
        others: int,
        now_s: float,
    ) -> Iterator[Request]:
        """Yield those for which their replica may have room, or that waited long enough, in order.

        Of those that are held, yield whose session may have a place.

        With them come `others`, those whose last decision is the oldest: theirs may have become
        the wrong replica to wait for. What the caller books for one counts before the next.
        """
        states = {state.replica: state for state in replicas}
        free_blocks: dict[ReplicaId, int | None] = {}

        def is_due(park: Park) -> bool:
            if park.held:
                session = park.booking.session
                return now_s >= park.until_s or session is None or admission.admits(session)
            replica = park.booking.replica
            state = states.get(replica)
            if now_s >= park.until_s or state is None or state.draining:
                return True
            if replica not in free_blocks:
                free_blocks[replica] = _free_blocks(state, in_flight)
            free = free_blocks[replica]
            return free is not None and free >= min(park.booking.blocks, state.total_blocks)

        with_place = (name for name, (_, park) in self._parked.items() if not park.held)
        again = set(islice(with_place, others))
        candidates = [
            (park, request)
            for name, (request, park) in self._parked.items()
            if name in again or is_due(park)
        ]
        candidates.sort(key=lambda parked: (parked[0].held, parked[0].order))
        for park, request in candidates:
            if request.request in again or is_due(park):
                yield request
                free_blocks.clear()


def _free_blocks(state: ReplicaState, in_flight: InFlight) -> int | None:
    """Return the blocks that another request could have at once; None where it is not let in."""
    load = in_flight.load(state.replica)
    return state.total_blocks - pinned_blocks(state, load) if is_open(state, load) else None

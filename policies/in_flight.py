"""Load that was sent to each replica and has not ended there: booked when a turn is placed."""

from collections import Counter, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import takewhile
from statistics import median

from policies.releases import HoldTimes, Release
from policies.types import Booking, ReplicaId, RequestId, SessionId

_RECENT_BOOKINGS = 256


@dataclass(frozen=True, slots=True)
class Load:
    """What requests in flight put on one replica.

    `uncached_tokens` are still to be prefilled, by `prefilling` requests, of which `cold_prefills`
    are far longer than usual, and by parked ones. `fetched_tokens` are what the former fetch from
    the shared tier. `decoding` requests sent their first byte. `blocks` of GPU memory are made
    unavailable by all that prefill or decode.
    """

    uncached_tokens: int = 0
    blocks: int = 0
    prefilling: int = 0
    cold_prefills: int = 0
    decoding: int = 0
    fetched_tokens: int = 0

    def __add__(self, other: "Load") -> "Load":
        """Return the sum."""
        return Load(
            self.uncached_tokens + other.uncached_tokens,
            self.blocks + other.blocks,
            self.prefilling + other.prefilling,
            self.cold_prefills + other.cold_prefills,
            self.decoding + other.decoding,
            self.fetched_tokens + other.fetched_tokens,
        )

    def __sub__(self, other: "Load") -> "Load":
        """Return the difference."""
        return Load(
            self.uncached_tokens - other.uncached_tokens,
            self.blocks - other.blocks,
            self.prefilling - other.prefilling,
            self.cold_prefills - other.cold_prefills,
            self.decoding - other.decoding,
            self.fetched_tokens - other.fetched_tokens,
        )


NO_LOAD = Load()


@dataclass(frozen=True, slots=True)
class _Entry:
    booking: Booking
    booked_at_s: float
    load: Load


class InFlight:
    """Bookings by request. Whatever is said of a request that is not booked changes nothing.

    Bookings older than `expiry_s` are released by `expire`, as their end was never reported.
    """

    def __init__(self, expiry_s: float) -> None:
        self.expiry_s = expiry_s
        self._entries: dict[RequestId, _Entry] = {}
        self._running: dict[ReplicaId, dict[RequestId, _Entry]] = {}
        self._loads: dict[ReplicaId, Load] = {}
        self._hold_times = HoldTimes()
        self._sessions: Counter[tuple[SessionId | None, ReplicaId]] = Counter()
        self._recent_tokens: deque[int] = deque(maxlen=_RECENT_BOOKINGS)
        self._median_tokens: float | None = None

    def __contains__(self, request: RequestId) -> bool:
        """Whether this one is booked, waiting ones too."""
        return request in self._entries

    def replica(self, request: RequestId) -> ReplicaId | None:
        """Return where a request is booked."""
        entry = self._entries.get(request)
        return entry.booking.replica if entry else None

    def book(self, booking: Booking, now_s: float) -> None:
        """Book a request's load, in place of what was booked for it before."""
        self.end(booking.request)
        if booking.parked:
            load = Load(booking.uncached_tokens)
        else:
            load = Load(
                booking.uncached_tokens,
                booking.blocks,
                prefilling=1,
                cold_prefills=int(booking.cold),
                fetched_tokens=booking.fetched_tokens,
            )
            self._sessions[booking.session, booking.replica] += 1
            self._recent_tokens.append(booking.uncached_tokens)
            self._median_tokens = None
        entry = self._entries[booking.request] = _Entry(booking, now_s, load)
        if not booking.parked:
            self._running.setdefault(booking.replica, {})[booking.request] = entry
        self._loads[booking.replica] = self.load(booking.replica) + load

    def is_prefilling(self, request: RequestId) -> bool:
        """Tell whether a request was sent and its first byte is awaited."""
        entry = self._entries.get(request)
        return entry is not None and entry.load.prefilling > 0

    def first_byte(self, request: RequestId) -> None:
        """Release a request's prefill; it decodes from now on."""
        if self.is_prefilling(request):
            entry = self._entries[request]
            booking = entry.booking
            load = Load(blocks=booking.blocks, decoding=1)
            self._entries[request] = _Entry(booking, entry.booked_at_s, load)
            self._loads[booking.replica] += load - entry.load

    def finish(self, request: RequestId, now_s: float) -> Booking | None:
        """End a request, and learn from it how long one holds its memory if it got an answer."""
        entry = self._entries.get(request)
        if entry and entry.load.decoding:
            self._hold_times.add(now_s - entry.booked_at_s)
        return self.end(request)

    def end(self, request: RequestId) -> Booking | None:
        """Release all of a request, however it ended, and return what was booked for it."""
        entry = self._entries.pop(request, None)
        if entry is None:
            return None
        booking = entry.booking
        self._loads[booking.replica] -= entry.load
        if self._loads[booking.replica] == NO_LOAD:
            del self._loads[booking.replica]
        if not booking.parked:
            del self._running[booking.replica][request]
            if not self._running[booking.replica]:
                del self._running[booking.replica]
            key = booking.session, booking.replica
            self._sessions[key] -= 1
            if not self._sessions[key]:
                del self._sessions[key]
        return booking

    def end_replica(self, replica: ReplicaId) -> tuple[Booking, ...]:
        """Release all that a replica had, as it is gone or began anew, and return it."""
        entries = self._entries.values()
        return self._end_all(e.booking for e in entries if e.booking.replica == replica)

    def expire(self, now_s: float) -> tuple[Booking, ...]:
        """Release the bookings whose end was never reported, and return them."""
        entries = self._entries.values()  # the oldest first
        old = takewhile(lambda entry: now_s - entry.booked_at_s > self.expiry_s, entries)
        return self._end_all(entry.booking for entry in old)

    def _end_all(self, bookings: Iterable[Booking]) -> tuple[Booking, ...]:
        ended = tuple(bookings)
        for booking in ended:
            self.end(booking.request)
        return ended

    def missing(
        self, replica: ReplicaId, has: Collection[RequestId], booked_before_s: float
    ) -> list[RequestId]:
        """Return what was booked on a replica before then and is not among what it says it has."""
        return [
            request
            for request, entry in self._entries.items()
            if entry.booking.replica == replica
            and not entry.booking.parked
            and entry.booked_at_s < booked_before_s
            and request not in has
        ]

    def load(self, replica: ReplicaId) -> Load:
        """Return what is in flight on a replica."""
        return self._loads.get(replica, NO_LOAD)

    def releases(self, replica: ReplicaId, usual_s: float, now_s: float) -> list[Release]:
        """Return when what runs on a replica will release its blocks.

        `usual_s` is how long a request holds them there, as long as few of the fleet's are known.
        """
        remaining_s = self._hold_times.remaining_s
        return [
            Release(remaining_s(now_s - entry.booked_at_s, usual_s), entry.booking.blocks)
            for entry in self._running.get(replica, {}).values()
        ]

    def session_requests(self, session: SessionId | None, replica: ReplicaId) -> int:
        """Return how many requests of a session are in flight on a replica."""
        return 0 if session is None else self._sessions.get((session, replica), 0)

    def sessions(self) -> Collection[tuple[SessionId | None, ReplicaId]]:
        """Return the sessions that have requests in flight, and where."""
        return self._sessions.keys()

    def median_uncached_tokens(self) -> float | None:
        """Return the median prefill of recent bookings, in tokens; None before the first."""
        if self._median_tokens is None and self._recent_tokens:
            self._median_tokens = median(self._recent_tokens)
        return self._median_tokens

"""Which sessions run while not all can: those that do, then those that wait longest for a place."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from policies.session_limit import SessionLimit
from policies.tunables import Tunables
from policies.types import BlockHash, Decision, Park, Refusal, Request, SessionId

_ASKS_AGAIN_S = 120.0
"""A session without a place that does not ask again for so long has given up."""


@dataclass(slots=True)
class _Place:
    entered_at_s: float
    seen_at_s: float


@dataclass(slots=True)
class _Asking:
    since_s: float
    asked_at_s: float
    is_nameless: bool
    """Its client gave no id: it is known by its prompt."""


class Admission:
    """Places of sessions that run. A session keeps its place while it has turns, and between them.

    That is for `session_hold_s` after a turn, or until there are more places taken than there may
    be and it is the one that has had no turn for the longest time.
    """

    def __init__(self) -> None:
        self.limit = SessionLimit()
        self._places: dict[SessionId, _Place] = {}  # the session that was seen last at the end
        self._asking: dict[SessionId, _Asking] = {}
        self._turned_away: dict[BlockHash, list[SessionId]] = {}  # nameless, by their last block

    def __len__(self) -> int:
        """How many sessions run."""
        return len(self._places)

    def admits(self, session: SessionId) -> bool:
        """Tell whether a session has a place, or finds one that is free."""
        limit = self.limit.sessions
        return limit is None or session in self._places or len(self) < limit

    def enter(self, session: SessionId, now_s: float) -> None:
        """Give a session a place, or note that it is seen there."""
        place = self._places.pop(session, None) or _Place(now_s, now_s)
        place.seen_at_s = now_s
        self._places[session] = place
        self._asking.pop(session, None)

    def hold(
        self, request: Request, outcome: Decision | Park, max_park_s: float, now_s: float
    ) -> Park | Refusal:
        """Let a request wait for a place of its session, or turn it away if it did for too long.

        `outcome` is what would have been with a place.
        """
        session = outcome.booking.session
        assert session is not None
        is_nameless = session == SessionId(request.request)
        asking = self._asking.setdefault(session, _Asking(now_s, now_s, is_nameless))
        asking.asked_at_s = now_s
        until_s = request.arrived_at_s + max_park_s
        reason = f"{len(self)} sessions run, and more would make their turns late"
        if now_s >= until_s:
            if asking.is_nameless and request.hashes:
                self._turned_away.setdefault(request.hashes[-1], []).append(session)
            return Refusal(request.request, session, reason)
        return Park(
            until_s=until_s,
            order=(False, asking.since_s),
            reason=f"waits for a place: {reason}",
            seconds=outcome.seconds,
            booking=replace(outcome.booking, parked=True),
            held=True,
        )

    def returning(self, hashes: Sequence[BlockHash]) -> SessionId | None:
        """Return whose prompt without an id was turned away, and is sent again.

        Who sends one of several equal prompts can't be told: the first comes back first.
        """
        sessions = self._turned_away.get(hashes[-1]) if hashes else None
        return sessions.pop(0) if sessions else None

    def began_at_s(self, session: SessionId, arrived_at_s: float) -> float:
        """Return from when on a turn that arrived then did not wait for a place."""
        place = self._places.get(session)
        return max(arrived_at_s, place.entered_at_s) if place else arrived_at_s

    def expire(
        self,
        busy: Collection[SessionId | None],
        held: Collection[SessionId | None],
        tunables: Tunables,
        now_s: float,
    ) -> None:
        """Adapt the limit, and take places from sessions that have left. To be called each second.

        `busy` sessions have turns that run or wait for room, `held` ones wait for a place.
        """
        for session in [one for one in self._places if one in busy]:  # `busy` has no order
            self.enter(session, now_s)
        self.limit.adapt(len(self), len(held), tunables.max_late_ratio, now_s)
        for session in [one for one in self._places if one not in busy]:
            idle_s = now_s - self._places[session].seen_at_s
            limit = self.limit.sessions
            if idle_s <= tunables.session_hold_s and (limit is None or len(self) <= limit):
                break
            del self._places[session]
        for session, asking in list(self._asking.items()):
            if session in held:
                asking.asked_at_s = now_s
            elif now_s - asking.asked_at_s > _ASKS_AGAIN_S:
                del self._asking[session]
        for block, sessions in list(self._turned_away.items()):
            left = [session for session in sessions if session in self._asking]
            if left:
                self._turned_away[block] = left
            else:
                del self._turned_away[block]

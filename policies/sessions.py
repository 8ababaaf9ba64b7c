"""Which replica each session lives on, and how much it still counts there between its turns."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile

from policies.lineages import Lineages
from policies.residency import Residency, Residents
from policies.types import BlockHash, ReplicaId, SessionId

_THINK_WEIGHT = 0.3
"""Weight of the newest think time in a session's mean."""

_LEAST_THINK_S = 1.0
"""A session that answers at once is not forgotten at once."""


@dataclass(frozen=True, slots=True)
class Session:
    """What is known of a session.

    `replica` is its home. `blocks` its last turn's prompt took. `think_s` is the mean time between
    the end of a turn and the next. `ended_at_s` is None from a turn's start to its end.
    """

    replica: ReplicaId
    turns: int
    blocks: int
    think_s: float
    seen_at_s: float
    ended_at_s: float | None


@dataclass(frozen=True, slots=True)
class LastTurn:
    """What a replica remembers of a session that it served: its last turn there.

    The prompt had `full_blocks`, the last of them `last_block`, and took `blocks` at `at_s`.
    """

    session: SessionId
    full_blocks: int
    last_block: BlockHash | None
    blocks: int
    at_s: float


class Sessions:
    """The sessions seen in the last `expiry_s`, at most `max_sessions`, and their `lineages`.

    A session's weight between turns halves every `half_life_thinks` of its mean think time, which
    starts at `think_s`.
    """

    def __init__(
        self,
        *,
        think_s: float,
        half_life_thinks: float,
        expiry_s: float,
        max_sessions: int,
        max_lineages: int,
    ) -> None:
        self.think_s = think_s
        self.half_life_thinks = half_life_thinks
        self.expiry_s = expiry_s
        self.max_sessions = max_sessions
        self._sessions: dict[SessionId, Session] = {}
        self._residency = Residency()
        self.lineages = Lineages(max_lineages)

    def __len__(self) -> int:
        """How many sessions are known."""
        return len(self._sessions)

    def __iter__(self) -> Iterator[tuple[SessionId, Session]]:
        """All that are known, the one seen last at the end."""
        return iter(self._sessions.items())

    def get(self, session: SessionId) -> Session | None:
        """Return what is known of a session."""
        return self._sessions.get(session)

    def start_turn(
        self,
        session: SessionId,
        home: ReplicaId,
        hashes: Sequence[BlockHash],
        blocks: int,
        now_s: float,
        *,
        is_again: bool = False,
    ) -> None:
        """Note a turn of a prompt of `blocks` blocks, and that the session lives at `home` now.

        One that starts again is no other one.
        """
        known = self._sessions.pop(session, None)
        think_s = known.think_s if known else self.think_s
        if known and known.ended_at_s is not None:
            think_s += _THINK_WEIGHT * (now_s - known.ended_at_s - think_s)
        turns = known.turns + (not is_again) if known else 1
        self._put(session, Session(home, turns, blocks, think_s, now_s, None))
        self.lineages.add_turn(session, hashes)
        self._forget_beyond_max()

    def resume(self, turns: Iterable[LastTurn], replica: ReplicaId) -> None:
        """Learn of sessions from a replica that served them, unless more recent turns are known."""
        for turn in turns:
            known = self._sessions.get(turn.session)
            if known and known.seen_at_s >= turn.at_s:
                continue
            self._put(
                turn.session,
                Session(replica, 1, turn.blocks, self.think_s, turn.at_s, turn.at_s),
            )
            if turn.last_block is not None:
                self.lineages.add_tail(turn.session, turn.full_blocks, turn.last_block)
        by_time = sorted(self._sessions.items(), key=lambda item: item[1].seen_at_s)
        self._sessions = dict(by_time)
        self._forget_beyond_max()

    def end_turn(self, session: SessionId, now_s: float) -> None:
        """Note that a turn ended, however it did."""
        if known := self._sessions.pop(session, None):
            self._put(session, replace(known, seen_at_s=now_s, ended_at_s=now_s))

    def residents(
        self, busy: Iterable[tuple[SessionId | None, ReplicaId]], now_s: float
    ) -> dict[ReplicaId, Residents]:
        """Return what lives on each replica, without sessions that are `busy` there."""
        return self._residency.sums(busy, now_s)

    def expire(self, now_s: float) -> None:
        """Forget sessions that were not seen for too long."""
        unseen = takewhile(
            lambda item: now_s - item[1].seen_at_s > self.expiry_s, self._sessions.items()
        )
        for session, _ in list(unseen):
            self._forget(session)

    def _put(self, session: SessionId, known: Session) -> None:
        self._sessions[session] = known
        if known.ended_at_s is None:
            self._residency.discard(session)
        else:
            half_life_s = max(known.think_s, _LEAST_THINK_S) * self.half_life_thinks
            self._residency.add(session, known.replica, known.blocks, half_life_s, known.seen_at_s)

    def _forget_beyond_max(self) -> None:
        too_many = len(self._sessions) - self.max_sessions
        for session in list(islice(self._sessions, max(0, too_many))):
            self._forget(session)

    def _forget(self, session: SessionId) -> None:
        del self._sessions[session]
        self._residency.discard(session)
        self.lineages.forget(session)

"""Which replica each session lives on, and how much it still counts there between its turns."""

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from policies.types import BlockHash, ReplicaId, SessionId

_THINK_WEIGHT = 0.3
"""Weight of the newest think time in a session's mean."""

_LEAST_THINK_S = 1.0
"""A session that answers at once is not forgotten at once."""

_LEAST_WEIGHT = 0.01
"""Sessions that are less likely than this to return count for nothing."""


@dataclass(frozen=True, slots=True)
class Tail:
    """Where a lineage's last turn ended: the last of its `blocks` full blocks."""

    blocks: int
    block: BlockHash

    def is_in(self, hashes: Sequence[BlockHash]) -> bool:
        """Tell whether a prompt begins with that turn's full blocks."""
        return self.blocks <= len(hashes) and hashes[self.blocks - 1] == self.block


@dataclass(frozen=True, slots=True)
class Session:
    """What is known of a session.

    `replica` is its home. `blocks` its last turn's prompt took. `think_s` is the mean time between
    the end of a turn and the next. `ended_at_s` is None from a turn's start to its end. `tails`
    has one entry per lineage, the most recent last.
    """

    replica: ReplicaId
    turns: int
    blocks: int
    think_s: float
    seen_at_s: float
    ended_at_s: float | None
    tails: tuple[Tail, ...]

    def extended_blocks(self, hashes: Sequence[BlockHash]) -> int:
        """Return how many blocks of a prompt the session's earlier turns had."""
        return max((tail.blocks for tail in self.tails if tail.is_in(hashes)), default=0)


@dataclass(frozen=True, slots=True)
class Residents:
    """Sessions between turns that live on a replica, and the GPU blocks they are about to claim.

    Both are sums over sessions, each weighted by how likely it is still to return.
    """

    sessions: float = 0.0
    blocks: float = 0.0


NO_RESIDENTS = Residents()


class Sessions:
    """The sessions seen in the last `expiry_s`, at most `max_sessions`, the most recent last.

    A session's weight between turns halves every `half_life_thinks` of its mean think time, which
    starts at `think_s`. At most `max_lineages` of a session are known.
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
        self._think_s = think_s
        self._half_life_thinks = half_life_thinks
        self._expiry_s = expiry_s
        self._max_sessions = max_sessions
        self._max_lineages = max_lineages
        self._sessions: dict[SessionId, Session] = {}
        self._residents: dict[SessionId, Session] = {}
        self._by_tail: dict[BlockHash, SessionId] = {}

    def __len__(self) -> int:
        """How many sessions are known."""
        return len(self._sessions)

    def get(self, session: SessionId) -> Session | None:
        """Return what is known of a session."""
        return self._sessions.get(session)

    def find(self, hashes: Sequence[BlockHash]) -> SessionId | None:
        """Return the session whose last turn, in one of its lineages, this prompt extends.

        At least one full block must have been added: equal prompts may be two agents' first ones.
        Of several sessions, the one that shares most is meant.
        """
        tails = self._by_tail
        return next((tails[h] for h in reversed(hashes[:-1]) if h in tails), None)

    def start_turn(
        self,
        session: SessionId,
        home: ReplicaId,
        hashes: Sequence[BlockHash],
        blocks: int,
        now_s: float,
    ) -> None:
        """Note a turn of a prompt of `blocks` blocks, and that the session lives at `home` now."""
        known = self._sessions.pop(session, None)
        think_s, tails = self._think_s, tuple[Tail, ...]()
        if known:
            think_s, tails = known.think_s, known.tails
            if known.ended_at_s is not None:
                think_s += _THINK_WEIGHT * (now_s - known.ended_at_s - think_s)
        if hashes:
            extended = tuple(tail for tail in tails if tail.is_in(hashes))
            others = tuple(tail for tail in tails if tail not in extended)
            oldest = others[: max(0, len(others) + 1 - self._max_lineages)]
            self._drop_tails(session, (*extended, *oldest))
            tails = (*others[len(oldest) :], Tail(len(hashes), hashes[-1]))
            self._by_tail[hashes[-1]] = session
        turns = known.turns + 1 if known else 1
        self._put(session, Session(home, turns, blocks, think_s, now_s, None, tails))
        if len(self._sessions) > self._max_sessions:
            self._forget(next(iter(self._sessions)))

    def end_turn(self, session: SessionId, now_s: float) -> None:
        """Note that a turn ended, however it did."""
        if known := self._sessions.pop(session, None):
            self._put(session, replace(known, seen_at_s=now_s, ended_at_s=now_s))

    def residents(
        self, busy: Container[tuple[SessionId | None, ReplicaId]], now_s: float
    ) -> dict[ReplicaId, Residents]:
        """Return what lives on each replica, without sessions that are `busy` there."""
        counts: dict[ReplicaId, float] = {}
        blocks: dict[ReplicaId, float] = {}
        for session, known in self._residents.items():
            replica = known.replica
            if (session, replica) in busy:
                continue
            if (weight := self._weight(known, now_s)) >= _LEAST_WEIGHT:
                counts[replica] = counts.get(replica, 0.0) + weight
                blocks[replica] = blocks.get(replica, 0.0) + weight * known.blocks
        return {replica: Residents(counts[replica], blocks[replica]) for replica in counts}

    def expire(self, now_s: float) -> None:
        """Forget sessions that were not seen for too long."""
        unseen = takewhile(
            lambda item: now_s - item[1].seen_at_s > self._expiry_s, self._sessions.items()
        )
        for session, _ in list(unseen):
            self._forget(session)
        self._residents = {
            session: known
            for session, known in self._residents.items()
            if self._weight(known, now_s) >= _LEAST_WEIGHT
        }

    def _weight(self, known: Session, now_s: float) -> float:
        half_life_s = max(known.think_s, _LEAST_THINK_S) * self._half_life_thinks
        return math.exp2((known.seen_at_s - now_s) / half_life_s)

    def _put(self, session: SessionId, known: Session) -> None:
        self._sessions[session] = known
        self._residents[session] = known

    def _forget(self, session: SessionId) -> None:
        self._drop_tails(session, self._sessions.pop(session).tails)
        self._residents.pop(session, None)

    def _drop_tails(self, session: SessionId, tails: tuple[Tail, ...]) -> None:
        for tail in tails:
            if self._by_tail.get(tail.block) == session:
                del self._by_tail[tail.block]

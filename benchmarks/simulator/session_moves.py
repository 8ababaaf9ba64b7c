"""Turns that went elsewhere than their session's last one."""

from collections import Counter

from policies.types import ReplicaId, SessionId


class SessionMoves:
    """Counts them; `splits` are those whose session had another turn in flight."""

    def __init__(self) -> None:
        self.moves = 0
        self.splits = 0
        self._last: dict[SessionId, ReplicaId] = {}
        self._open: Counter[SessionId] = Counter()

    def placed(self, session: SessionId, replica: ReplicaId, *, counts: bool) -> None:
        """Note where a turn went, and count it if it `counts` and moved."""
        if counts and self._last.get(session, replica) != replica:
            self.moves += 1
            self.splits += self._open[session] > 0
        self._last[session] = replica
        self._open[session] += 1

    def finished(self, session: SessionId) -> None:
        """Note that a turn ended."""
        self._open[session] -= 1
        if not self._open[session]:
            del self._open[session]

"""What sessions between turns still count for where they live: sums that decay as time passes."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from policies.types import ReplicaId, SessionId

_STEPS_PER_OCTAVE = 2
"""Half-lives are rounded to so many steps per factor of 2; those that share one decay together."""

_MAX_HALVINGS = 500
"""Sums are brought up to date before floating-point numbers cannot hold what came since."""


@dataclass(frozen=True, slots=True)
class Residents:
    """Sessions between turns that live on a replica, and the GPU blocks they are about to claim.

    Both are sums over sessions, each weighted by how likely it is still to return.
    """

    sessions: float = 0.0
    blocks: float = 0.0


NO_RESIDENTS = Residents()


@dataclass(frozen=True, slots=True)
class Resident:
    """A session that lives on `replica`; its weight was 1 at `at_s` and halves every half-life."""

    replica: ReplicaId
    blocks: int
    at_s: float
    half_life_s: float

    def weight(self, now_s: float) -> float:
        """Return how likely it is to return."""
        return math.exp2((self.at_s - now_s) / self.half_life_s)


@dataclass(slots=True)
class _Sum:
    members: int = 0
    sessions: float = 0.0
    blocks: float = 0.0


class _Group:
    """Residents of one half-life. Their sums are as of one time: its passing changes no sum."""

    def __init__(self, half_life_s: float, at_s: float) -> None:
        self._half_life_s = half_life_s
        self._at_s = at_s
        self._sums: dict[ReplicaId, _Sum] = {}

    def change(self, resident: Resident, members: int) -> None:
        """Add a resident (1) or take it away (-1)."""
        self._bring_near(resident.at_s)
        weight = members * resident.weight(self._at_s)
        one = self._sums.setdefault(resident.replica, _Sum())
        one.members += members
        one.sessions += weight
        one.blocks += weight * resident.blocks
        if not one.members:  # so that rounding leaves nothing behind
            del self._sums[resident.replica]

    def sums(self, now_s: float) -> Iterator[tuple[ReplicaId, float, float]]:
        """Yield each replica's weighted sessions and blocks."""
        weight = math.exp2((self._at_s - now_s) / self._half_life_s)
        for replica, one in self._sums.items():
            yield replica, weight * one.sessions, weight * one.blocks

    def _bring_near(self, at_s: float) -> None:
        """Move on before a weight at `at_s` is too large for a floating-point number."""
        if at_s - self._at_s > _MAX_HALVINGS * self._half_life_s:
            weight = math.exp2((self._at_s - at_s) / self._half_life_s)
            self._at_s = at_s
            for one in self._sums.values():
                one.sessions *= weight
                one.blocks *= weight


class Residency:
    """Residents by session, and sums of them by replica, kept up to date as they come and go."""

    def __init__(self) -> None:
        self._residents: dict[SessionId, Resident] = {}
        self._groups: dict[float, _Group] = {}

    def add(
        self,
        session: SessionId,
        replica: ReplicaId,
        blocks: int,
        half_life_s: float,
        now_s: float,
    ) -> None:
        """Count a session from now on, anew if it did already."""
        self.discard(session)
        steps = round(math.log2(half_life_s) * _STEPS_PER_OCTAVE)
        resident = Resident(replica, blocks, now_s, math.exp2(steps / _STEPS_PER_OCTAVE))
        self._residents[session] = resident
        if (group := self._groups.get(resident.half_life_s)) is None:
            group = self._groups[resident.half_life_s] = _Group(resident.half_life_s, now_s)
        group.change(resident, 1)

    def discard(self, session: SessionId) -> None:
        """Count a session no longer."""
        if resident := self._residents.pop(session, None):
            self._groups[resident.half_life_s].change(resident, -1)

    def sums(
        self, without: Iterable[tuple[SessionId | None, ReplicaId]], now_s: float
    ) -> dict[ReplicaId, Residents]:
        """Return what lives on each replica, `without` these sessions there."""
        sessions: dict[ReplicaId, float] = {}
        blocks: dict[ReplicaId, float] = {}
        for group in self._groups.values():
            for replica, more_sessions, more_blocks in group.sums(now_s):
                sessions[replica] = sessions.get(replica, 0.0) + more_sessions
                blocks[replica] = blocks.get(replica, 0.0) + more_blocks
        for session, replica in without:
            resident = self._residents.get(session) if session is not None else None
            if resident and resident.replica == replica:
                weight = resident.weight(now_s)
                sessions[replica] -= weight
                blocks[replica] -= weight * resident.blocks
        return {
            replica: Residents(max(0.0, sessions[replica]), max(0.0, blocks[replica]))
            for replica in sessions
        }

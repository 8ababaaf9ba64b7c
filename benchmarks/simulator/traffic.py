"""Which sessions run and when each sends its next step."""

from collections.abc import Sequence
from random import Random
from typing import Protocol

from benchmarks.simulator.turn import LiveSession, Turn
from benchmarks.trace_session import TraceSession
from policies.types import SessionId

_START_S = 60.0
"""The first sessions of a closed loop start within this time."""

Arrival = tuple[float, Turn]
"""When a turn is sent, and the turn."""


class Traffic(Protocol):
    """Where turns come from."""

    def start(self) -> list[Arrival]:
        """Return the first arrivals."""

    def finished(self, turn: Turn, now_s: float) -> list[Arrival]:
        """Return the arrivals that follow a turn's end."""


class ClosedLoop:
    """`live` sessions at any time: where one ends another starts at once.

    The first ones are in their midst, so that the loop is about as it is after a long while: a
    session is met in proportion to its own steps, whether it sends bursts or not. Each place draws
    its own sessions, so that all policies meet the same ones.
    """

    def __init__(
        self, sessions: Sequence[TraceSession], live: int, seed: int, merged: int = 1
    ) -> None:
        self._sessions = sessions
        self._places = [Random(f"{seed}/{place}") for place in range(live)]  # noqa: S311
        self._replays = 0
        self._merged = merged
        self._live: dict[SessionId, tuple[LiveSession, Random]] = {}

    def start(self) -> list[Arrival]:
        """Return the first arrivals."""
        weights = [len(session.own_steps) for session in self._sessions]
        arrivals = []
        for rng in self._places:
            [trace] = rng.choices(self._sessions, weights)
            first_step = rng.choice(trace.own_steps)
            arrivals += self._begin(trace, first_step, rng, rng.uniform(0, _START_S))
        return arrivals

    def finished(self, turn: Turn, now_s: float) -> list[Arrival]:
        """Return the next step of the turn's session, or of the one that follows it."""
        assert turn.request.session is not None
        session, rng = self._live[turn.request.session]
        following = session.end_turn(now_s)
        if following is not None:
            return following
        del self._live[session.session]
        return self._begin(rng.choice(self._sessions), 0, rng, now_s)

    def _begin(
        self, trace: TraceSession, first_step: int, rng: Random, now_s: float
    ) -> list[Arrival]:
        self._replays += 1
        session = LiveSession(trace, self._replays, first_step=first_step, merged=self._merged)
        self._live[session.session] = session, rng
        return session.next_step(now_s)


class OpenLoop:
    """Sessions arrive at random, `sessions_per_s` of them, and each starts with its first step."""

    def __init__(
        self,
        sessions: Sequence[TraceSession],
        sessions_per_s: float,
        end_s: float,
        seed: int,
        merged: int = 1,
    ) -> None:
        self._sessions = sessions
        self._merged = merged
        self._sessions_per_s = sessions_per_s
        self._end_s = end_s
        self._rng = Random(f"{seed}/open")  # noqa: S311
        self._live: dict[SessionId, LiveSession] = {}

    def start(self) -> list[Arrival]:
        """Return the first steps of all sessions."""
        arrivals = []
        now_s = 0.0
        while (now_s := now_s + self._rng.expovariate(self._sessions_per_s)) < self._end_s:
            session = LiveSession(
                self._rng.choice(self._sessions), len(self._live) + 1, merged=self._merged
            )
            self._live[session.session] = session
            arrivals += session.next_step(now_s)
        return arrivals

    def finished(self, turn: Turn, now_s: float) -> list[Arrival]:
        """Return the next step of the turn's session, if it has one."""
        assert turn.request.session is not None
        session = self._live[turn.request.session]
        following = session.end_turn(now_s)
        if following is None:
            del self._live[session.session]
        return following or []

"""A day of agents' traffic: ramp, plateau, spike, sessions that take their time, and two nights.

Between the corners of `SESSIONS_RATIO` the number of live sessions changes evenly. Where a session
ends and its place is still open, another one starts. On the plateau the system prompt changes, for
all sessions from one moment to the next: nothing that is cached can be reused any more. Later
twice as many sessions are there, but those that come then pause several times as long: as many
requests, and twice the memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

import numpy as np

from benchmarks.simulator.traffic import Arrival
from benchmarks.simulator.turn import LiveSession, Turn
from benchmarks.trace_session import TraceSession
from policies.types import SessionId

SESSIONS_RATIO = (
    (0.00, 0.15),
    (0.08, 0.15),
    (0.24, 1.00),
    (0.44, 1.00),
    (0.44, 1.75),
    (0.49, 1.75),
    (0.49, 1.00),
    (0.57, 1.00),
    (0.60, 2.00),
    (0.72, 2.00),
    (0.75, 1.00),
    (0.78, 1.00),
    (0.88, 0.15),
    (1.00, 0.15),
)
"""Parts of the day, and live sessions then, by those of the plateau."""

PROMPT_CHANGES_AT = 0.34
PATIENT = (0.57, 0.72)
PATIENT_RATIO = 4.0
"""Sessions that begin in that part of the day pause so many times as long."""

_STEP_S = 5.0
_SPREAD_S = 60.0
"""Those who come at once come within this time."""


@dataclass(slots=True)
class _Place:
    """One of those who work with agents: until when, and what they do."""

    rng: Random
    closes_at_s: float
    session: LiveSession | None = None


class Day:
    """A day of `day_s`, with `plateau` live sessions on its plateau.

    Each place draws its own sessions, so that all meet the same ones.
    """

    def __init__(
        self, sessions: Sequence[TraceSession], plateau: int, day_s: float, seed: int, merged: int
    ) -> None:
        self._sessions = sessions
        self._patient = [_with_pauses(session, PATIENT_RATIO) for session in sessions]
        self._plateau = plateau
        self._day_s = day_s
        self._seed = seed
        self._merged = merged
        self._replays = 0
        self._places: dict[SessionId, _Place] = {}
        self._old: list[LiveSession] = []

    def live(self, at_s: float) -> int:
        """Return how many sessions are live."""
        parts, ratios = zip(*SESSIONS_RATIO, strict=True)
        return round(self._plateau * float(np.interp(at_s / self._day_s, parts, ratios)))

    def start(self) -> list[Arrival]:
        """Return the first arrival of each place, whenever it opens."""
        times = np.arange(0.0, self._day_s, _STEP_S)
        live = [self.live(float(at_s)) for at_s in times]
        arrivals: list[Arrival] = []
        for number in range(max(live)):
            rng = Random(f"{self._seed}/{number}")  # noqa: S311  # a simulation
            is_open = np.array([number < count for count in live])
            changes = np.flatnonzero(np.diff(is_open)) + 1
            edges = [0, *changes.tolist(), len(times)]
            for begin, end in pairwise(edges):
                if is_open[begin]:
                    place = _Place(rng, float(times[end - 1]))
                    at_s = float(times[begin]) + rng.uniform(0, _SPREAD_S)
                    arrivals += self._begin(place, at_s, in_its_midst=begin == 0)
        return arrivals

    def finished(self, turn: Turn, now_s: float) -> list[Arrival]:
        """Return the next step of the turn's session, or of the one that follows it."""
        assert turn.request.session is not None
        place = self._places[turn.request.session]
        session = place.session
        assert session is not None
        session.in_flight -= 1
        if session.in_flight:
            return []
        if now_s >= place.closes_at_s:
            del self._places[session.session]
            return []
        if session.ended:
            del self._places[session.session]
            return self._begin(place, now_s)
        if now_s >= PROMPT_CHANGES_AT * self._day_s and session in self._old:
            self._old.remove(session)
            session.change_system_prompt("changed")
        return session.next_step(now_s)

    def _begin(self, place: _Place, now_s: float, *, in_its_midst: bool = False) -> list[Arrival]:
        part = now_s / self._day_s
        traces = self._patient if PATIENT[0] <= part < PATIENT[1] else self._sessions
        first_step = 0
        if in_its_midst:
            [trace] = place.rng.choices(traces, [len(session.steps) for session in traces])
            first_step = place.rng.randrange(len(trace.steps))
        else:
            trace = place.rng.choice(traces)
        self._replays += 1
        session = LiveSession(trace, self._replays, first_step=first_step, merged=self._merged)
        if part >= PROMPT_CHANGES_AT:
            session.change_system_prompt("changed")
        else:
            self._old.append(session)
        place.session = session
        self._places[session.session] = place
        return session.next_step(now_s)


def _with_pauses(session: TraceSession, ratio: float) -> TraceSession:
    steps = tuple(
        tuple(replace(one, think_s=one.think_s * ratio) for one in step) for step in session.steps
    )
    return replace(session, steps=steps)

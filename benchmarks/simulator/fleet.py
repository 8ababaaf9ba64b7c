"""Replicas, a policy and traffic on one virtual clock."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf

from benchmarks.peers.policy import Policy, Wait
from benchmarks.simulator.agenda import Agenda, Retry, Tick, Unpark, Wake
from benchmarks.simulator.engine import Engine
from benchmarks.simulator.measurements import Measurements
from benchmarks.simulator.progress import Admitted, FirstToken, Progress
from benchmarks.simulator.traffic import Arrival, Traffic
from benchmarks.simulator.turn import Turn
from policies.kv_events import EventBatch
from policies.types import ReplicaId, ReplicaState, RequestId

_TICK_S = 1.0

_RETRY_AFTER_S = 2.0
"""A client that was turned away tries again so soon: the gateway's default for Retry-After."""


class Fleet:
    """Runs traffic through a policy and engines, and reports to `measurements`.

    `operate` is called once a second with the fleet and the time, and may let replicas join and
    leave.
    """

    def __init__(
        self,
        engines: Iterable[Engine],
        policy: Policy,
        traffic: Traffic,
        measurements: Measurements,
        operate: "Callable[[Fleet, float], None] | None" = None,
    ) -> None:
        self._engines = {engine.replica: engine for engine in engines}
        self._leaving: set[ReplicaId] = set()
        self._policy = policy
        self._traffic = traffic
        self._measurements = measurements
        self._operate = operate
        self._agenda = Agenda()
        self._parked: dict[RequestId, Turn] = {}
        self._sequences: dict[ReplicaId, int] = {}

    @property
    def engines(self) -> Sequence[Engine]:
        """The replicas that are there, those that drain among them."""
        return list(self._engines.values())

    def join(self, engine: Engine, now_s: float) -> None:
        """Add a replica, with a name that none had before."""
        self._engines[engine.replica] = engine
        self._tell(engine, now_s, first=True)

    def drain(self, replica: ReplicaId) -> None:
        """Send a replica no more requests. Raises ValueError where it's the last that gets any."""
        if all(one.draining or one.replica == replica for one in self.engines):
            msg = f"{replica} is the last replica"
            raise ValueError(msg)
        self._engines[replica].drain()

    def resume(self, replica: ReplicaId) -> None:
        """Send a replica that drains requests again."""
        self._engines[replica].resume()

    def leave(self, replica: ReplicaId, now_s: float) -> None:
        """Drain a replica and let it go once its requests ended; what it held is lost then."""
        self.drain(replica)
        self._leaving.add(replica)
        self._let_go(self._engines[replica], now_s)

    def run(self, end_s: float) -> None:
        """Run until `end_s` of virtual time."""
        self._schedule(self._traffic.start())
        for engine in self.engines:
            self._tell(engine, 0.0, first=True)
        self._agenda.put(_TICK_S, Tick())
        for now_s, item in self._agenda.until(end_s):
            match item:
                case Turn():
                    self._measurements.arrived(item, now_s)
                    self._place(item, now_s)
                case Retry(turn):
                    request = replace(turn.request, arrived_at_s=now_s)
                    self._place(replace(turn, request=request), now_s)
                case Wake(engine, at_s):
                    if at_s == engine.next_at_s:  # else it changed its plans
                        self._progress(engine, engine.advance(now_s), now_s)
                case Unpark():
                    self._unpark(now_s)
                case Tick():
                    self._policy.tick(len(self._states()), now_s)
                    if self._operate:
                        self._operate(self, now_s)
                    self._measurements.samples.add(self.engines, now_s)
                    self._agenda.put(now_s + _TICK_S, item)

    def _place(self, turn: Turn, now_s: float) -> None:
        """Ask the policy where a turn goes, and send it there unless it waits."""
        request = turn.request
        states = self._states()
        began = time.perf_counter()
        placed = self._policy.place(request, states, now_s)
        self._measurements.decide_s += time.perf_counter() - began
        self._measurements.decisions += 1
        if isinstance(placed, Wait):
            self._agenda.put(placed.until_s, Unpark())
            self._parked[request.request] = turn
        else:
            self._send(turn, placed, now_s)

    def _unpark(self, now_s: float) -> None:
        """Send or turn away those of the waiting turns that the policy lets go."""
        for request, replica in self._policy.place_waiting(self._states(), now_s):
            self._send(self._parked.pop(request), replica, now_s)

    def _states(self) -> list[ReplicaState]:
        return [engine.state for engine in self._engines.values() if not engine.draining]

    def _send(self, turn: Turn, replica: ReplicaId | None, now_s: float) -> None:
        if replica is None:
            self._measurements.refused(turn)
            self._agenda.put(now_s + _RETRY_AFTER_S, Retry(turn))
            return
        engine = self._engines[replica]
        self._measurements.placed(turn, replica, now_s)
        self._progress(engine, engine.submit(turn, now_s), now_s)

    def _progress(self, engine: Engine, progress: Sequence[Progress], now_s: float) -> None:
        """Pass on what an engine did, and send what waits for that."""
        released = False
        self._tell(engine, now_s)
        for one in progress:
            request = one.turn.request.request
            if isinstance(one, Admitted):
                self._measurements.admitted(one, engine, self._engines.values(), now_s)
            elif isinstance(one, FirstToken):
                self._policy.first_byte(request, now_s)
                self._measurements.first_token(one.turn, now_s)
            else:
                self._policy.end(request, now_s)
                self._measurements.finished(one.turn, now_s)
                self._schedule(self._traffic.finished(one.turn, now_s))
                released = True
        if engine.next_at_s < inf:
            self._agenda.put(engine.next_at_s, Wake(engine, engine.next_at_s))
        self._let_go(engine, now_s)
        if released and self._parked:
            self._unpark(now_s)

    def _let_go(self, engine: Engine, now_s: float) -> None:
        """Remove a replica that is to leave and has nothing to do."""
        if engine.replica in self._leaving and engine.next_at_s == inf:
            self._leaving.remove(engine.replica)
            del self._engines[engine.replica]
            self._policy.forget(engine.replica, now_s)

    def _tell(self, engine: Engine, now_s: float, *, first: bool = False) -> None:
        events = engine.memory.events.take()
        if events or first:
            sequence = self._sequences.get(engine.replica, 0)
            self._sequences[engine.replica] = sequence + 1
            self._policy.apply(EventBatch(engine.replica, 1, sequence, events), now_s)

    def _schedule(self, arrivals: Sequence[Arrival]) -> None:
        for at_s, turn in arrivals:
            self._agenda.put(at_s, turn)

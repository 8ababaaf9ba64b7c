"""Replicas, a policy and traffic on one virtual clock."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from math import inf

from benchmarks.peers.policy import Policy, Wait
from benchmarks.simulator.block_pool import BlockPool
from benchmarks.simulator.engine import Admitted, Engine, FirstToken, Progress
from benchmarks.simulator.host_cache import HostCache
from benchmarks.simulator.measurements import Measurements
from benchmarks.simulator.presets import Hardware
from benchmarks.simulator.traffic import Arrival, Traffic
from benchmarks.simulator.turn import Turn
from policies.kv_events import EventBatch
from policies.types import ReplicaId, RequestId

_TICK_S = 1.0
_UNLIMITED_BLOCKS = 1 << 40


def make_engines(
    hardware: Hardware, replicas: int, block_size: int, *, unlimited: bool = False
) -> list[Engine]:
    """Return engines; `unlimited` ones share one memory without end."""
    gpu_blocks = _UNLIMITED_BLOCKS if unlimited else hardware.gpu_tokens // block_size
    host_blocks = 0 if unlimited else hardware.host_tokens // block_size
    shared = BlockPool(gpu_blocks)
    return [
        Engine(
            ReplicaId(f"r{number}"),
            hardware,
            shared if unlimited else BlockPool(gpu_blocks),
            HostCache(host_blocks),
        )
        for number in range(replicas)
    ]


@dataclass(frozen=True, slots=True)
class _Wake:
    engine: Engine
    at_s: float


@dataclass(frozen=True, slots=True)
class _Unpark:
    pass


@dataclass(frozen=True, slots=True)
class _Tick:
    pass


class Fleet:
    """Runs traffic through a policy and engines, and reports to `measurements`."""

    def __init__(
        self,
        engines: Sequence[Engine],
        policy: Policy,
        traffic: Traffic,
        measurements: Measurements,
    ) -> None:
        self._engines = engines
        self._by_replica = {engine.replica: engine for engine in engines}
        self._policy = policy
        self._traffic = traffic
        self._measurements = measurements
        self._agenda: list[tuple[float, int, Turn | _Wake | _Unpark | _Tick]] = []
        self._order = count()
        self._parked: dict[RequestId, Turn] = {}
        self._sequences: dict[ReplicaId, int] = {}

    def run(self, end_s: float) -> None:
        """Run until `end_s` of virtual time."""
        self._schedule(self._traffic.start())
        for engine in self._engines:
            self._tell(engine, 0.0, first=True)
        self._put(_TICK_S, _Tick())
        while self._agenda and self._agenda[0][0] <= end_s:
            now_s, _, item = heappop(self._agenda)
            match item:
                case Turn():
                    self._measurements.arrived(item, now_s)
                    self._place(item, now_s)
                case _Wake(engine, at_s):
                    if at_s == engine.next_at_s:  # else it changed its plans
                        self._progress(engine, engine.advance(now_s), now_s)
                case _Unpark():
                    self._unpark(now_s)
                case _Tick():
                    self._policy.tick(now_s)
                    self._measurements.sample(now_s)
                    self._put(now_s + _TICK_S, item)

    def _place(self, turn: Turn, now_s: float) -> None:
        """Ask the policy where a turn goes, and send it there unless it waits."""
        request = turn.request
        states = [engine.state for engine in self._engines]
        began = time.perf_counter()
        placed = self._policy.place(request, states, now_s)
        self._measurements.decide_s += time.perf_counter() - began
        self._measurements.decisions += 1
        if isinstance(placed, Wait):
            self._put(placed.until_s, _Unpark())
            self._parked[request.request] = turn
        else:
            self._send(turn, placed, now_s)

    def _unpark(self, now_s: float) -> None:
        """Send those of the waiting turns that the policy lets go."""
        states = [engine.state for engine in self._engines]
        for request, replica in self._policy.place_waiting(states, now_s):
            self._send(self._parked.pop(request), replica, now_s)

    def _send(self, turn: Turn, replica: ReplicaId, now_s: float) -> None:
        engine = self._by_replica[replica]
        self._measurements.placed(turn, replica)
        self._progress(engine, engine.submit(turn, now_s), now_s)

    def _progress(self, engine: Engine, progress: Sequence[Progress], now_s: float) -> None:
        """Pass on what an engine did, and send what waits for that."""
        released = False
        self._tell(engine, now_s)
        for one in progress:
            request = one.turn.request.request
            if isinstance(one, Admitted):
                self._measurements.admitted(one, engine, now_s)
            elif isinstance(one, FirstToken):
                self._policy.first_byte(request, now_s)
                self._measurements.first_token(one.turn, now_s)
            else:
                self._policy.end(request, now_s)
                self._measurements.finished(one.turn, now_s)
                self._schedule(self._traffic.finished(one.turn, now_s))
                released = True
        if engine.next_at_s < inf:
            self._put(engine.next_at_s, _Wake(engine, engine.next_at_s))
        if released and self._parked:
            self._unpark(now_s)

    def _tell(self, engine: Engine, now_s: float, *, first: bool = False) -> None:
        events = engine.take_events()
        if events or first:
            sequence = self._sequences.get(engine.replica, 0)
            self._sequences[engine.replica] = sequence + 1
            self._policy.apply(EventBatch(engine.replica, 1, sequence, events), now_s)

    def _schedule(self, arrivals: Sequence[Arrival]) -> None:
        for at_s, turn in arrivals:
            self._put(at_s, turn)

    def _put(self, at_s: float, item: Turn | _Wake | _Unpark | _Tick) -> None:
        heappush(self._agenda, (at_s, next(self._order), item))

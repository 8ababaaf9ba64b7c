"""Whole simulations: repeatable, and their figures add up."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from benchmarks.generated_sessions import generate_sessions
from benchmarks.peers.policy import Peer, Wait
from benchmarks.peers.registry import ORACLE, POLICIES, POOLED_ORACLE, make_policy
from benchmarks.simulator.fleet import Fleet
from benchmarks.simulator.measurements import Measurements
from benchmarks.simulator.presets import PRESETS
from benchmarks.simulator.replica_factory import ReplicaFactory
from benchmarks.simulator.result import Result
from benchmarks.simulator.shared_tier import SharedTierSize
from benchmarks.simulator.simulation import Setting, simulate
from benchmarks.simulator.traffic import ClosedLoop, OpenLoop
from benchmarks.trace_options import add_bursts, fit
from policies.types import ReplicaId, ReplicaState, Request, RequestId

pytestmark = pytest.mark.slow

HARDWARE = PRESETS["kimi-b200-host"]
SESSIONS = add_bursts(
    fit(generate_sessions(60, 1), HARDWARE.max_context_tokens, 60.0),
    0.1,
    4,
    HARDWARE.max_context_tokens,
    seed=1,
)


SHARED = SharedTierSize.of(HARDWARE, 10, 3e6, 15)


def run(
    spec: str,
    load: float = 8,
    seed: int = 1,
    *,
    open_loop: bool = False,
    shared: SharedTierSize | None = None,
) -> Result:
    """Simulate two replicas for ten minutes."""
    setting = Setting(
        HARDWARE, 2, load, seed, 600.0, 120.0, merged=16, open_loop=open_loop, shared=shared
    )
    return simulate(spec, SESSIONS, setting)


def without_clock(result: Result) -> dict[str, object]:
    return result.row() | {"decide_ms": None}


@pytest.mark.parametrize("shared", [None, SHARED], ids=["own", "shared"])
@pytest.mark.parametrize("spec", POLICIES)
def test_figures_add_up(spec: str, shared: SharedTierSize | None) -> None:
    """Hits and misses make the prompts; no more is hit than can be, and the oracle hits it all."""
    result = run(spec, shared=shared)
    hits = result.hits
    assert hits.gpu + hits.cpu + hits.shared == pytest.approx(result.hit_ratio)
    assert hits.shared == 0 or shared
    if spec == "random" and shared:
        assert hits.shared > 0.05
    misses = result.misses
    assert result.hit_ratio + misses.first_seen + misses.evicted + misses.elsewhere == (
        pytest.approx(1.0)
    )
    assert 0 < result.hit_ratio <= result.available_ratio == pytest.approx(1 - misses.first_seen)
    if spec == ORACLE:
        assert result.captured_ratio == 1.0
    assert result.requests > 50
    assert 0 < result.ttft_s.p50 <= result.ttft_s.p90 <= result.ttft_s.p99
    assert result.goodput_rps * 480 <= result.requests


def test_pooled_memory_is_a_bound() -> None:
    """It captures less than memory without end, and more than replicas that each have their own."""
    captured = [run(spec, load=16).captured_ratio for spec in ("random", POOLED_ORACLE, ORACLE)]
    assert captured[0] < captured[1] <= captured[2] == 1.0


@pytest.mark.parametrize("open_loop", [False, True])
def test_the_same_seed_gives_the_same_result(open_loop: bool) -> None:
    """Only the time that decisions take differs."""
    load = 0.05 if open_loop else 8
    first = without_clock(run("warmturn", load, open_loop=open_loop))
    assert first == without_clock(run("warmturn", load, open_loop=open_loop))
    assert first != without_clock(run("warmturn", load, seed=2, open_loop=open_loop))


def test_a_closed_loop_keeps_its_sessions() -> None:
    """Where a session ends another one starts."""
    loop = ClosedLoop(SESSIONS, 5, seed=1)
    arrivals = loop.start()
    assert len({turn.request.session for _, turn in arrivals}) == 5
    for _ in range(500):
        arrivals.sort(key=lambda arrival: arrival[0])
        at_s, turn = arrivals.pop(0)
        arrivals += loop.finished(turn, at_s + 1)
        assert len({turn.request.session for _, turn in arrivals}) == 5


def test_bursts_change_nobody_elses_sessions() -> None:
    """Where sessions are thick and where they only could be, a closed loop draws the same ones."""
    sessions = fit(generate_sessions(60, 1), HARDWARE.max_context_tokens, 60.0)
    with_bursts, without = (
        ClosedLoop(add_bursts(sessions, 0.2, size, HARDWARE.max_context_tokens, seed=1), 30, 1)
        for size in (8, 0)
    )
    starts = [
        {(turn.request.session, at_s) for at_s, turn in loop.start()}
        for loop in (with_bursts, without)
    ]
    assert starts[0] == starts[1]


def test_kinds_of_sessions_are_measured_apart() -> None:
    """All requests are of plain sessions or of thick ones."""
    result = run("warmturn")
    assert result.ttft_plain_s is not None
    assert result.ttft_thick_s is not None
    low, high = sorted((result.ttft_plain_s.p50, result.ttft_thick_s.p50))
    assert low <= result.ttft_s.p50 <= high
    none_is_thick = simulate(
        "warmturn",
        [replace(one, bursts=None) for one in SESSIONS],
        Setting(HARDWARE, 2, 8, 1, 600.0, 120.0, merged=16, open_loop=False),
    )
    assert none_is_thick.ttft_plain_s == none_is_thick.ttft_s
    assert none_is_thick.ttft_thick_s is None


def test_an_open_loop_ends() -> None:
    """Sessions begin at the rate that was asked for, from their first step on."""
    loop = OpenLoop(SESSIONS, 0.1, 10_000.0, seed=1)
    assert 900 < len(loop.start()) < 1100


class Stubborn(Peer):
    """Lets every request wait for 30 s."""

    def __init__(self) -> None:
        self.waiting: dict[RequestId, float] = {}

    def place(self, request: Request, _: Sequence[ReplicaState], now_s: float) -> ReplicaId | Wait:
        self.waiting[request.request] = now_s + 30.0
        return Wait(now_s + 30.0)

    def place_waiting(
        self, replicas: Sequence[ReplicaState], now_s: float
    ) -> list[tuple[RequestId, ReplicaId | None]]:
        due = [request for request, until_s in self.waiting.items() if now_s >= until_s]
        for request in due:
            del self.waiting[request]
        return [(request, replicas[0].replica) for request in due]


class Refusing(Stubborn):
    """Turns every request away once."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: set[RequestId] = set()

    def place_waiting(
        self, replicas: Sequence[ReplicaState], now_s: float
    ) -> list[tuple[RequestId, ReplicaId | None]]:
        placed = super().place_waiting(replicas, now_s)
        new = {request for request, _ in placed} - self.refused
        self.refused |= new
        return [(request, None if request in new else replica) for request, replica in placed]


def test_what_waits_is_placed_in_time() -> None:
    """A request that no release lets go is placed when its time is up."""
    engines = [ReplicaFactory(HARDWARE, 64 * 16).make()]
    measurements = Measurements(0.0)
    Fleet(engines, Stubborn(), ClosedLoop(SESSIONS, 1, 1, 16), measurements).run(200.0)
    result = measurements.result("stubborn", 1, 1, 1, 200.0)
    assert result.ttft_s.p50 > 30
    assert result.slow_waits_s.router == pytest.approx(30.0)
    assert result.refusals == 0


def test_who_is_turned_away_comes_back() -> None:
    """It counts as one request, from when it was sent first: two waits and a pause of 2 s."""
    engines = [ReplicaFactory(HARDWARE, 64 * 16).make()]
    measurements = Measurements(0.0)
    Fleet(engines, Refusing(), ClosedLoop(SESSIONS, 1, 1, 16), measurements).run(600.0)
    result = measurements.result("refusing", 1, 1, 1, 600.0)
    assert result.ttft_s.p50 > 62
    assert result.refusals in (result.requests, result.requests - 1)


def test_places_draw_their_own_sessions() -> None:
    """Sessions of one place do not depend on how many places there are."""
    few, many = (ClosedLoop(SESSIONS, live, seed=3).start() for live in (2, 9))
    assert [turn.request.prompt_tokens for _, turn in few] == [
        turn.request.prompt_tokens for _, turn in many[: len(few)]
    ]


class Follower(Peer):
    """Sends everything to the newest replica, and notes when it did and what it is told."""

    def __init__(self) -> None:
        self.placed: list[tuple[float, ReplicaId]] = []
        self.running: dict[RequestId, ReplicaId] = {}
        self.ended_at_s: dict[ReplicaId, float] = {}
        self.forgotten: list[tuple[float, ReplicaId]] = []

    def place(self, request: Request, replicas: Sequence[ReplicaState], now_s: float) -> ReplicaId:
        newest = replicas[-1].replica
        self.placed.append((now_s, newest))
        self.running[request.request] = newest
        return newest

    def end(self, request: RequestId, now_s: float) -> None:
        self.ended_at_s[self.running.pop(request)] = now_s

    def forget(self, replica: ReplicaId, now_s: float) -> None:
        assert replica not in self.running.values()
        self.forgotten.append((now_s, replica))


def test_replicas_join_and_leave() -> None:
    """A new one is cold and gets requests at once; one that leaves ends those it has."""
    factory = ReplicaFactory(HARDWARE, 64 * 16)
    policy = Follower()
    left_at_s: list[float] = []

    def operate(fleet: Fleet, now_s: float) -> None:
        if now_s == 100:
            newest = factory.make()
            assert not newest.memory.pool.cached
            fleet.join(newest, now_s)
        if now_s > 200 and not left_at_s and fleet.engines[1].running:
            left_at_s.append(now_s)
            fleet.leave(fleet.engines[1].replica, now_s)
            assert fleet.engines[1].state.draining

    measurements = Measurements(0.0)
    traffic = ClosedLoop(SESSIONS, 8, 1, 16)
    fleet = Fleet([factory.make()], policy, traffic, measurements, operate)
    fleet.run(400.0)
    assert [one.replica for one in fleet.engines] == ["r0"]
    on_second = [at_s for at_s, replica in policy.placed if replica == "r1"]
    assert 100 <= on_second[0] < 110
    assert on_second[-1] <= left_at_s[0] < policy.ended_at_s[ReplicaId("r1")]
    assert policy.forgotten == [(policy.ended_at_s[ReplicaId("r1")], "r1")]
    both_s = policy.forgotten[0][0] - 100
    hours = measurements.result("follower", 1, 8, 1, 400.0).replica_hours
    assert hours * 3600 == pytest.approx(400 + both_s, abs=2)


def test_the_last_replica_stays() -> None:
    """Somebody has to take the requests."""
    factory = ReplicaFactory(HARDWARE, 64 * 16)
    engines = [factory.make(), factory.make()]
    fleet = Fleet(engines, Follower(), ClosedLoop(SESSIONS, 1, 1, 16), Measurements(0.0))
    fleet.leave(engines[0].replica, 0.0)
    with pytest.raises(ValueError, match="r1 is the last replica"):
        fleet.leave(engines[1].replica, 0.0)


@pytest.mark.parametrize("spec", sorted(set(POLICIES) - {ORACLE}))
def test_policies_bear_replicas_that_come_and_go(spec: str) -> None:
    """Whatever they remember of one that is gone."""
    factory = ReplicaFactory(HARDWARE, 64 * 16)
    engines = [factory.make(), factory.make()]

    def operate(fleet: Fleet, now_s: float) -> None:
        if now_s == 60:
            fleet.leave(engines[0].replica, now_s)
        if now_s == 120:
            fleet.join(factory.make(), now_s)

    measurements = Measurements(61.0)
    policy = make_policy(spec, Random(1))
    traffic = ClosedLoop(SESSIONS, 8, 1, 16)
    fleet = Fleet(engines, policy, traffic, measurements, operate)
    fleet.run(240.0)
    assert [one.replica for one in fleet.engines] == ["r1", "r2"]
    assert {one.replica for one in measurements.records} <= {"r1", "r2"}
    assert any(one.ended_at_s is not None for one in measurements.records)

"""Whole simulations: repeatable, and their figures add up."""

from collections.abc import Sequence

import pytest

from benchmarks.generated_sessions import generate_sessions
from benchmarks.peers.policy import Peer, Wait
from benchmarks.peers.registry import ORACLE, POLICIES
from benchmarks.simulate import Setting, simulate
from benchmarks.simulator.fleet import Fleet, make_engines
from benchmarks.simulator.measurements import Measurements, Result
from benchmarks.simulator.presets import PRESETS
from benchmarks.simulator.traffic import ClosedLoop, OpenLoop
from benchmarks.trace_options import add_bursts, fit
from policies.types import ReplicaId, ReplicaState, Request, RequestId

HARDWARE = PRESETS["kimi-b200-host"]
SESSIONS = fit(
    add_bursts(generate_sessions(60, 1), 0.1, 4, seed=1), HARDWARE.max_context_tokens, 60.0
)


def run(spec: str, load: float = 8, seed: int = 1, *, open_loop: bool = False) -> Result:
    """Simulate two replicas for ten minutes."""
    setting = Setting(HARDWARE, 2, seed, 600.0, 120.0, merged=16, open_loop=open_loop)
    return simulate(spec, SESSIONS, load, setting)


def without_clock(result: Result) -> dict[str, object]:
    return result.row() | {"decide_ms": None}


@pytest.mark.parametrize("spec", POLICIES)
def test_figures_add_up(spec: str) -> None:
    """Hits and misses make the prompts; no more is hit than can be, and the oracle hits it all."""
    result = run(spec)
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
    ) -> list[tuple[RequestId, ReplicaId]]:
        due = [request for request, until_s in self.waiting.items() if now_s >= until_s]
        for request in due:
            del self.waiting[request]
        return [(request, replicas[0].replica) for request in due]


def test_what_waits_is_placed_in_time() -> None:
    """A request that no release lets go is placed when its time is up."""
    engines = make_engines(HARDWARE, 1, 64 * 16)
    measurements = Measurements(0.0, engines)
    Fleet(engines, Stubborn(), ClosedLoop(SESSIONS, 1, 1, 16), measurements).run(200.0)
    result = measurements.result("stubborn", 1, 1, 200.0)
    assert result.ttft_s.p50 > 30
    assert result.slow_waits_s.router == pytest.approx(30.0)


def test_places_draw_their_own_sessions() -> None:
    """Sessions of one place do not depend on how many places there are."""
    few, many = (ClosedLoop(SESSIONS, live, seed=3).start() for live in (2, 9))
    assert [turn.request.prompt_tokens for _, turn in few] == [
        turn.request.prompt_tokens for _, turn in many[: len(few)]
    ]

"""How many replicas: bounded, calm, and never for the sake of misses that memory can't cure."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from policies.autoscale import AutoscaleState, Wish, on_tick
from policies.autoscale_settings import AutoscaleSettings
from policies.demands import DEMANDS, Demand, backlog, prefill, reuse, running
from policies.fleet_load import FleetLoad, LoadWindow, fleet_load
from policies.in_flight import InFlight
from policies.observation import Observation
from policies.reuse_curve import ReuseCurve
from policies.types import Park, ReplicaId, RequestId
from policies.victims import Seat, predict_victims
from policies.waiting import Waiting
from tests.policies.makers import make_booking, make_request, make_state

TICK_S = 10.0
SETTINGS = AutoscaleSettings(
    target_hit_ratio=0.97, headroom_deviations=2.0, slack_ratio=0.1, calm_s=300.0, window_s=100.0
)


def make_curve(best: float = 0.9, working_set_tokens: float = 1e6) -> ReuseCurve:
    """Return a curve that rises to its best ratio evenly, until the working set fits."""
    sizes = np.linspace(0, working_set_tokens, 200)
    return ReuseCurve(sizes, np.linspace(0, best * 1e6, 200), 1_000_000, span_s=100.0)


def make_seats(*replicas: str) -> tuple[Seat, ...]:
    """Return replicas on a node each, the oldest first."""
    return tuple(Seat(ReplicaId(one), node=f"node-{one}") for one in replicas)


def make_observation(replicas: int = 2, **changes: Any) -> Observation:
    """Return a fleet that does little: each replica has 100k tokens on GPU and 1M in all."""
    fields: dict[str, Any] = {
        "seats": make_seats(*(f"r{number}" for number in range(replicas))),
        "busy": frozenset(),
        "load": FleetLoad(),
        "usual_load": FleetLoad(),
        "prompt_tokens_per_s": 0.0,
        "curve": make_curve(),
        "prefill_tokens_per_s": 1000.0,
        "gpu_tokens": 100_000,
        "cache_tokens": 1_000_000,
    }
    return Observation(**fields | changes)


STEADY = {"prompt_tokens_per_s": 10_000}
"""As many prompts as in the time that curves are of."""

loads = st.builds(
    FleetLoad,
    requests=st.floats(1, 100),
    held_tokens=st.floats(0, 1e7),
    backlog_tokens=st.floats(0, 1e7),
)
observations = st.builds(
    make_observation,
    load=loads | st.just(FleetLoad()),
    usual_load=loads | st.just(FleetLoad()),
    prompt_tokens_per_s=st.floats(0, 1e5),
    curve=st.builds(make_curve, st.floats(0, 1), st.floats(1e5, 1e8)),
)
settings = st.builds(
    lambda least, more: AutoscaleSettings(
        min_replicas=least, max_replicas=least + more, calm_s=100.0, settle_s=150.0, drain_s=50.0
    ),
    st.integers(0, 4),
    st.integers(1, 20),
)
histories = st.lists(st.tuples(st.integers(1, 20), observations), min_size=1, max_size=8)
"""What is observed, and for how many ticks."""


class Tick(NamedTuple):
    """When it was, how many served, what was wished, and who was stopped then."""

    now_s: float
    served: int
    wish: Wish
    stopped: tuple[ReplicaId, ...]


def run(
    history: Sequence[tuple[int, Observation]], settings: AutoscaleSettings, target: int = 2
) -> list[Tick]:
    """Let wishes come true by the next tick."""
    state, now_s, names, count = AutoscaleState(target), 0.0, [f"r{n}" for n in range(target)], 0
    wishes = []
    for ticks, observation in history:
        for _ in range(ticks):
            now_s += TICK_S
            now = replace(observation, seats=make_seats(*names))
            wish, state = on_tick(now, state, settings, now_s)
            while len(names) < wish.replicas:
                names.append(f"new{count}")
                count += 1
            stopped = predict_victims(make_seats(*names), max(0, len(names) - wish.replicas))
            wishes.append(Tick(now_s, len(now.seats), wish, stopped))
            names = [name for name in names if name not in stopped]
    return wishes


@given(history=histories, settings=settings, target=st.integers(0, 24))
def test_steps(
    history: list[tuple[int, Observation]], settings: AutoscaleSettings, target: int
) -> None:
    """Steps at most double or halve, and lead into the bounds and never out of them."""
    before = target
    for _, served, wish, _ in run(history, settings, target):
        assert wish.replicas <= max(1, 2 * served, before)
        assert wish.replicas >= before // 2
        if before <= settings.max_replicas:
            assert wish.replicas <= settings.max_replicas
        if before >= settings.min_replicas:
            assert wish.replicas >= settings.min_replicas
        assert len(wish.draining) <= before - before // 2
        before = wish.replicas


@given(history=histories, settings=settings)
def test_calm(history: list[tuple[int, Observation]], settings: AutoscaleSettings) -> None:
    """No replica goes within `settle_s` after others came, so there is no up, down and up."""
    before, came_at_s = 2, -1e9
    for now_s, _, wish, _ in run(history, settings):
        if wish.replicas > before:
            came_at_s = now_s
        if wish.replicas < before:
            assert now_s - came_at_s >= settings.settle_s
        before = wish.replicas


@given(history=histories, settings=settings)
def test_drained_first(history: list[tuple[int, Observation]], settings: AutoscaleSettings) -> None:
    """Those that are stopped had been told to drain, and drain for as long as is said."""
    draining: tuple[ReplicaId, ...] = ()
    for *_, wish, stopped in run(history, settings):
        assert stopped == draining if stopped else True
        draining = wish.draining


@given(load=loads)
@hypothesis_settings(max_examples=10)
def test_never_to_zero_unasked(load: FleetLoad) -> None:
    """An idle fleet keeps a replica, unless none may be kept; and comes back for a request."""
    idle = make_observation(curve=make_curve(0.0))
    assert run([(100, idle)], SETTINGS)[-1].wish.replicas == 1
    to_zero = replace(SETTINGS, min_replicas=0)
    assert run([(100, idle)], to_zero)[-1].wish.replicas == 0
    wakes = make_observation(load=replace(load, held_tokens=1 + load.held_tokens))
    assert run([(100, idle), (1, wakes)], to_zero)[-1].wish.replicas == 1


@given(rate=st.floats(0, 900), size=st.floats(1e5, 1e6))
def test_first_seen(rate: float, size: float) -> None:
    """Traffic that nothing could have cached brings no replicas while prefills keep up."""
    first_seen = make_observation(prompt_tokens_per_s=rate, curve=make_curve(0.001, size))
    assert {tick.wish.replicas for tick in run([(5, first_seen)], SETTINGS)} == {2}


@given(observation=observations)
def test_cold_replicas(observation: Observation) -> None:
    """Replicas that came change no demand: whether they are cold is not looked at."""
    many = replace(observation, seats=make_seats(*(f"r{number}" for number in range(16))))
    for demand in (prefill, reuse, running):
        assert demand(observation, SETTINGS) == demand(many, SETTINGS)
    assert backlog(many, SETTINGS).replicas <= backlog(observation, SETTINGS).replicas


@given(observation=observations, factor=st.floats(1, 10))
@pytest.mark.parametrize(
    "more",
    [
        lambda now, by: replace(now, prompt_tokens_per_s=now.prompt_tokens_per_s * by),
        lambda now, by: replace(
            now, load=replace(now.load, backlog_tokens=now.load.backlog_tokens * by)
        ),
        lambda now, by: replace(now, load=replace(now.load, held_tokens=now.load.held_tokens * by)),
        lambda now, by: replace(
            now, usual_load=replace(now.usual_load, held_tokens=now.usual_load.held_tokens * by)
        ),
        lambda now, by: replace(now, curve=_stretched(now.curve, by)),
        lambda now, by: replace(now, cache_tokens=int(now.cache_tokens / by)),
        lambda now, by: replace(now, gpu_tokens=int(now.gpu_tokens / by)),
        lambda now, by: replace(now, prefill_tokens_per_s=now.prefill_tokens_per_s / by),
    ],
    ids=["rate", "backlog", "held", "usual", "working set", "cache", "gpu", "prefill"],
)
def test_monotone(
    more: Callable[[Observation, float], Observation], observation: Observation, factor: float
) -> None:
    """More to do, or less to do it with, never needs fewer replicas."""
    for demand in DEMANDS:
        needed = demand(observation, SETTINGS).replicas
        assert demand(more(observation, factor), SETTINGS).replicas >= needed


def _stretched(curve: ReuseCurve, factor: float) -> ReuseCurve:
    return replace(curve, sizes_tokens=curve.sizes_tokens * factor)


@pytest.mark.parametrize(
    ("demand", "changes", "replicas"),
    [
        (prefill, {"prompt_tokens_per_s": 10_000, "curve": make_curve(0.9, 2.2e6)}, 3),
        (prefill, {"prompt_tokens_per_s": 10_000, "curve": make_curve(0.9, 1e9)}, 20),
        (reuse, {"curve": make_curve(0.9, 3e6), **STEADY}, 3),
        (reuse, {"curve": make_curve(0.9, 3e6), **STEADY, "shared_tokens": 2_000_000}, 3),
        (reuse, {"curve": make_curve(0.9, 3e6), **STEADY, "shared_tokens": 3_000_000}, 0),
        (reuse, {"curve": make_curve(0.9, 3e6), "prompt_tokens_per_s": 13_200}, 5),
        (reuse, {"curve": make_curve(0.9, 3e6), "prompt_tokens_per_s": 11_000}, 3),
        (reuse, {"curve": make_curve(0.9, 3e6), "prompt_tokens_per_s": 6000}, 2),
        (reuse, {"curve": make_curve(0.0)}, 0),
        (running, {"usual_load": FleetLoad(4, 160_000)}, 4),
        (running, {"usual_load": FleetLoad(100, 4_000_000)}, 60),
        (running, {"load": FleetLoad(9, 360_000), "usual_load": FleetLoad(4, 160_000)}, 5),
        (backlog, {"load": FleetLoad(4, 0, 360_000)}, 0),
        (backlog, {"load": FleetLoad(4, 0, 450_000)}, 3),
    ],
)
def test_demands(
    demand: Callable[[Observation, AutoscaleSettings], Demand],
    changes: dict[str, Any],
    replicas: int,
) -> None:
    """Each demand is what its formula says, for two replicas of 100k GPU tokens and 1M in all."""
    assert demand(make_observation(**changes), SETTINGS).replicas == replicas


def test_story() -> None:
    """Up at once; down after calm, when the drained one is idle; a returning demand calls back."""
    busy = make_observation(usual_load=FleetLoad(4, 160_000))
    quiet = make_observation(usual_load=FleetLoad(1, 1000), busy=frozenset([ReplicaId("r0")]))
    wishes = run([(1, busy), (100, quiet)], SETTINGS)
    assert wishes[0].wish.replicas == 4
    assert wishes[0].wish.reason.startswith("2 -> 4, as 4 are needed; running: requests")
    began = next(tick.now_s for tick in wishes if tick.wish.draining)
    assert began == TICK_S + SETTINGS.settle_s
    fell = next(tick.now_s for tick in wishes if tick.wish.replicas == 2)
    assert fell == began + SETTINGS.drain_s
    assert wishes[-1].wish.replicas == 1

    back = run([(1, busy), (62, quiet), (1, busy)], SETTINGS)
    assert back[-2].wish.draining == ("r0", "r1")
    assert (back[-1].wish.draining, back[-1].wish.replicas) == ((), 4)
    assert back[-1].wish.reason.startswith("calls r0, r1 back, stays at 4, as 4 are needed")


def test_victims() -> None:
    """Nodes are emptied by how many replicas they have; the head node last; the newest first."""
    seats = [
        Seat(ReplicaId("a"), "head", 1, is_head_node=True),
        Seat(ReplicaId("b"), "n1", 2),
        Seat(ReplicaId("c"), "n2", 1),
        Seat(ReplicaId("d"), "n1", 2),
        Seat(ReplicaId("e"), "n3", 1),
    ]
    assert predict_victims(seats, 9) == ("c", "e", "d", "b", "a")
    assert predict_victims(seats, 1) == ("c",)


def test_load_window() -> None:
    """Samples older than the window do not count."""
    window = LoadWindow(60.0)
    assert window.mean() == FleetLoad()
    window.add(FleetLoad(100, 100, 100), 0.0)
    window.add(FleetLoad(1, 2, 3), 60.0)
    window.add(FleetLoad(3, 4, 5), 70.0)
    assert window.mean() == FleetLoad(2, 3, 4)


def test_fleet_load() -> None:
    """All that is booked counts, and what waits at the router, whose prefill is booked too."""
    in_flight, waiting = InFlight(expiry_s=100.0), Waiting()
    in_flight.book(make_booking("q1", "r1", uncached_tokens=50, blocks=6), 0.0)
    in_flight.book(make_booking("q2", "r2", uncached_tokens=70, blocks=8), 0.0)
    in_flight.first_byte(RequestId("q2"))
    parked = make_booking("q3", "r2", uncached_tokens=30, blocks=4, parked=True)
    in_flight.book(parked, 0.0)
    waiting.add(make_request("q3"), Park(30.0, (False, 0.0), "", {}, parked))
    states = [make_state("r1"), make_state("r2")]
    assert fleet_load(states, in_flight, waiting, 10) == FleetLoad(3, 180, 80)


def test_load_that_was_not_booked() -> None:
    """What replicas report of themselves counts, where others sent them more."""
    states = [make_state("r1", running=3, waiting=1, free_blocks=900)]
    assert fleet_load(states, InFlight(expiry_s=100.0), Waiting(), 10) == FleetLoad(4, 1000, 0)


def test_a_curve_that_has_seen_little() -> None:
    """A router that just started takes all prompts for new ones, so it asks for nothing yet."""
    young = replace(make_curve(0.0), span_s=80.0)
    observation = make_observation(curve=young, prompt_tokens_per_s=50_000)
    assert [prefill(observation, SETTINGS).replicas, reuse(observation, SETTINGS).replicas] == [
        0,
        0,
    ]
    assert prefill(replace(observation, curve=make_curve(0.0)), SETTINGS).replicas == 100


@pytest.mark.parametrize("period_s", [2.0, 7.0, 50.0, 290.0])
def test_however_often_it_is_asked(period_s: float) -> None:
    """Replicas go once fewer were enough for the calm time, and not before."""
    state = AutoscaleState(4)
    now_s = 0.0
    while not state.draining:
        _, state = on_tick(make_observation(4), state, SETTINGS, now_s)
        now_s += period_s
    assert SETTINGS.calm_s <= now_s - period_s < SETTINGS.calm_s + period_s


def test_a_cluster_without_room() -> None:
    """What never came is not waited for any longer once less is enough."""
    state = AutoscaleState(4)
    busy = make_observation(4, usual_load=FleetLoad(20, 500_000), load=FleetLoad(20, 500_000))
    wish, state = on_tick(busy, state, SETTINGS, 0.0)
    assert wish.replicas == 8
    wished = []
    for now_s in range(700, 1100, 10):
        wish, state = on_tick(make_observation(4), state, SETTINGS, float(now_s))
        wished.append(wish.replicas)
    assert sorted(set(wished), reverse=True)[:2] == [8, 4]


@pytest.mark.parametrize(
    "wrong", [{"max_wait_s": 0}, {"target_prefill_ratio": 0}, {"window_s": 0}, {"slack_ratio": -1}]
)
def test_numbers_without_a_meaning(wrong: dict[str, float]) -> None:
    """They are refused by name."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        AutoscaleSettings(**wrong)  # type: ignore[arg-type]  # floats all


def test_bounds() -> None:
    """Bounds that cross are refused."""
    with pytest.raises(ValueError, match="min_replicas 3 and max_replicas 2"):
        AutoscaleSettings(min_replicas=3, max_replicas=2)

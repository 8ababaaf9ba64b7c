"""Replicas that were let go, and which of them Serve then stops."""

import pytest

from policies.autoscale_settings import AutoscaleSettings
from policies.fleet_load import FleetLoad
from policies.observation import Observation
from policies.reuse_curve import ReuseSampler
from policies.types import ReplicaId
from policies.victims import Seat
from serve_app.scaling import ASKED_WITHIN_S, LEAVE_S, ScaleQuestion, Scaling

R1, R2, R3 = (ReplicaId(f"r{number}") for number in (1, 2, 3))
SETTINGS = AutoscaleSettings(calm_s=10, settle_s=0, drain_s=20)


def idle(*replicas: ReplicaId) -> Observation:
    """Return a fleet on one node that has nothing to do."""
    return Observation(
        seats=tuple(Seat(one, "n1", len(replicas)) for one in replicas),
        busy=frozenset(),
        load=FleetLoad(),
        usual_load=FleetLoad(),
        prompt_tokens_per_s=0.0,
        curve=ReuseSampler(16, 60.0).curve(0.0),
        prefill_tokens_per_s=1000.0,
        gpu_tokens=1000,
        cache_tokens=1000,
    )


def ask(scaling: Scaling, now_s: float, *replicas: ReplicaId) -> int:
    """Return how many there should be of an idle fleet that is as large as it should."""
    asked = ScaleQuestion(frozenset(replicas), len(replicas), 0, SETTINGS)
    return scaling.answer(asked, idle(*replicas), now_s)


@pytest.fixture
def scaling() -> Scaling:
    """Two replicas, of which the newer one drains."""
    made = Scaling()
    for now_s in (0.0, 5.0, 10.0):
        assert ask(made, now_s, R1, R2) == 2
    assert made.draining == {R2}
    return made


def test_one_that_was_let_go_drains_until_it_is_stopped(scaling: Scaling) -> None:
    """It gets no turns again while Serve takes its time."""
    assert ask(scaling, 11.0, R1, R2) == 1
    assert scaling.draining == {R2}
    assert not scaling.gone(R2)
    ask(scaling, 13.0, R1)
    assert scaling.draining == set()


def test_another_one_is_stopped(scaling: Scaling) -> None:
    """That is a surprise; the one that drained serves on, after a while."""
    ask(scaling, 11.0, R1, R2)
    assert scaling.gone(R1)
    ask(scaling, 12.0, R2)
    assert scaling.draining == {R2}
    ask(scaling, 11.0 + LEAVE_S, R2)
    assert scaling.draining == set()


def test_one_that_dies_is_no_surprise(scaling: Scaling) -> None:
    """Nobody was let go yet."""
    assert not scaling.gone(R1)


def test_nobody_drains_for_a_policy_that_asks_no_more(scaling: Scaling) -> None:
    """It was replaced by a fixed number, or fails."""
    scaling.expire(10.0 + ASKED_WITHIN_S)
    assert scaling.draining == {R2}
    scaling.expire(10.5 + ASKED_WITHIN_S)
    assert not scaling.draining
    assert scaling.wish is None


def test_serve_says_how_many_there_should_be(scaling: Scaling) -> None:
    """Bounds and operators change that, whatever was wished for before."""
    assert ask(scaling, 30.0, R1, R2, R3) == 3 - 1


def test_a_fleet_that_was_woken_stays_for_a_while() -> None:
    """As any does after replicas came."""
    scaling = Scaling()
    settings = AutoscaleSettings(min_replicas=0, calm_s=1, settle_s=100, drain_s=0)
    assert scaling.wake(ScaleQuestion(frozenset(), 0, 1, settings), 0.0) == 1
    for now_s in range(1, 100):
        asked = ScaleQuestion(frozenset({R1}), 1, 0, settings)
        assert scaling.answer(asked, idle(R1), float(now_s)) == 1
        assert not scaling.draining

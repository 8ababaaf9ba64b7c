"""Sums over the sessions that live on a replica, which decay with time."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.residency import Residency, Residents
from policies.types import ReplicaId, SessionId

R1, R2 = ReplicaId("r1"), ReplicaId("r2")
S1, S2 = SessionId("s1"), SessionId("s2")

sessions = st.sampled_from([S1, S2, SessionId("s3"), SessionId("s4")])
replicas = st.sampled_from([R1, R2])
steps = st.tuples(
    sessions,
    st.none() | replicas,  # none: it leaves
    st.integers(0, 1000),
    st.floats(1.0, 2000.0),
    st.sampled_from([0.0, 0.1, 7.0, 400.0, 20_000.0]),
)


@given(st.lists(steps, max_size=40), st.frozensets(st.tuples(sessions, replicas)))
def test_sums_are_those_over_all_sessions(
    history: list[tuple[SessionId, ReplicaId | None, int, float, float]],
    without: frozenset[tuple[SessionId, ReplicaId]],
) -> None:
    """Whatever came and went, and when; half-lives are rounded by a fifth at most."""
    residency, now_s = Residency(), 0.0
    there: dict[SessionId, tuple[ReplicaId, int, float, float]] = {}
    for session, replica, blocks, half_life_s, pause_s in history:
        now_s += pause_s
        if replica is None:
            residency.discard(session)
            there.pop(session, None)
        else:
            residency.add(session, replica, blocks, half_life_s, now_s)
            there[session] = replica, blocks, half_life_s, now_s
    now_s += 10.0
    sums = residency.sums(without, now_s)
    assert sums.keys() == {replica for replica, *_ in there.values()}
    for replica, found in sums.items():
        for rounding, limit in ((1.2, max), (1 / 1.2, min)):
            counted = [
                (math.exp2((at_s - now_s) / (half_life_s * rounding)), blocks)
                for session, (home, blocks, half_life_s, at_s) in there.items()
                if home == replica and (session, home) not in without
            ]
            weights = sum(weight for weight, _ in counted)
            claims = sum(weight * blocks for weight, blocks in counted)
            assert limit(found.sessions, weights) == pytest.approx(weights, abs=1e-9)
            assert limit(found.blocks, claims) == pytest.approx(claims, abs=1e-6)


def test_nothing_is_left_of_those_that_went() -> None:
    """Not even what rounding leaves: ties between empty replicas are broken at random."""
    residency = Residency()
    for number in range(10):
        residency.add(SessionId(f"s{number}"), R1, 7, 10.0 + number, number * 0.1)
    for number in range(10):
        residency.discard(SessionId(f"s{number}"))
    assert residency.sums((), 5.0) == {}


def test_one_half_life() -> None:
    """The weight of a session halves."""
    residency = Residency()
    residency.add(S1, R1, 10, 16.0, 0.0)
    assert residency.sums((), 16.0) == {R1: Residents(0.5, 5.0)}

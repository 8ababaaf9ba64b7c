"""Where sessions go while the router is silent."""

from hypothesis import given
from hypothesis import strategies as st

from policies.rendezvous import rendezvous
from policies.types import ReplicaId

REPLICAS = st.sets(st.text(min_size=1).map(ReplicaId), min_size=2, max_size=8)


@given(st.text(), REPLICAS)
def test_who_asks_in_which_order_does_not_matter(key: str, replicas: set[ReplicaId]) -> None:
    """All gateways find the same replica."""
    assert rendezvous(key, sorted(replicas)) == rendezvous(key, sorted(replicas, reverse=True))


@given(st.text(), REPLICAS)
def test_only_the_sessions_of_a_lost_replica_move(key: str, replicas: set[ReplicaId]) -> None:
    """One that leaves takes nobody along."""
    chosen = rendezvous(key, replicas)
    for other in replicas - {chosen}:
        assert rendezvous(key, replicas - {other}) == chosen


def test_sessions_are_spread() -> None:
    """No replica gets much more than its share of many sessions."""
    replicas = [ReplicaId(f"r{i}") for i in range(4)]
    chosen = [rendezvous(f"session-{i}", replicas) for i in range(1000)]
    assert all(200 < chosen.count(replica) < 300 for replica in replicas)

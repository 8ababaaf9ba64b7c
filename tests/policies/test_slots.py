"""Replicas' slots, under replicas that come and go."""

from hypothesis import given
from hypothesis import strategies as st

from policies.block_holders import slots_of
from policies.slots import Slots
from policies.types import ReplicaId


@given(st.lists(st.integers(0, 5)))
def test_each_replica_has_the_lowest_number_that_was_free(toggled: list[int]) -> None:
    """Numbers and the mask tell the replicas that are there, and no others."""
    slots, taken = Slots(), dict[ReplicaId, int]()
    for number in toggled:
        replica = ReplicaId(f"r{number}")
        if replica in taken:
            slots.free(taken.pop(replica))
        else:
            free = min(set(range(6)) - set(taken.values()))
            taken[replica] = slots.take(replica)
            assert taken[replica] == free
        assert set(slots_of(slots.mask)) == set(taken.values())
        assert all(slots.replica(slot) == replica for replica, slot in taken.items())

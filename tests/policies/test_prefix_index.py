"""Stories of blocks stored, matched, removed and lost."""

from collections.abc import Sequence

import pytest

from policies.evicted_blocks import EvictedBlocks
from policies.kv_events import Cleared, EngineHash, Event, EventBatch, Removed, Snapshot
from policies.match import Match
from policies.prefix_index import PrefixIndex
from policies.types import BlockHash, ReplicaId, Tier
from tests.policies.makers import make_hashes, make_stored

R1, R2 = ReplicaId("r1"), ReplicaId("r2")


def make_index() -> PrefixIndex:
    """Return an empty index that expects for 10 s and remembers three blocks for 60 s."""
    return PrefixIndex(expect_s=10, remember_s=60, max_remembered=3, max_shared=8)


def make_batch(
    *events: Event, replica: ReplicaId = R1, sequence: int = 0, generation: int = 1
) -> EventBatch:
    """Return a batch of events."""
    return EventBatch(replica, generation, sequence, events)


def make_removed(*names: int, tier: Tier = Tier.GPU) -> Removed:
    """Return the event that removes blocks by name."""
    return Removed(tier, [EngineHash(name) for name in names])


def filled(*events: Event) -> PrefixIndex:
    """Return an index in which r1 sent one batch."""
    index = make_index()
    assert index.apply(make_batch(*events), 0)
    return index


def test_a_prompt_grows_over_turns() -> None:
    """Blocks stored after a known parent lengthen the match of a prompt."""
    index = filled(make_stored(1, 2, names=[10, 20]))
    assert index.match(make_hashes(1, 2, 3)) == {R1: Match(2)}
    index.apply(make_batch(make_stored(3, 4, names=[30, 40], parent=20), sequence=1), 0)
    assert index.match(make_hashes(1, 2, 3)) == {R1: Match(3)}
    assert index.match(make_hashes(1, 2, 3, 4, 5)) == {R1: Match(4)}
    assert index.match(make_hashes(1, 3, 2)) == {R1: Match(1)}
    assert index.match(make_hashes(2, 3)) == {}
    assert index.match([]) == {}


def test_names_are_each_replicas_own() -> None:
    """Two replicas name one block differently and another alike; removals hit the right one."""
    index = filled(make_stored(1, 2, names=[10, 20]))
    index.apply(make_batch(make_stored(1, 3, names=[99, 20]), replica=R2), 0)
    index.apply(make_batch(make_removed(20), replica=R2, sequence=1), 0)
    assert index.match(make_hashes(1, 2)) == {R1: Match(2), R2: Match(1)}
    assert index.match(make_hashes(1, 3)) == {R1: Match(1), R2: Match(1)}


def test_a_missing_block_ends_the_match() -> None:
    """Blocks after one that was removed do not count."""
    index = filled(make_stored(1, 2, 3, names=[10, 20, 30]), make_removed(20))
    assert index.match(make_hashes(1, 2, 3)) == {R1: Match(1)}


@pytest.mark.parametrize(
    ("gpu", "cpu", "shared", "expected"),
    [
        ("1111", "1111", "1111", Match(4, 0, 0)),
        ("1100", "1111", "1111", Match(2, 2, 0)),
        ("1000", "1110", "1111", Match(1, 2, 1)),
        ("1101", "1110", "0000", Match(2, 1, 0)),
        ("1010", "0100", "0000", Match(1, 1, 0)),
        ("0000", "0111", "1000", Match(0, 0, 1)),
        ("0000", "0000", "1100", Match(0, 0, 2)),
    ],
)
def test_tiers(gpu: str, cpu: str, shared: str, expected: Match) -> None:
    """GPU blocks count while consecutive, then CPU blocks, then shared ones."""
    index = make_index()
    names = [10, 20, 30, 40]
    tiers = {Tier.GPU: gpu, Tier.CPU: cpu, Tier.SHARED: shared}
    events: list[Event] = [make_stored(1, 2, 3, 4, names=names, tier=tier) for tier in tiers]
    for tier, held in tiers.items():
        gone = [name for name, bit in zip(names, held, strict=True) if bit == "0"]
        events.append(make_removed(*gone, tier=tier))
    index.apply(make_batch(*events), 0)
    assert index.match(make_hashes(1, 2, 3, 4)) == {R1: expected}


def test_every_replica_reads_the_shared_tier() -> None:
    """What one replica stored in the shared tier counts for all, after their own tiers."""
    index = filled(make_stored(1, 2, names=[10, 20], tier=Tier.SHARED))
    index.apply(make_batch(make_stored(1, names=[10]), replica=R2), 0)
    assert index.match(make_hashes(1, 2)) == {R1: Match(0, 0, 2), R2: Match(1, 0, 1)}
    assert index.shared_ratio == 1.0
    index.apply(make_batch(make_stored(3, 4, names=[30, 40]), replica=R2, sequence=1), 0)
    assert index.shared_ratio == 0.5


def test_the_shared_tier_outlives_those_who_wrote_it() -> None:
    """Shared blocks stay when the replica that stored them is gone; any other may remove them."""
    index = filled(make_stored(1, 2, names=[10, 20], tier=Tier.SHARED))
    index.apply(make_batch(replica=R2), 0)
    index.forget(R1, 0)
    assert index.match(make_hashes(1, 2)) == {R2: Match(0, 0, 2)}
    index.apply(make_batch(make_removed(20, tier=Tier.SHARED), replica=R2, sequence=1), 0)
    assert index.match(make_hashes(1, 2)) == {R2: Match(0, 0, 1)}


def test_news_of_the_shared_tier_counts_out_of_sync() -> None:
    """A replica of which a batch was missed still tells of the shared tier; so do snapshots."""
    index = filled(make_stored(1, names=[10]))
    index.apply(make_batch(make_stored(1, names=[10], tier=Tier.SHARED), sequence=5), 0)
    assert index.match(make_hashes(1)) == {R1: Match(0, 0, 1)}
    stored = make_stored(1, 2, names=[10, 20], tier=Tier.SHARED)
    index.restore(Snapshot(R1, 1, 5, [stored]), 0)
    assert index.match(make_hashes(1, 2)) == {R1: Match(0, 0, 2)}


def test_the_shared_tier_is_known_in_part() -> None:
    """Beyond the limit those blocks are forgotten that were heard of least recently."""
    index = filled(make_stored(1, 2, names=[10, 20], tier=Tier.SHARED))
    again = make_stored(1, names=[10], tier=Tier.SHARED)
    others = [make_stored(other, names=[other], tier=Tier.SHARED) for other in range(3, 10)]
    index.apply(make_batch(others[0], again, *others[1:], sequence=1), 0)
    assert index.shared_blocks == 7
    assert index.match(make_hashes(1, 2)) == {R1: Match(0, 0, 1)}


def test_copies() -> None:
    """A block stored three times is there until all three copies are removed."""
    index = filled(*[make_stored(1, names=[10])] * 3, make_removed(10))
    index.apply(make_batch(make_removed(10), sequence=1), 0)
    assert index.match(make_hashes(1)) == {R1: Match(1)}
    index.apply(make_batch(make_removed(10), sequence=2), 0)
    assert index.match(make_hashes(1)) == {}


def test_copies_that_leave_together() -> None:
    """One event may take two copies of a block, or name one twice that was there once."""
    index = filled(make_stored(1, 2, names=[10, 20]), make_stored(1, names=[10]))
    index.apply(make_batch(make_removed(10, 20, 10, 20), sequence=1), 0)
    assert index.match(make_hashes(1, 2)) == {}
    assert len(index) == 0


def test_the_name_of_a_removed_block() -> None:
    """A block that left every tier is no parent any more; one that left only one tier is."""
    index = filled(make_stored(1, names=[10]), make_stored(1, names=[10], tier=Tier.CPU))
    index.apply(make_batch(make_removed(10), sequence=1), 0)
    assert index.apply(make_batch(make_stored(2, names=[20], parent=10), sequence=2), 0)
    index.apply(make_batch(make_removed(10, tier=Tier.CPU), sequence=3), 0)
    assert not index.apply(make_batch(make_stored(3, names=[30], parent=10), sequence=4), 0)


def test_a_tier_is_cleared() -> None:
    """Clearing the GPU tier leaves the CPU tier, and copies do not survive it."""
    cpu = make_stored(1, names=[10], tier=Tier.CPU)
    gpu = make_stored(1, 2, names=[10, 20])
    index = filled(cpu, gpu, gpu, Cleared(Tier.GPU))
    assert index.match(make_hashes(1, 2)) == {R1: Match(0, 1)}
    index.apply(make_batch(make_stored(2, names=[20], parent=10), sequence=1), 0)
    index.apply(make_batch(make_removed(20), sequence=2), 0)
    assert len(index) == 1


@pytest.mark.parametrize(
    "batches",
    [
        [make_batch(sequence=2)],
        [make_batch(sequence=3, generation=2)],
        [make_batch(make_stored(5, names=[50], parent=77), sequence=1)],
    ],
    ids=["gap", "new generation, beginning missed", "unknown parent"],
)
def test_out_of_sync(batches: Sequence[EventBatch]) -> None:
    """What makes the index doubt a replica drops its blocks until a snapshot comes."""
    index = filled(make_stored(1, names=[10]))
    index.apply(make_batch(make_stored(1, names=[10]), replica=R2), 0)
    for batch in batches:
        assert not index.apply(batch, 0)
    last = batches[-1]
    later = make_batch(
        make_stored(1, names=[10]), sequence=last.sequence + 1, generation=last.generation
    )
    assert not index.apply(later, 0)
    assert not index.is_synced(R1)
    assert index.is_synced(R2)
    assert index.match(make_hashes(1)) == {R2: Match(1)}
    snapshot = Snapshot(R1, later.generation, later.sequence, [make_stored(1, 2, names=[10, 20])])
    index.restore(snapshot, 0)
    assert index.is_synced(R1)
    assert index.match(make_hashes(1, 2)) == {R1: Match(2), R2: Match(1)}
    follows = make_batch(
        make_stored(3, names=[30], parent=20),
        sequence=later.sequence + 1,
        generation=later.generation,
    )
    assert index.apply(follows, 0)


def test_a_restart_from_the_beginning() -> None:
    """The first batch of a new generation drops old blocks and copies, and needs no snapshot."""
    index = filled(make_stored(1, names=[10]))
    assert index.apply(make_batch(make_stored(1, names=[10]), sequence=1), 0)
    assert index.apply(make_batch(make_stored(1, names=[20]), generation=2), 0)
    assert index.match(make_hashes(1)) == {R1: Match(1)}
    index.apply(make_batch(make_removed(20), sequence=1, generation=2), 0)
    assert index.match(make_hashes(1)) == {}


def test_an_unknown_replica_in_the_middle() -> None:
    """A router that starts later than an engine asks for a snapshot first."""
    index = make_index()
    assert not index.is_synced(R1)
    assert not index.apply(make_batch(make_stored(1, names=[10]), sequence=7), 0)
    assert index.match(make_hashes(1)) == {}


def test_what_comes_late_changes_nothing() -> None:
    """Batches and snapshots from before what is known are ignored."""
    index = filled(make_stored(1, names=[10]))
    index.apply(make_batch(sequence=1), 0)
    assert index.apply(make_batch(make_removed(10), sequence=1), 0)
    assert index.apply(make_batch(make_removed(10), sequence=9, generation=0), 0)
    index.restore(Snapshot(R1, 1, 0, []), 0)
    index.restore(Snapshot(R1, 0, 50, []), 0)
    assert index.match(make_hashes(1)) == {R1: Match(1)}
    index.restore(Snapshot(R1, 1, 1, []), 0)
    assert index.match(make_hashes(1)) == {}


def test_a_snapshot_without_a_parent() -> None:
    """A snapshot's blocks whose parent was evicted are left out; their removal means nothing."""
    index = make_index()
    stored = [make_stored(1, names=[10]), make_stored(3, names=[30], parent=20)]
    index.restore(Snapshot(R1, 1, 4, stored), 0)
    assert len(index) == 1
    assert index.apply(make_batch(make_removed(30), sequence=5), 0)


def test_expected_until_stored() -> None:
    """Expected blocks count as GPU blocks at once, and as what events say once they came."""
    index = filled(make_stored(1, names=[10]))
    hashes = make_hashes(1, 2, 3)
    index.expect(R1, hashes[1:], now_s=0)
    assert index.match(hashes) == {R1: Match(3)}
    index.apply(make_batch(make_stored(2, 3, names=[20, 30], parent=10), sequence=1), 1)
    index.apply(make_batch(make_removed(30), sequence=2), 1)
    assert index.match(hashes) == {R1: Match(2)}


def test_expected_in_vain() -> None:
    """Expected blocks that never come are let go in time."""
    index = filled(make_stored(1, names=[10]))
    index.expect(R1, make_hashes(1, 2, 3)[1:], now_s=0)
    index.apply(make_batch(make_stored(2, names=[20], parent=10), sequence=1), 1)
    index.apply(make_batch(make_stored(3, names=[30], parent=20, tier=Tier.CPU), sequence=2), 1)
    assert index.match(make_hashes(1, 2, 3)) == {R1: Match(3)}
    index.expire(10)
    assert index.match(make_hashes(1, 2, 3)) == {R1: Match(2, 1)}


def test_expected_again() -> None:
    """An expectation lasts from the last time; one replica's ends with its blocks alone."""
    index = filled()
    index.apply(make_batch(replica=R2), 0)
    hashes = make_hashes(1, 2)
    index.expect(R1, hashes, now_s=0)
    index.expect(R2, hashes, now_s=0)
    index.expect(R1, hashes[:1], now_s=5)
    index.expire(9.9)
    assert index.match(hashes) == {R1: Match(2), R2: Match(2)}
    index.expire(10)
    assert index.match(hashes) == {R1: Match(1)}
    index.apply(make_batch(sequence=5), 11)
    assert index.match(hashes) == {}
    index.expect(ReplicaId("unheard of"), hashes, now_s=11)
    assert index.match(hashes) == {}


def test_evicted_blocks_are_remembered() -> None:
    """A block is remembered when its last holder loses it, until it comes back or is too old."""
    index = filled(make_stored(1, 2, names=[10, 20]))
    index.apply(make_batch(make_stored(1, names=[10]), replica=R2), 0)
    one, two = make_hashes(1, 2)
    index.apply(make_batch(make_removed(10, 20), sequence=1), 5)
    assert [index.evicted_at_s(one), index.evicted_at_s(two)] == [None, 5]
    index.forget(R2, 6)
    assert index.evicted_at_s(one) == 6
    index.apply(make_batch(make_stored(1, names=[10]), sequence=2), 7)
    assert index.evicted_at_s(one) is None
    index.expire(65)
    assert index.evicted_at_s(two) == 5
    index.expire(65.1)
    assert index.evicted_at_s(two) is None


def test_the_memory_of_evicted_blocks_is_bounded() -> None:
    """Beyond the limit the block evicted first is forgotten."""
    index = filled(make_stored(1, 2, 3, 4, names=[10, 20, 30, 40]), make_removed(20, 10, 30, 40))
    hashes = make_hashes(1, 2, 3, 4)
    assert [index.evicted_at_s(h) for h in hashes] == [0, None, 0, 0]


@pytest.mark.parametrize("limit", [1, 7, 8, 100])
def test_never_more_evicted_blocks_than_the_limit(limit: int) -> None:
    """However many are evicted, the most recent are remembered, most of the limit at least."""
    evicted = EvictedBlocks(keep_s=60, max_blocks=limit)
    for i in range(1000):
        evicted.add([BlockHash(i)], i)
        assert len(evicted) <= limit
    assert len(evicted) >= limit * 7 // 8
    assert evicted.evicted_at_s(BlockHash(999)) == 999
    assert all(evicted.evicted_at_s(BlockHash(i)) == i for i in range(1000 - len(evicted), 1000))


def test_a_forgotten_replicas_place_is_taken() -> None:
    """A new replica starts with nothing of the one whose place in the masks it takes."""
    index = filled(make_stored(1, names=[10]))
    index.apply(make_batch(make_stored(1, names=[10]), replica=R2), 0)
    index.expect(R1, make_hashes(1, 2), now_s=0)
    index.forget(R1, 0)
    r3 = ReplicaId("r3")
    index.apply(make_batch(make_stored(2, names=[10]), replica=r3), 0)
    assert index.match(make_hashes(1, 2)) == {R2: Match(1)}
    assert index.match(make_hashes(2)) == {r3: Match(1)}


def test_a_snapshot_evicts_only_what_is_gone() -> None:
    """The memory of evicted blocks is kept where it says nothing new."""
    names = list(range(40))
    gone, held = make_stored(*names, names=names), make_stored(100, 101, names=[100, 101])
    index = PrefixIndex(expect_s=30, remember_s=60, max_remembered=41, max_shared=10)
    index.apply(make_batch(gone, make_removed(*names), held), 0)
    index.restore(Snapshot(R1, 1, 0, [make_stored(100, names=[100])]), 1)
    assert index.seen_blocks(make_hashes(*names), 0) == 40
    assert index.evicted_at_s(make_hashes(100)[0]) is None
    assert index.evicted_at_s(make_hashes(100, 101)[1]) == 1
    assert index.match(make_hashes(100, 101)) == {R1: Match(1)}
    assert index.held_blocks(R1) == 1

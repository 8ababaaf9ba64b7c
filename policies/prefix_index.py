"""Which replica holds which blocks of KV, in which tier, as its events say.

Blocks are known by our own hash of everything up to their end. The names that engines give them
serve to find them again: as the parent of a new block, and when they are removed.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from policies.block_holders import BlockHolders
from policies.evicted_blocks import EvictedBlocks
from policies.expectations import Expectations
from policies.kv_events import (
    Cleared,
    Event,
    EventBatch,
    Removed,
    Snapshot,
    Stored,
)
from policies.match import Match
from policies.replica_blocks import ReplicaBlocks
from policies.shared_blocks import SharedBlocks
from policies.slots import Slots
from policies.types import BlockHash, ReplicaId, Tier


@dataclass(slots=True)
class _Replica:
    """How far a replica's events were followed; `next_sequence` is None until it is in sync."""

    blocks: ReplicaBlocks
    generation: int
    next_sequence: int | None


class PrefixIndex:
    """The blocks of all replicas, and of the tier that they share.

    Blocks are expected for `expect_s` after `expect`. Blocks that lost their last holder are
    remembered for `remember_s`, at most `max_remembered` of them (about 100 bytes each). At most
    `max_shared` blocks of the shared tier are known (about 180 bytes each).
    """

    def __init__(
        self, expect_s: float, remember_s: float, max_remembered: int, max_shared: int
    ) -> None:
        self._replicas: dict[ReplicaId, _Replica] = {}
        self._slots = Slots()
        self._evicted = EvictedBlocks(remember_s, max_remembered)
        self._holders = BlockHolders(self._evicted)
        self._shared = SharedBlocks(self._holders, max_shared)
        self._expected = Expectations(expect_s)

    def tune(
        self, expect_s: float, remember_s: float, max_remembered: int, max_shared: int
    ) -> None:
        """Change for how long, and how many."""
        self._shared.max_blocks = max_shared
        self._expected.keep_s = expect_s
        self._evicted.keep_s, self._evicted.max_blocks = remember_s, max_remembered

    def __len__(self) -> int:
        """How many blocks are held anywhere."""
        return len(self._holders)

    def is_synced(self, replica: ReplicaId) -> bool:
        """Tell whether the index knows all that a replica holds."""
        known = self._replicas.get(replica)
        return known is not None and known.next_sequence is not None

    def held_blocks(self, replica: ReplicaId) -> int:
        """Return how many blocks a replica holds in its own memories."""
        known = self._replicas.get(replica)
        return len(known.blocks) if known else 0

    def tier_blocks(self, replica: ReplicaId) -> Mapping[Tier, int]:
        """Return how many blocks are in each of a replica's own memories."""
        known = self._replicas.get(replica)
        return known.blocks.held if known else {}

    def memories(self, block: BlockHash) -> Iterator[tuple[ReplicaId | None, Tier]]:
        """Yield each memory that has a block, as events say: whose, None where all share it."""
        for slot, tier in self._holders.memories(block):
            yield None if slot is None else self._slots.replica(slot), tier

    @property
    def shared_ratio(self) -> float:
        """Return which part of all blocks that are held are in the shared tier."""
        return len(self._shared) / max(1, len(self._holders))

    @property
    def shared_blocks(self) -> int:
        """How many blocks of the shared tier are known."""
        return len(self._shared)

    def apply(self, batch: EventBatch, now_s: float) -> bool:
        """Apply a batch; return whether the replica is in sync. If not, ask it for a snapshot.

        A batch from before what is known changes nothing. A gap, a block with an unknown parent,
        or a new generation whose beginning was missed drops all that the replica holds, and its
        batches are ignored until a snapshot comes. What they say of the shared tier always counts.
        """
        known = self._replicas.get(batch.replica)
        if known is None or known.generation < batch.generation:
            # An engine starts with nothing, so its first batch leaves nothing unknown.
            next_sequence = 0 if batch.sequence == 0 else None
            known = self._start(batch.replica, batch.generation, next_sequence, now_s)
        if (batch.generation, batch.sequence) < (known.generation, known.next_sequence or 0):
            return known.next_sequence is not None
        self._apply_shared(batch.events, now_s)
        if known.next_sequence is None:
            return False
        if batch.sequence > known.next_sequence or not self._apply(
            known.blocks, batch.events, now_s
        ):
            self._drop_blocks(known, now_s)
            known.next_sequence = None
            return False
        known.next_sequence += 1
        return True

    def restore(self, snapshot: Snapshot, now_s: float) -> None:
        """Replace all that a replica holds, unless more recent batches were applied already.

        Blocks without their parents are left out: no prompt can reach them.
        """
        known = self._replicas.get(snapshot.replica)
        next_sequence = snapshot.sequence + 1
        if known and (snapshot.generation, next_sequence) < (
            known.generation,
            known.next_sequence or 0,
        ):
            return
        self._apply_shared(snapshot.stored, now_s)
        blocks = ReplicaBlocks(self._slots.take(snapshot.replica), self._holders)
        for stored in snapshot.stored:
            if stored.tier is not Tier.SHARED:
                blocks.store(stored)
        self.forget(snapshot.replica, now_s)  # by now, so that what it still holds isn't evicted
        self._replicas[snapshot.replica] = _Replica(blocks, snapshot.generation, next_sequence)

    def forget(self, replica: ReplicaId, now_s: float) -> None:
        """Forget a replica that is gone."""
        if known := self._replicas.pop(replica, None):
            self._drop_blocks(known, now_s)
            self._slots.free(known.blocks.slot)

    def expect(self, replica: ReplicaId, blocks: Iterable[BlockHash], now_s: float) -> None:
        """Count blocks as held in GPU memory until an event says so, or never did in time.

        Says nothing of a replica that never reported anything.
        """
        if known := self._replicas.get(replica):
            self._expected.add(known.blocks.slot, blocks, now_s)

    def expire(self, now_s: float) -> None:
        """Let go of expectations and of memories that are too old."""
        self._expected.expire(now_s)
        self._evicted.expire(now_s)

    def match(self, blocks: Sequence[BlockHash]) -> dict[ReplicaId, Match]:
        """Return how much of a prompt each replica can reuse; those with nothing are left out."""
        depths = self._holders.match(blocks, self._slots.mask, self._expected.masks)
        return {self._slots.replica(slot): Match(*counts) for slot, counts in depths.items()}

    def evicted_at_s(self, block: BlockHash) -> float | None:
        """Return when a block lost its last holder; None where that's unknown or it has one."""
        return self._evicted.evicted_at_s(block)

    def seen_blocks(self, blocks: Sequence[BlockHash], least: int) -> int:
        """Return how many blocks of a prompt's beginning are held by anyone, or remembered.

        At least `least` are. Who computed a block computed all before it, and a prompt's end is
        evicted first: so bisection finds where that ends.
        """
        holders, evicted = self._holders, self._evicted
        return bisect_left(
            blocks,
            True,
            lo=least,
            key=lambda block: block not in holders and evicted.evicted_at_s(block) is None,
        )

    def _start(
        self, replica: ReplicaId, generation: int, next_sequence: int | None, now_s: float
    ) -> _Replica:
        """Begin a replica's account anew, with nothing held."""
        if known := self._replicas.get(replica):
            self._drop_blocks(known, now_s)
            known.generation, known.next_sequence = generation, next_sequence
            return known
        blocks = ReplicaBlocks(self._slots.take(replica), self._holders)
        self._replicas[replica] = _Replica(blocks, generation, next_sequence)
        return self._replicas[replica]

    def _apply_shared(self, events: Sequence[Event], now_s: float) -> None:
        for event in events:
            if event.tier is not Tier.SHARED:
                continue
            match event:
                case Stored():
                    self._shared.store(event, now_s)
                case Removed():
                    self._shared.remove(event, now_s)
                case Cleared():
                    self._shared.clear(now_s)

    def _apply(self, blocks: ReplicaBlocks, events: Sequence[Event], now_s: float) -> bool:
        """Apply events of its own memories; stop, False, at a block with an unknown parent."""
        for event in events:
            if event.tier is Tier.SHARED:
                continue
            match event:
                case Stored():
                    stored = blocks.store(event)
                    if stored is None:
                        return False
                    if event.tier is Tier.GPU:
                        self._expected.discard(blocks.slot, stored)
                case Removed():
                    blocks.remove(event, now_s)
                case Cleared():
                    blocks.clear(event.tier, now_s)
        return True

    def _drop_blocks(self, known: _Replica, now_s: float) -> None:
        known.blocks.drop(now_s)
        self._expected.drop(known.blocks.slot)

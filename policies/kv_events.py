"""What an engine says of its KV cache: blocks stored, removed and cleared, and whole snapshots."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NewType

from policies.types import BlockHash, ReplicaId, Tier

EngineHash = NewType("EngineHash", int)
"""An engine's own name of a block: opaque, good only within one generation of one replica.

In the shared tier all engines call a block the same.
"""


@dataclass(frozen=True, slots=True)
class Stored:
    """Consecutive blocks are now in a tier, once more if they were there already.

    `contents[i]` is `block_hash.block_contents` of the tokens of the block that the engine calls
    `engine_hashes[i]`. The first one follows `parent`; where that is None, `root` is the hash of
    all that precedes it: a prompt's root hash, or that of the block before, held or not. Whichever
    replica says so, blocks in the shared tier are there for all, and once.
    """

    tier: Tier
    root: BlockHash
    parent: EngineHash | None
    engine_hashes: Sequence[EngineHash]
    contents: list[int]


@dataclass(frozen=True, slots=True)
class Removed:
    """One copy of each block left a tier of this replica, or the only one the shared tier."""

    tier: Tier
    engine_hashes: Sequence[EngineHash]


@dataclass(frozen=True, slots=True)
class Cleared:
    """A tier of this replica, or the shared one, is empty now."""

    tier: Tier


Event = Stored | Removed | Cleared


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events in order. Sequences count batches from 0 within a generation, which only grows."""

    replica: ReplicaId
    generation: int
    sequence: int
    events: Sequence[Event]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a replica holds after the batch `sequence`, parents before their children.

    It comes in the stream of the replica's batches, between `sequence` and the next.
    """

    replica: ReplicaId
    generation: int
    sequence: int
    stored: Sequence[Stored]

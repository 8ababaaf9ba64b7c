"""The blocks of one replica, by the names that its engine gives them."""

from collections.abc import Sequence

from policies.block_hash import chain
from policies.block_holders import BlockHolders, bit, bits
from policies.kv_events import EngineHash, Removed, Stored
from policies.types import BlockHash, Tier


class ReplicaBlocks:
    """Names of blocks in a replica's own memories, kept in step with `holders`."""

    def __init__(self, slot: int, holders: BlockHolders) -> None:
        self.slot = slot
        self._holders = holders
        self._names: dict[EngineHash, BlockHash] = {}
        self._copies: dict[tuple[BlockHash, Tier], int] = {}
        """Copies beyond the first: requests that compute the same block each keep their own."""

    def __len__(self) -> int:
        """How many names stand for a block."""
        return len(self._names)

    def store(self, stored: Stored) -> Sequence[BlockHash] | None:
        """Add blocks and return them; None, and nothing added, where their parent has no name."""
        parent = stored.root if stored.parent is None else self._names.get(stored.parent)
        if parent is None:
            return None
        blocks = chain(parent, stored.contents)
        for name, block in zip(stored.engine_hashes, blocks, strict=True):
            self._names[name] = block
            if not self._holders.add(block, bit(self.slot, stored.tier)):
                copy = block, stored.tier
                self._copies[copy] = self._copies.get(copy, 0) + 1
        return blocks

    def remove(self, removed: Removed, now_s: float) -> None:
        """Take one copy of each block away; names that stand for no block mean nothing."""
        for name in removed.engine_hashes:
            if (block := self._names.get(name)) is None:
                continue
            copy = block, removed.tier
            if copies := self._copies.pop(copy, 0):
                if copies > 1:
                    self._copies[copy] = copies - 1
            elif not self._keeps(block, removed.tier, now_s):
                del self._names[name]

    def clear(self, tier: Tier, now_s: float) -> None:
        """Empty a tier."""
        self._copies = {copy: count for copy, count in self._copies.items() if copy[1] != tier}
        self._names = {
            name: block for name, block in self._names.items() if self._keeps(block, tier, now_s)
        }

    def drop(self, now_s: float) -> None:
        """Empty all its memories."""
        for block in self._names.values():
            self._holders.remove(block, bits(self.slot), now_s)
        self._names = {}
        self._copies = {}

    def _keeps(self, block: BlockHash, tier: Tier, now_s: float) -> bool:
        """Take a block out of one tier; tell whether the replica has it in another."""
        left = self._holders.remove(block, bit(self.slot, tier), now_s)
        return bool(left & bits(self.slot))

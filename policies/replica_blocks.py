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
        self.held = {Tier.GPU: 0, Tier.CPU: 0}
        """How many blocks are in each of its memories."""
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
        self._names.update(zip(stored.engine_hashes, blocks, strict=True))
        again = self._holders.add(blocks, bit(self.slot, stored.tier))
        self.held[stored.tier] += len(blocks) - len(again)
        for block in again:
            copy = block, stored.tier
            self._copies[copy] = self._copies.get(copy, 0) + 1
        return blocks

    def remove(self, removed: Removed, now_s: float) -> None:
        """Take one copy of each block away; names that stand for no block mean nothing."""
        names = [name for name in removed.engine_hashes if name in self._names]
        if self._copies:
            names = [name for name in names if not self._remove_copy(name, removed.tier)]
        self._leave(names, removed.tier, now_s)

    def clear(self, tier: Tier, now_s: float) -> None:
        """Empty a tier."""
        self._copies = {copy: count for copy, count in self._copies.items() if copy[1] != tier}
        self._leave(list(self._names), tier, now_s)

    def _remove_copy(self, name: EngineHash, tier: Tier) -> bool:
        """Take one of several copies of a block away; False where there is but one."""
        copy = self._names[name], tier
        copies = self._copies.pop(copy, 0)
        if copies > 1:
            self._copies[copy] = copies - 1
        return copies > 0

    def _leave(self, names: Sequence[EngineHash], tier: Tier, now_s: float) -> None:
        """Take blocks out of a tier, and forget the names of those that are in no other."""
        blocks = self._names
        leaving = [blocks[name] for name in names]
        self.held[tier] -= self._holders.remove(leaving, bit(self.slot, tier), now_s)
        holds, anywhere = self._holders.holds, bits(self.slot)
        for name in set(names):
            if not holds(blocks[name], anywhere):
                del blocks[name]

    def drop(self, now_s: float) -> None:
        """Empty all its memories."""
        self._holders.remove(self._names.values(), bits(self.slot), now_s)
        self._names = {}
        self._copies = {}
        self.held = dict.fromkeys(self.held, 0)

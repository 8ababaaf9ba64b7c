"""Which replica holds which block in which tier: one table of bit masks, walked once for all.

A replica is a slot, a small number, and owns one bit per tier of each block's mask. Few masks
differ, so equal ones are made one object, which keeps the table small.
"""

from collections.abc import Iterator, Mapping, Sequence

from policies.evicted_blocks import EvictedBlocks
from policies.types import BlockHash, Tier

_TIERS = len(Tier)
_ALL_TIERS = (1 << _TIERS) - 1
_MAX_INTERNED = 1 << 16

Depths = tuple[int, int, int]
"""How many blocks of a prompt's beginning, for each tier."""


def bit(slot: int, tier: Tier) -> int:
    """Return the bit that says that a slot holds a block in a tier."""
    return 1 << slot * _TIERS + tier


def slots_of(bits: int) -> Iterator[int]:
    """Yield the slots whose first bit is set in `bits`, which has no others."""
    while bits:
        lowest = bits & -bits
        yield (lowest.bit_length() - 1) // _TIERS
        bits ^= lowest


class BlockHolders:
    """Blocks and their holders. A block that loses the last one goes to `evicted`."""

    def __init__(self, evicted: EvictedBlocks) -> None:
        self._masks: dict[BlockHash, int] = {}
        self._interned: dict[int, int] = {}
        self._evicted = evicted

    def __len__(self) -> int:
        """How many blocks have a holder."""
        return len(self._masks)

    def __contains__(self, block: BlockHash) -> bool:
        """Whether a block has a holder."""
        return block in self._masks

    def add(self, slot: int, tier: Tier, block: BlockHash) -> bool:
        """Add a holder; False where it was one already."""
        held = self._masks.get(block, 0)
        mask = held | bit(slot, tier)
        if mask == held:
            return False
        if len(self._interned) >= _MAX_INTERNED:
            self._interned.clear()
        self._masks[block] = self._interned.setdefault(mask, mask)
        if not held:
            self._evicted.discard(block)
        return True

    def remove(self, slot: int, tier: Tier, block: BlockHash, now_s: float) -> bool:
        """Remove a holder; True where the slot holds the block in no tier any more."""
        return not self._clear(block, bit(slot, tier), now_s) >> slot * _TIERS & _ALL_TIERS

    def drop(self, slot: int, block: BlockHash, now_s: float) -> None:
        """Remove a slot from a block's holders in every tier."""
        self._clear(block, _ALL_TIERS << slot * _TIERS, now_s)

    def _clear(self, block: BlockHash, bits: int, now_s: float) -> int:
        held = self._masks.get(block, 0)
        mask = held & ~bits
        if mask:
            self._masks[block] = self._interned.setdefault(mask, mask)
        elif held:
            del self._masks[block]
            self._evicted.add(block, now_s)
        return mask

    def match(
        self, blocks: Sequence[BlockHash], slots: int, expected: Mapping[BlockHash, int]
    ) -> dict[int, Depths]:
        """Return how far each of the slots holds a prompt; those that hold nothing are left out.

        `slots` has the first bit of each slot, `expected` those of the slots where a block is to
        count as if it were in GPU memory. GPU blocks count up to the first that is missing, from
        there blocks in CPU memory up to the first that is missing there, and from there blocks
        that any slot has in the shared tier.
        """
        in_gpu, in_cpu, in_shared = slots, 0, 0
        gpu_ends: dict[int, int] = {}
        cpu_ends: dict[int, int] = {}
        shared_ends: dict[int, int] = {}
        last = None
        held, foreseen = self._masks.get, expected.get
        for depth, block in enumerate(blocks):
            mask = held(block, 0)
            if bits := foreseen(block):
                mask |= bits
            if mask == last:  # the same holders: nobody stops here who went on before
                continue
            last = mask
            if gone := in_gpu & ~mask:
                in_gpu ^= gone
                in_cpu |= gone
                gpu_ends.update(dict.fromkeys(slots_of(gone), depth))
            if gone := in_cpu & ~(mask >> Tier.CPU):
                in_cpu ^= gone
                in_shared |= gone
                cpu_ends.update(dict.fromkeys(slots_of(gone), depth))
            if in_shared and not mask >> Tier.SHARED & slots:
                shared_ends.update(dict.fromkeys(slots_of(in_shared), depth))
                in_shared = 0
                if not in_gpu | in_cpu:
                    break
        return _depths(len(blocks), slots, gpu_ends, cpu_ends, shared_ends)


def _depths(
    end: int, slots: int, gpu: dict[int, int], cpu: dict[int, int], shared: dict[int, int]
) -> dict[int, Depths]:
    """Turn the depths where slots left each tier, if they did before `end`, into counts."""
    depths: dict[int, Depths] = {}
    for slot in slots_of(slots):
        gpu_end = gpu.get(slot, end)
        cpu_end = cpu.get(slot, end)
        shared_end = shared.get(slot, end)
        if shared_end:
            depths[slot] = (gpu_end, cpu_end - gpu_end, shared_end - cpu_end)
    return depths

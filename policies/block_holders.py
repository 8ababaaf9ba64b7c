"""Which replica holds which block in which tier: one table of bit masks, walked once for all.

A replica is a slot, a small number, and owns one bit for each of its memories in a block's mask;
the tier that all replicas share has one bit. Few masks differ, so equal ones are made one object,
which keeps the table small.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from policies.evicted_blocks import EvictedBlocks
from policies.types import BlockHash, Tier

SHARED_BIT = 1
"""Says that a block is in the shared tier."""

_FIRST_BIT = 1
_MEMORIES = 2
_MAX_INTERNED = 1 << 16

Depths = tuple[int, int, int]
"""How many blocks of a prompt's beginning, for each tier."""


def bit(slot: int, tier: Tier) -> int:
    """Return the bit that says that a block is in a tier, of this slot unless it is shared."""
    return SHARED_BIT if tier is Tier.SHARED else 1 << _FIRST_BIT + slot * _MEMORIES + tier


def bits(slot: int) -> int:
    """Return the bits of all memories of a slot."""
    return bit(slot, Tier.GPU) | bit(slot, Tier.CPU)


def slots_of(mask: int) -> Iterator[int]:
    """Yield the slots whose GPU bit is set in a mask, which has no others."""
    while mask:
        lowest = mask & -mask
        yield (lowest.bit_length() - 1 - _FIRST_BIT) // _MEMORIES
        mask ^= lowest


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

    def add(self, blocks: Sequence[BlockHash], holder: int) -> list[BlockHash]:
        """Set a holder's bit in each block's mask; return the blocks where it was set already."""
        if len(self._interned) >= _MAX_INTERNED:
            self._interned.clear()
        masks, intern = self._masks, self._interned.setdefault
        held_by = masks.get
        again: list[BlockHash] = []
        new: list[BlockHash] = []
        for block in blocks:
            held = held_by(block, 0)
            if held & holder:
                again.append(block)
                continue
            mask = held | holder
            masks[block] = intern(mask, mask)
            if not held:
                new.append(block)
        self._evicted.discard(new)
        return again

    def remove(self, blocks: Iterable[BlockHash], holders: int, now_s: float) -> int:
        """Clear holders' bits in each block's mask; return in how many one was set."""
        masks, intern = self._masks, self._interned.setdefault
        held_by = masks.get
        gone: list[BlockHash] = []
        removed = 0
        for block in blocks:
            held = held_by(block, 0)
            mask = held & ~holders
            removed += mask != held
            if mask:
                masks[block] = intern(mask, mask)
            elif held:
                del masks[block]
                gone.append(block)
        self._evicted.add(gone, now_s)
        return removed

    def memories(self, block: BlockHash) -> Iterator[tuple[int | None, Tier]]:
        """Yield each memory that has a block: its slot, None where all share it, and its tier."""
        mask = self._masks.get(block, 0)
        if mask & SHARED_BIT:
            yield None, Tier.SHARED
        own = mask >> _FIRST_BIT
        while own:
            lowest = own & -own
            slot, tier = divmod(lowest.bit_length() - 1, _MEMORIES)
            yield slot, Tier(tier)
            own ^= lowest

    def holds(self, block: BlockHash, holders: int) -> bool:
        """Tell whether any of these holders has a block."""
        return bool(self._masks.get(block, 0) & holders)

    def match(
        self, blocks: Sequence[BlockHash], slots: int, expected: Mapping[BlockHash, int]
    ) -> dict[int, Depths]:
        """Return how far each of the slots holds a prompt; those that hold nothing are left out.

        `slots` has the GPU bit of each slot, `expected` those of the slots where a block is to
        count as if it were in GPU memory. GPU blocks count up to the first that is missing, from
        there blocks in CPU memory up to the first that is missing there, and from there blocks
        in the shared tier.
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
            if in_shared and not mask & SHARED_BIT:
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

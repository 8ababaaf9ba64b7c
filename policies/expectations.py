"""Blocks that a replica will soon hold in GPU memory, as a request for them was just sent there."""

from collections.abc import Iterable, Mapping
from itertools import takewhile

from policies.block_holders import bit
from policies.types import BlockHash, Tier


class Expectations:
    """Expected blocks by slot; each lasts `keep_s` from the last time it was expected."""

    def __init__(self, keep_s: float) -> None:
        self.keep_s = keep_s
        self._until_s: dict[int, dict[BlockHash, float]] = {}
        self._masks: dict[BlockHash, int] = {}

    @property
    def masks(self) -> Mapping[BlockHash, int]:
        """The bits of the slots that are expected to hold a block in GPU memory."""
        return self._masks

    def add(self, slot: int, blocks: Iterable[BlockHash], now_s: float) -> None:
        """Expect blocks in a slot, once more if they were already."""
        until_s = self._until_s.setdefault(slot, {})
        for block in blocks:
            until_s.pop(block, None)  # so that the first are the next to expire
            until_s[block] = now_s + self.keep_s
            self._masks[block] = self._masks.get(block, 0) | bit(slot, Tier.GPU)

    def discard(self, slot: int, blocks: Iterable[BlockHash]) -> None:
        """Expect blocks in a slot no longer: they came, or never will."""
        if until_s := self._until_s.get(slot):
            for block in blocks:
                if until_s.pop(block, None) is not None:
                    self._clear(slot, block)

    def drop(self, slot: int) -> None:
        """Expect nothing in a slot."""
        for block in self._until_s.pop(slot, ()):
            self._clear(slot, block)

    def expire(self, now_s: float) -> None:
        """Drop what should have come by now."""
        for slot, until_s in self._until_s.items():
            for block, _ in list(takewhile(lambda item: item[1] <= now_s, until_s.items())):
                del until_s[block]
                self._clear(slot, block)

    def _clear(self, slot: int, block: BlockHash) -> None:
        if mask := self._masks[block] & ~bit(slot, Tier.GPU):
            self._masks[block] = mask
        else:
            del self._masks[block]

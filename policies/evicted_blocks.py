"""Blocks that lost their last holder, remembered for a while, so that a miss can be named."""

from policies.types import BlockHash


class EvictedBlocks:
    """When each block was evicted: at most `max_blocks`, for at most `keep_s`."""

    def __init__(self, keep_s: float, max_blocks: int) -> None:
        self._keep_s = keep_s
        self._max_blocks = max_blocks
        self._at_s: dict[BlockHash, float] = {}

    def __len__(self) -> int:
        """How many blocks are remembered."""
        return len(self._at_s)

    def evicted_at_s(self, block: BlockHash) -> float | None:
        """Return when a block lost its last holder; None where that's unknown or it has one."""
        return self._at_s.get(block)

    def add(self, block: BlockHash, now_s: float) -> None:
        """Remember a block, and forget the oldest one beyond the limit."""
        self._at_s[block] = now_s
        if len(self._at_s) > self._max_blocks:
            del self._at_s[next(iter(self._at_s))]

    def discard(self, block: BlockHash) -> None:
        """Forget a block, as someone holds it again."""
        self._at_s.pop(block, None)

    def expire(self, now_s: float) -> None:
        """Forget what was evicted more than `keep_s` ago."""
        while self._at_s:
            block, at_s = next(iter(self._at_s.items()))
            if now_s - at_s <= self._keep_s:
                return
            del self._at_s[block]

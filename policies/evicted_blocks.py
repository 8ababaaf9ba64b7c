"""Blocks that lost their last holder, remembered for a while, so that a miss can be named."""

from collections.abc import Iterable, Sequence
from itertools import islice, takewhile

from policies.types import BlockHash


class EvictedBlocks:
    """When each block was evicted: at most `max_blocks`, for at most `keep_s`.

    The oldest are forgotten an eighth at a time, as finding the first key of a dict that lost many
    before it is slow.
    """

    def __init__(self, keep_s: float, max_blocks: int) -> None:
        self.keep_s = keep_s
        self.max_blocks = max_blocks
        self._at_s: dict[BlockHash, float] = {}

    def __len__(self) -> int:
        """How many blocks are remembered."""
        return len(self._at_s)

    def evicted_at_s(self, block: BlockHash) -> float | None:
        """Return when a block lost its last holder; None where that's unknown or it has one."""
        return self._at_s.get(block)

    def add(self, blocks: Sequence[BlockHash], now_s: float) -> None:
        """Remember blocks; forget the oldest ones where there are too many."""
        self._at_s.update(dict.fromkeys(blocks, now_s))
        if len(self._at_s) > self.max_blocks:
            too_many = len(self._at_s) - self.max_blocks
            for oldest in list(islice(self._at_s, too_many + self.max_blocks // 8)):
                del self._at_s[oldest]

    def discard(self, blocks: Iterable[BlockHash]) -> None:
        """Forget blocks, as someone holds them again."""
        if self._at_s:
            forget = self._at_s.pop
            for block in blocks:
                forget(block, None)

    def expire(self, now_s: float) -> None:
        """Forget what was evicted more than `keep_s` ago."""
        old = takewhile(lambda item: now_s - item[1] > self.keep_s, self._at_s.items())
        for block, _ in list(old):
            del self._at_s[block]

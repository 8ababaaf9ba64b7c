"""The blocks of the shared tier, which no replica owns and every one can read."""

from collections.abc import Sequence
from itertools import islice

from policies.block_hash import chain
from policies.block_holders import SHARED_BIT, BlockHolders
from policies.kv_events import EngineHash, Removed, Stored
from policies.types import BlockHash


class SharedBlocks:
    """Names of at most `max_blocks` blocks, about 180 bytes each, kept in step with `holders`.

    Engines give a block of the shared tier the same name, so that one may say that it is gone
    which another stored. Not all say so: the names heard least recently are forgotten, an eighth at
    a time, where there are too many.
    """

    def __init__(self, holders: BlockHolders, max_blocks: int) -> None:
        self.max_blocks = max_blocks
        self._holders = holders
        self._names: dict[EngineHash, BlockHash] = {}

    def __len__(self) -> int:
        """How many blocks are known."""
        return len(self._names)

    def store(self, stored: Stored, now_s: float) -> None:
        """Add blocks, or hear of them once more; nothing where their parent has no name here."""
        parent = stored.root if stored.parent is None else self._names.get(stored.parent)
        if parent is None:
            return
        blocks = chain(parent, stored.contents)
        for name, block in zip(stored.engine_hashes, blocks, strict=True):
            self._names.pop(name, None)  # so that it counts as heard last
            self._names[name] = block
        self._holders.add(blocks, SHARED_BIT)
        if len(self._names) > self.max_blocks:
            self._drop(
                list(islice(self._names, len(self._names) - self.max_blocks * 7 // 8)), now_s
            )

    def remove(self, removed: Removed, now_s: float) -> None:
        """Take blocks away; names that stand for no block mean nothing."""
        self._drop(removed.engine_hashes, now_s)

    def clear(self, now_s: float) -> None:
        """Empty the tier."""
        self._drop(list(self._names), now_s)

    def _drop(self, names: Sequence[EngineHash], now_s: float) -> None:
        blocks = [self._names.pop(name) for name in names if name in self._names]
        self._holders.remove(blocks, SHARED_BIT, now_s)

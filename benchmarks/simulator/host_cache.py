"""KV blocks in a replica's CPU memory: least recently used go first, of a prompt its end.

As vLLM's offloading connector does it: what is computed is copied at once, and a request's
blocks count as used when it is looked up and when it is stored.
"""

from collections import OrderedDict
from collections.abc import Collection, Sequence

from benchmarks.simulator.held_prefix import held_end
from policies.types import BlockHash


class HostCache:
    """At most `total` blocks."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._blocks: OrderedDict[BlockHash, None] = OrderedDict()

    @property
    def cached(self) -> Collection[BlockHash]:
        """The blocks that can be reused."""
        return self._blocks.keys()

    def match(self, prompt: Sequence[BlockHash], start: int) -> int:
        """Return how far a prompt can be read from block `start` on: the block where that ends."""
        return held_end(prompt, self._blocks, start)

    def store(self, prompt: Sequence[BlockHash]) -> tuple[list[BlockHash], list[BlockHash]]:
        """Use a prompt's blocks, the missing ones added; return what was added and evicted.

        Of a prompt longer than the memory the end is left out.
        """
        blocks = self._blocks
        prompt = prompt[: self.total]
        added = [block for block in prompt if block not in blocks]
        for block in reversed(prompt):
            blocks[block] = None
            blocks.move_to_end(block)
        evicted = [blocks.popitem(last=False)[0] for _ in range(len(blocks) - self.total)]
        return added, evicted

"""KV blocks in a replica's CPU memory: least recently used go first, of a prompt its end.

As vLLM's offloading connector does it: what is computed is copied at once, and a request's
blocks count as used when they are stored. So whoever holds a block holds all before it.
"""

from collections.abc import Collection, Sequence
from itertools import islice

from benchmarks.simulator.held_prefix import held_end
from policies.types import BlockHash


class HostCache:
    """At most `total` blocks."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._blocks: dict[BlockHash, None] = {}

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
        held = held_end(prompt, blocks)
        for block in prompt[:held]:
            del blocks[block]
        blocks.update(dict.fromkeys(reversed(prompt)))
        evicted = list(islice(blocks, max(0, len(blocks) - self.total)))
        for block in evicted:
            del blocks[block]
        return list(prompt[held:]), evicted

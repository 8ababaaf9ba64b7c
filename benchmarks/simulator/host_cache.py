"""KV blocks in a replica's CPU memory, evicted in vLLM's order (vllm/v1/kv_offload/cpu).

As vLLM's offloading connector does it: a prompt's blocks are copied here when they are computed,
an answer's are not. What a request read here or offered to be copied counts as used when the
request ends, its beginning as the most recent. It offers all of its prompt; but where some of it
was read from here, only what follows that. So the part that was found in GPU memory may be
forgotten here before what follows it.
"""

from collections.abc import Collection, Sequence
from itertools import islice

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
        for end in range(start, len(prompt)):
            if prompt[end] not in self._blocks:
                return end
        return len(prompt)

    def store(self, offered: Sequence[BlockHash]) -> tuple[list[BlockHash], list[BlockHash]]:
        """Add those of the offered blocks that are missing; return what was added and evicted.

        None of those offered is evicted; where they can't all be here, nothing is added.
        """
        blocks = self._blocks
        missing = [block for block in offered if block not in blocks]
        surplus = max(0, len(blocks) + len(missing) - self.total)
        kept = set(offered) if surplus else ()
        evicted = list(islice((block for block in blocks if block not in kept), surplus))
        if len(evicted) < surplus:
            return [], []
        for block in evicted:
            del blocks[block]
        blocks.update(dict.fromkeys(missing))
        return missing, evicted

    def use(self, prompt: Sequence[BlockHash]) -> None:
        """Count those of a prompt's blocks that are here as used now, the first one last."""
        here = [block for block in reversed(prompt) if block in self._blocks]
        for block in here:
            del self._blocks[block]
        self._blocks.update(dict.fromkeys(here))

"""A tier of KV that all replicas read and write: what it holds, and how fast it is.

Each replica has a link to it, of the same speed in both directions at once. What all of them move
goes through the tier's backend, first come, first served.
"""

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf
from typing import Self

from benchmarks.simulator.presets import Hardware
from policies.types import BlockHash


@dataclass(frozen=True, slots=True)
class SharedTierSize:
    """Its capacity and speeds; the backend's is of reads and writes of all replicas together."""

    link_tokens_per_s: float
    total_tokens: float = inf
    backend_tokens_per_s: float = inf

    @classmethod
    def of(
        cls, hardware: Hardware, link_gbps: float, total_tokens: float, backend_gbps: float
    ) -> Self:
        """Return it for speeds in GB/s.

        Raises ValueError where there is no CPU memory: vLLM reads the tier into that.
        """
        if not hardware.host_tokens:
            msg = "a shared tier is read into CPU memory, and there is none"
            raise ValueError(msg)
        tokens_per_gb = 1e9 / hardware.kv_bytes_per_token
        return cls(link_gbps * tokens_per_gb, total_tokens, backend_gbps * tokens_per_gb)


class SharedTier:
    """At most `size.total_tokens`, least recently written or read blocks evicted first.

    A block that a request finds in its replica's own memory isn't used here, as nobody tells: the
    beginning of a prompt can go before its end.
    """

    def __init__(self, size: SharedTierSize, block_size: int) -> None:
        self.size = size
        self._total = size.total_tokens / block_size
        self._blocks: OrderedDict[BlockHash, None] = OrderedDict()
        self._backend_free_at_s = 0.0

    @property
    def cached(self) -> Collection[BlockHash]:
        """The blocks that can be read."""
        return self._blocks.keys()

    def read(self, blocks: Sequence[BlockHash]) -> None:
        """Use blocks of a prompt, in its order, if they are still there."""
        for block in reversed(blocks):
            if block in self._blocks:
                self._blocks.move_to_end(block)

    def write(self, blocks: Sequence[BlockHash]) -> list[BlockHash]:
        """Add blocks of a prompt, in its order; return what was evicted for them."""
        for block in reversed(blocks):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        evicted = []
        while len(self._blocks) > self._total:
            evicted.append(self._blocks.popitem(last=False)[0])
        return evicted

    def transfer(self, tokens: int, now_s: float) -> float:
        """Begin to move tokens over a link that's free; return when they are there."""
        begin_s = max(self._backend_free_at_s, now_s)
        self._backend_free_at_s = begin_s + tokens / self.size.backend_tokens_per_s
        return max(self._backend_free_at_s, now_s + tokens / self.size.link_tokens_per_s)

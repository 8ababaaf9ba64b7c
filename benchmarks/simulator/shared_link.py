"""A replica's link to the shared tier: what is fetched and written over it, and when that's done.

As vLLM's tiering offloading does it (v1/kv_offload/tiering/manager.py):

- Blocks that a waiting request lacks are fetched into CPU memory while it holds nothing, and only
  then does it ask for GPU memory. Blocks on their way already are not fetched again.
- What is new in CPU memory is written through, and is in the tier when it has arrived there.

CPU memory makes room when blocks arrive, not when they are asked for. Writes are never refused.
"""

from collections import deque
from dataclasses import dataclass
from math import inf

from benchmarks.simulator.kv_memory import KvMemory
from benchmarks.simulator.shared_tier import SharedTier
from benchmarks.simulator.turn import Turn
from policies.types import BlockHash


@dataclass(frozen=True, slots=True)
class Transfer:
    """Blocks of a prompt, of which `tokens` are moved."""

    turn: Turn
    blocks: list[BlockHash]
    tokens: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """A transfer from the tier, when it began, and whether CPU memory could take it."""

    transfer: Transfer
    fits: bool
    began_at_s: float


class _Direction:
    """Transfers, one after another."""

    def __init__(self, tier: SharedTier) -> None:
        self._tier = tier
        self._transfers: deque[Transfer] = deque()
        self.began_at_s = 0.0
        self.ends_at_s = inf

    def add(self, transfer: Transfer, now_s: float) -> None:
        self._transfers.append(transfer)
        if len(self._transfers) == 1:
            self._begin(now_s)

    def end(self) -> Transfer:
        """End the transfer that's due, and begin the next one."""
        transfer, ended_at_s = self._transfers.popleft(), self.ends_at_s
        self.ends_at_s = inf
        if self._transfers:
            self._begin(ended_at_s)
        return transfer

    def _begin(self, now_s: float) -> None:
        self.began_at_s = now_s
        self.ends_at_s = self._tier.transfer(self._transfers[0].tokens, now_s)


class SharedLink:
    """Moves KV between a replica's CPU memory and the shared tier, and changes what both hold."""

    def __init__(self, memory: KvMemory, tier: SharedTier) -> None:
        self._memory = memory
        self._tier = tier
        self._reads = _Direction(tier)
        self._writes = _Direction(tier)
        self._coming: set[BlockHash] = set()

    @property
    def tokens_per_s(self) -> float:
        """Its speed when nothing else is moved."""
        size = self._tier.size
        return min(size.link_tokens_per_s, size.backend_tokens_per_s)

    @property
    def next_at_s(self) -> float:
        """When the next transfer ends."""
        return min(self._reads.ends_at_s, self._writes.ends_at_s)

    def fetch(self, turn: Turn, now_s: float) -> bool:
        """Fetch what a request's prompt lacks in the replica's memories; False if there is nothing.

        Blocks that come for another request count as fetched for this one too.
        """
        blocks = self._memory.lacking(turn, self._tier)
        if not blocks:
            return False
        new = [block for block in blocks if block not in self._coming]
        self._coming.update(new)
        tokens = len(new) * turn.request.block_size
        self._reads.add(Transfer(turn, blocks, tokens), now_s)
        return True

    def write(self, turn: Turn, blocks: list[BlockHash], now_s: float) -> None:
        """Write blocks of a prompt that are new in CPU memory."""
        if blocks:
            tokens = len(blocks) * turn.request.block_size
            self._writes.add(Transfer(turn, blocks, tokens), now_s)

    def complete(self) -> Fetched | None:
        """End the transfer that is due; return it if it was fetched for a request."""
        if self._writes.ends_at_s < self._reads.ends_at_s:
            written = self._writes.end()
            self._memory.wrote(written.turn, written.blocks, self._tier)
            return None
        began_at_s = self._reads.began_at_s
        transfer = self._reads.end()
        self._coming.difference_update(transfer.blocks)
        fits = self._memory.fetched(transfer.turn, transfer.blocks, self._tier)
        return Fetched(transfer, fits, began_at_s)

"""A replica's memories for KV, and what a request finds, takes and leaves there."""

from collections.abc import Sequence

from benchmarks.simulator.block_pool import BlockPool
from benchmarks.simulator.cache_events import CacheEvents
from benchmarks.simulator.host_cache import HostCache
from benchmarks.simulator.progress import Hit
from benchmarks.simulator.running import Running
from benchmarks.simulator.shared_tier import SharedTier
from benchmarks.simulator.turn import Turn
from benchmarks.simulator.waiting import Waiting
from policies.types import BlockHash, Tier


class KvMemory:
    """GPU memory, `pool`, which several replicas may share, and CPU memory, `host`.

    `events` has what changed in them.
    """

    def __init__(self, pool: BlockPool, host: HostCache) -> None:
        self.pool = pool
        self.host = host
        self.events = CacheEvents()

    def holds(self, block: BlockHash) -> bool:
        """Tell whether a block is in either memory."""
        return block in self.pool.cached or block in self.host.cached

    def reach(self, prompt: Sequence[BlockHash]) -> int:
        """Return how many blocks of a prompt's beginning are in its memories."""
        return max(matched := self.pool.match(prompt), self.host.match(prompt, matched))

    def lacking(self, turn: Turn, tier: SharedTier) -> list[BlockHash]:
        """Return the blocks of a prompt that only the tier has, up to one that nobody has."""
        hashes = turn.request.hashes
        lacking = []
        for block in hashes[self.pool.match(turn.reusable) :]:
            if block in self.host.cached:
                continue
            if block not in tier.cached:
                break
            lacking.append(block)
        return lacking

    def fetched(self, turn: Turn, blocks: list[BlockHash], tier: SharedTier) -> bool:
        """Take blocks of a prompt from the tier into CPU memory; False where they do not fit."""
        tier.read(blocks)
        self._store_on_host(turn, blocks)
        return all(block in self.host.cached for block in blocks)

    def wrote(self, turn: Turn, blocks: list[BlockHash], tier: SharedTier) -> None:
        """Have blocks of a prompt in the tier."""
        evicted = tier.write(blocks)
        self.events.store(Tier.SHARED, turn, blocks)
        self.events.remove(Tier.SHARED, evicted)

    def take(self, waiting: Waiting, now_s: float) -> Running | None:
        """Give a request its GPU blocks if they fit; None if not.

        The blocks of its answer are taken at once too, a few beside the prompt's.
        """
        turn = waiting.turn
        request, reusable = turn.request, turn.reusable
        matched = self.pool.match(reusable)
        blocks = -(-(request.prompt_tokens + turn.output_tokens - 1) // request.block_size)
        if not self.pool.fits(reusable, matched, blocks):
            return None
        self.events.remove(Tier.GPU, self.pool.take(reusable, matched, blocks))
        restored = request.hashes[matched : self.host.match(request.hashes, matched)]
        fetched = sum(block in waiting.fetched for block in restored)
        hit = Hit(matched, len(restored) - fetched, fetched)
        uncached = max(1, request.prompt_tokens - hit.blocks * request.block_size)
        return Running(
            turn=turn,
            blocks=blocks,
            hit=hit,
            admitted_at_s=now_s,
            uncached_tokens=uncached,
            left_tokens=uncached,
        )

    def publish(self, running: Running) -> list[BlockHash]:
        """Let others reuse a prompt that is in GPU memory now, and copy it to CPU memory.

        Returns the blocks that are new in CPU memory.
        """
        turn, hit = running.turn, running.hit
        hashes = turn.request.hashes
        self.events.store(Tier.GPU, turn, self.pool.publish(hashes[hit.gpu_blocks :]))
        if not self.host.total:
            return []
        return self._store_on_host(turn, hashes[hit.blocks if hit.restored_blocks else 0 :])

    def _store_on_host(self, turn: Turn, offered: Sequence[BlockHash]) -> list[BlockHash]:
        added, evicted = self.host.store(offered)
        self.events.store(Tier.CPU, turn, added)
        self.events.remove(Tier.CPU, evicted)
        return added

    def release(self, running: Running) -> None:
        """Take the GPU blocks of a request that ends; its answer is cached there as its prompt."""
        turn = running.turn
        request = turn.request
        self.events.store(Tier.GPU, turn, self.pool.publish(turn.answer))
        full_blocks = (request.prompt_tokens + turn.output_tokens - 1) // request.block_size
        named = [*request.hashes, *turn.answer]
        unnamed = self.pool.publish_answer(full_blocks - len(named))
        self.pool.release([*named, *unnamed], running.blocks - full_blocks)
        self.host.use(
            request.hashes[running.hit.gpu_blocks if running.hit.restored_blocks else 0 :]
        )

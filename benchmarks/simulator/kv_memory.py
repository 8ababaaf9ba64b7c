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

    def lacking(self, turn: Turn, tier: SharedTier) -> tuple[int, int]:
        """Return the first and last block, exclusive, that a prompt could get from the tier alone.

        No more than fits into CPU memory.
        """
        prompt = turn.reusable[: self.host.total]
        start = self.reach(prompt)
        return start, tier.match(prompt, start)

    def fetched(self, turn: Turn, start: int, end: int, tier: SharedTier) -> None:
        """Take blocks of a prompt from the tier into CPU memory."""
        hashes = turn.request.hashes
        tier.read(hashes[start:end])
        self._store_on_host(turn, hashes[start:end])

    def wrote(self, turn: Turn, start: int, end: int, tier: SharedTier) -> None:
        """Have blocks of a prompt in the tier."""
        blocks = turn.request.hashes[start:end]
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
        # The KV of an answer's last token is never computed.
        blocks = -(-(request.prompt_tokens + turn.output_tokens - 1) // request.block_size)
        if not self.pool.fits(reusable, matched, blocks):
            return None
        self.events.remove(Tier.GPU, self.pool.take(reusable, matched, blocks))
        # A prompt's last token is always computed, but its block may be read from CPU memory.
        end = self.host.match(request.hashes, matched)
        own_end = (
            end if waiting.fetched_from is None else max(matched, min(waiting.fetched_from, end))
        )
        hit = Hit(matched, own_end - matched, end - own_end)
        uncached = max(1, request.prompt_tokens - hit.blocks * request.block_size)
        return Running(
            turn=turn,
            blocks=blocks,
            hit=hit,
            admitted_at_s=now_s,
            uncached_tokens=uncached,
            left_tokens=uncached,
        )

    def publish(self, running: Running) -> list[range]:
        """Let others reuse a prompt that is in GPU memory now, and copy it to CPU memory.

        Returns which of its blocks are new in CPU memory.
        """
        turn = running.turn
        hashes = turn.request.hashes
        self.events.store(Tier.GPU, turn, self.pool.publish(hashes[running.hit.gpu_blocks :]))
        if not self.host.total:
            return []
        offered = running.hit.blocks if running.hit.restored_blocks else 0
        return self._store_on_host(turn, hashes[offered:])

    def _store_on_host(self, turn: Turn, offered: Sequence[BlockHash]) -> list[range]:
        added, evicted = self.host.store(offered)
        self.events.store(Tier.CPU, turn, added)
        self.events.remove(Tier.CPU, evicted)
        return turn.runs(added)

    def release(self, running: Running) -> None:
        """Take the GPU blocks of a request that ends; its answer is cached there as its prompt."""
        turn = running.turn
        request = turn.request
        self.events.store(Tier.GPU, turn, self.pool.publish(turn.answer))
        full_blocks = (request.prompt_tokens + turn.output_tokens - 1) // request.block_size
        unnamed = self.pool.publish_answer(full_blocks - len(turn.blocks))
        self.pool.release([*turn.blocks, *unnamed], running.blocks - full_blocks)
        used = running.hit.gpu_blocks if running.hit.restored_blocks else 0
        self.host.use(request.hashes[used:])

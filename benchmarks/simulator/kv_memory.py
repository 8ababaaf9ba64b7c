"""A replica's memories for KV, and what a request finds, takes and leaves there."""

from collections.abc import Sequence

from benchmarks.simulator.block_pool import BlockPool
from benchmarks.simulator.cache_events import CacheEvents
from benchmarks.simulator.host_cache import HostCache
from benchmarks.simulator.progress import Hit
from benchmarks.simulator.running import Running
from benchmarks.simulator.turn import Turn
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

    def take(self, turn: Turn, now_s: float) -> Running | None:
        """Give a request its GPU blocks if they fit; None if not.

        The blocks of its answer are taken at once too, a few beside the prompt's.
        """
        request = turn.request
        # vLLM always computes a prompt's last token, though it may read that token's block from CPU
        # memory, and never an answer's last one.
        reusable = request.hashes[: (request.prompt_tokens - 1) // request.block_size]
        matched = self.pool.match(reusable)
        blocks = -(-(request.prompt_tokens + turn.output_tokens - 1) // request.block_size)
        if not self.pool.fits(reusable, matched, blocks):
            return None
        self.events.remove(Tier.GPU, self.pool.take(reusable, matched, blocks))
        hit = Hit(matched, self.host.match(request.hashes, matched) - matched)
        uncached = max(1, request.prompt_tokens - hit.blocks * request.block_size)
        return Running(
            turn=turn,
            blocks=blocks,
            hit=hit,
            admitted_at_s=now_s,
            uncached_tokens=uncached,
            left_tokens=uncached,
        )

    def publish(self, running: Running) -> None:
        """Let others reuse a prompt that is in GPU memory now, and copy it to CPU memory."""
        turn = running.turn
        hashes = turn.request.hashes
        self.events.store(Tier.GPU, turn, self.pool.publish(hashes[running.hit.gpu_blocks :]))
        if self.host.total:
            read = running.hit.blocks if running.hit.host_blocks else 0
            added, evicted = self.host.store(hashes[read:])
            self.events.store(Tier.CPU, turn, added)
            self.events.remove(Tier.CPU, evicted)

    def release(self, running: Running) -> None:
        """Take the GPU blocks of a request that ends; its answer is cached there as its prompt."""
        turn = running.turn
        request = turn.request
        self.events.store(Tier.GPU, turn, self.pool.publish(turn.answer))
        full_blocks = (request.prompt_tokens + turn.output_tokens - 1) // request.block_size
        named = [*request.hashes, *turn.answer]
        unnamed = self.pool.publish_answer(full_blocks - len(named))
        self.pool.release([*named, *unnamed], running.blocks - full_blocks)
        self.host.use(request.hashes[running.hit.gpu_blocks if running.hit.host_blocks else 0 :])

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
        # vLLM always computes the last token.
        reusable = request.hashes[: (request.prompt_tokens - 1) // request.block_size]
        matched = self.pool.match(reusable)
        blocks = -(-(request.prompt_tokens + turn.output_tokens) // request.block_size)
        if not self.pool.fits(reusable, matched, blocks):
            return None
        self.events.remove(Tier.GPU, self.pool.take(reusable, matched, blocks))
        hit = Hit(matched, self.host.match(reusable, matched) - matched)
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
            added, evicted = self.host.store(hashes)
            self.events.store(Tier.CPU, turn, added)
            self.events.remove(Tier.CPU, evicted)

    def release(self, running: Running) -> None:
        """Take the GPU blocks of a request that ends; its answer is cached like its prompt."""
        turn = running.turn
        request = turn.request
        full_blocks = (request.prompt_tokens + turn.output_tokens) // request.block_size
        answer = self.pool.publish_answer(full_blocks - len(request.hashes))
        self.pool.release([*request.hashes, *answer], running.blocks - full_blocks)

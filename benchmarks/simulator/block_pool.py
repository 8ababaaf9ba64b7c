"""A replica's KV blocks, evicted in vLLM's order (vllm/v1/core/block_pool.py).

vLLM keeps free blocks in a queue and takes new ones from its head. Blocks of a request that ends
are appended last block first, so that of one prompt the end is evicted before the beginning;
those that hold nothing reusable go to the head. A block that a request reuses leaves the queue.

Blocks are known by their chained hashes, and each is held once: a request that computed one that
is there by now takes that one instead. So a block outlives all that follow it, and how much of a
prompt is held can be found by bisection.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Collection, Sequence

from benchmarks.simulator.held_prefix import held_end
from policies.types import BlockHash


class BlockPool:
    """`total` blocks: cached ones, in use or free; private ones, in use; and blank ones, free."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._users: dict[BlockHash, int] = {}
        self._free: OrderedDict[BlockHash, None] = OrderedDict()
        self._blank = total
        self._answer_blocks = 0

    @property
    def free(self) -> int:
        """Blocks that no request uses, cached ones among them."""
        return self._blank + len(self._free)

    @property
    def cached(self) -> Collection[BlockHash]:
        """The blocks that can be reused."""
        return self._users.keys()

    def match(self, prompt: Sequence[BlockHash]) -> int:
        """Return how many blocks of a prompt's beginning are cached."""
        return held_end(prompt, self._users)

    def fits(self, prompt: Sequence[BlockHash], matched: int, blocks: int) -> bool:
        """Tell whether a prompt can use its cached blocks and as many more as make `blocks`."""
        # In-use blocks come first, as whoever uses one uses all before it.
        users = self._users
        in_use = bisect_left(prompt, True, hi=matched, key=lambda block: not users[block])
        return blocks - in_use <= self.free

    def take(self, prompt: Sequence[BlockHash], matched: int, blocks: int) -> list[BlockHash]:
        """Use a prompt's cached blocks and as many private ones as make `blocks`.

        Returns the blocks that were evicted for it, in order. It must fit.
        """
        users, free = self._users, self._free
        for block in prompt[:matched]:
            if not users[block]:
                del free[block]
            users[block] += 1
        needed = blocks - matched
        from_blank = min(self._blank, needed)
        self._blank -= from_blank
        evicted = [free.popitem(last=False)[0] for _ in range(needed - from_blank)]
        for block in evicted:
            del users[block]
        return evicted

    def publish(self, computed: Sequence[BlockHash]) -> list[BlockHash]:
        """Make private blocks reusable; return those that were not cached before.

        For the others the cached ones are used from now on, and the private ones are blank.
        """
        users, free = self._users, self._free
        new = []
        for block in computed:
            if block not in users:
                users[block] = 1
                new.append(block)
            else:
                if not users[block]:
                    del free[block]
                users[block] += 1
                self._blank += 1
        return new

    def publish_answer(self, blocks: int) -> list[BlockHash]:
        """Make an answer's private blocks cached ones, although no prompt is known to have them."""
        first = self._answer_blocks
        self._answer_blocks += blocks
        names = [BlockHash(-1 - number) for number in range(first, first + blocks)]
        self._users.update(dict.fromkeys(names, 1))
        return names

    def release(self, cached: Sequence[BlockHash], private: int) -> None:
        """Stop using a request's cached blocks, in a prompt's order, and its private ones."""
        users, free = self._users, self._free
        for block in reversed(cached):
            users[block] -= 1
            if not users[block]:
                free[block] = None
        self._blank += private

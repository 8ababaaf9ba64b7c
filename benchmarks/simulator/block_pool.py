"""A replica's KV blocks, evicted in vLLM's order (vllm/v1/core/block_pool.py).

vLLM keeps free blocks in a queue and takes new ones from its head. Blocks of a request that ends
are appended last block first, so that of one prompt the end is evicted before the beginning;
those that hold nothing reusable go to the head. A block that a request reuses leaves the queue.

Blocks are known by their chained hashes, and each is held once: a request that computed one that
is there by now takes that one instead. So a block outlives all that follow it, and how much of a
prompt is held can be found by bisection.
"""

from bisect import bisect_left
from collections.abc import Collection, Sequence
from itertools import islice

from benchmarks.simulator.held_prefix import held_end
from policies.types import BlockHash


class BlockPool:
    """`total` blocks: cached ones, in use or free; private ones, in use; and blank ones, free."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._users: dict[BlockHash, int] = {}
        self._free: dict[BlockHash, None] = {}
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
        return blocks - self._used_end(prompt, matched) <= self.free

    def take(self, prompt: Sequence[BlockHash], matched: int, blocks: int) -> list[BlockHash]:
        """Use a prompt's cached blocks and as many private ones as make `blocks`.

        Returns the blocks that were evicted for it, in order. It must fit.
        """
        self._use(prompt, matched)
        free = self._free
        needed = blocks - matched
        from_blank = min(self._blank, needed)
        self._blank -= from_blank
        evicted = list(islice(free, needed - from_blank))
        for block in evicted:
            del free[block], self._users[block]
        return evicted

    def publish(self, computed: Sequence[BlockHash]) -> list[BlockHash]:
        """Make private blocks reusable; return those that were not cached before.

        For the others the cached ones are used from now on, and the private ones are blank.
        """
        held = held_end(computed, self._users)
        self._use(computed, held)
        self._blank += held
        new = list(computed[held:])
        self._users.update(dict.fromkeys(new, 1))
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
        users = self._users
        own = self._used_end(cached, len(cached), by_more_than=1)
        for block in cached[:own]:
            users[block] -= 1
        unused = cached[own:]
        users.update(dict.fromkeys(unused, 0))
        self._free.update(dict.fromkeys(reversed(unused)))
        self._blank += private

    def _use(self, prompt: Sequence[BlockHash], end: int) -> None:
        """Use a prompt's cached blocks up to `end`."""
        users, free = self._users, self._free
        used = self._used_end(prompt, end)
        for block in prompt[:used]:
            users[block] += 1
        unused = prompt[used:end]
        for block in unused:
            del free[block]
        users.update(dict.fromkeys(unused, 1))

    def _used_end(self, prompt: Sequence[BlockHash], end: int, *, by_more_than: int = 0) -> int:
        """Return the first of a prompt's cached blocks that isn't in use by more than so many.

        Whoever uses a block uses all before it, so bisection finds that.
        """
        users = self._users
        return bisect_left(prompt, True, hi=end, key=lambda block: users[block] <= by_more_than)

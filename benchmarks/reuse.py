"""What could have been reused, what was, and why the rest was not.

A block is a full block of a prompt, or of a prompt and its answer, with all that precedes it. It is
there to be reused from the moment that a request which has it was sent; an answer's blocks from the
moment the answer ended. An answer's last token is never part of one: no engine computes its KV.

- hit: cached tokens, as the service reports them.
- available: the prompt's leading blocks that are there, on whichever replica and however long ago
  (unlimited memory, perfect placement), but not the block with the prompt's last token: engines
  always compute that one. At least the hit, for the service may know blocks from before the replay,
  or meet two requests in another order than they were sent in.
- first seen: the rest of the prompt. No memory and no placement could help.
- evicted: available, no hit, and the replica that served the request had computed it.
- elsewhere: available, no hit, and only other replicas had computed it.

So hit + evicted + elsewhere = available, and available + first seen = the prompt.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from benchmarks.exchange import Exchange
from policies.block_hash import hash_blocks, root_hash
from policies.types import BlockHash, ReplicaId


@dataclass(frozen=True, slots=True)
class Reuse:
    """Prompt tokens by what became of them."""

    hit_tokens: int = 0
    first_seen_tokens: int = 0
    evicted_tokens: int = 0
    elsewhere_tokens: int = 0

    @property
    def available_tokens(self) -> int:
        """Tokens that unlimited memory and perfect placement would have hit."""
        return self.hit_tokens + self.evicted_tokens + self.elsewhere_tokens

    @property
    def prompt_tokens(self) -> int:
        """All of them."""
        return self.available_tokens + self.first_seen_tokens

    def __add__(self, other: "Reuse") -> "Reuse":
        """Return the sums."""
        return Reuse(*map(sum, zip(astuple(self), astuple(other), strict=True)))


def account(exchanges: Iterable[Exchange], block_size: int) -> Reuse:
    """Return the sums over all exchanges; blocks have `block_size` tokens, as in the service."""
    seen = _SeenBlocks(block_size)
    total = Reuse()
    for _, is_end, exchange in _in_order(exchanges):
        if is_end:
            seen.add(exchange.replica, [*exchange.prompt, *exchange.answer][:-1])
        else:
            total += seen.judge(exchange)
            seen.add(exchange.replica, exchange.prompt)
    return total


def _in_order(exchanges: Iterable[Exchange]) -> list[tuple[float, bool, Exchange]]:
    """Return sends (False) and ends (True) by time; of one moment, the ends come first."""
    moments = [
        moment
        for one in exchanges
        for moment in ((one.sent_s, False, one), (one.ended_s, True, one))
    ]
    return sorted(moments, key=lambda moment: (moment[0], not moment[1]))


class _SeenBlocks:
    """Which replicas have ever computed a block."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._replicas: defaultdict[BlockHash, set[ReplicaId]] = defaultdict(set)

    def add(self, replica: ReplicaId, tokens: Sequence[int]) -> None:
        """Remember that the replica computed these tokens' full blocks."""
        for block in self._hashes(tokens):
            self._replicas[block].add(replica)

    def judge(self, exchange: Exchange) -> Reuse:
        """Return what became of a prompt, given what was added before."""
        size = self._block_size
        evicted = elsewhere = 0
        known = exchange.cached_tokens
        for number, block in enumerate(self._hashes(exchange.prompt[:-1])):
            if block not in self._replicas:
                break
            end = (number + 1) * size
            missed = max(0, end - max(number * size, exchange.cached_tokens))
            if exchange.replica in self._replicas[block]:
                evicted += missed
            else:
                elsewhere += missed
            known = max(known, end)
        return Reuse(exchange.cached_tokens, len(exchange.prompt) - known, evicted, elsewhere)

    def _hashes(self, tokens: Sequence[int]) -> list[BlockHash]:
        root = root_hash("", self._block_size)
        return hash_blocks(root, np.array(tokens, np.int64), self._block_size)

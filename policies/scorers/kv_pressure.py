"""Seconds that a request would cost others later by evicting their KV."""

from policies.candidate import Candidate
from policies.tunables import Tunables


def kv_pressure(candidate: Candidate, tunables: Tunables) -> float:
    """Return what it will cost to get back what the request evicts.

        beyond_blocks  = pinned + about to be claimed by resident sessions + added - total blocks
        evicted_blocks = beyond_blocks, at least 0, at most the added ones
        pressure_s     = evicted_blocks * block size
                         * (shared_ratio / fetch_tokens_per_s
                            + (1 - shared_ratio) * eviction_cost_ratio / prefill_tokens_per_s)

    Added are the prompt's blocks that the replica holds in no memory of its own; what it brings
    from its CPU memory stays there too. Not all that is evicted is wanted again. But what has to be
    prefilled again costs more than its own time: that delays all that run there, who release their
    memory later, and evicts once more. Fetching it from the shared tier delays nobody.
    """
    state, added = candidate.state, candidate.computed_blocks
    claimed = candidate.pinned_blocks + candidate.residents.blocks
    evicted_blocks = min(added, max(0.0, claimed + added - state.total_blocks))
    evicted_tokens = evicted_blocks * candidate.request.block_size
    fetch_s = candidate.shared_ratio / state.fetch_tokens_per_s
    prefill_s = (1 - candidate.shared_ratio) / state.prefill_tokens_per_s
    return evicted_tokens * (fetch_s + tunables.eviction_cost_ratio * prefill_s)

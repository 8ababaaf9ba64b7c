"""Seconds of recomputing that a request would cause later by evicting others' KV."""

from policies.candidate import Candidate
from policies.tunables import Tunables


def kv_pressure(candidate: Candidate, tunables: Tunables) -> float:
    """Return what it will cost to recompute what the request evicts.

        beyond_blocks  = pinned + about to be claimed by resident sessions + added - total blocks
        evicted_blocks = beyond_blocks, at least 0, at most the added ones
        pressure_s     = evicted_blocks * eviction_cost_ratio * block size / prefill_tokens_per_s

    Added are the prompt's blocks that the replica holds in no memory of its own; what it brings
    from its CPU memory stays there too. Not all that is evicted is wanted again; but what is costs
    more than its prefill: that delays all that run there, who release their memory later, and
    evicts once more.
    """
    state, added = candidate.state, candidate.computed_blocks
    claimed = candidate.pinned_blocks + candidate.residents.blocks
    evicted_blocks = min(added, max(0.0, claimed + added - state.total_blocks))
    evicted_tokens = evicted_blocks * candidate.request.block_size
    return evicted_tokens * tunables.eviction_cost_ratio / state.prefill_tokens_per_s

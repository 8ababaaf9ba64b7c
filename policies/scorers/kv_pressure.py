"""Seconds of recomputing that a request would cause later by evicting others' KV."""

from policies.candidate import Candidate
from policies.tunables import Tunables


def kv_pressure(candidate: Candidate, tunables: Tunables) -> float:
    """Return the time to recompute what the request evicts, as far as that is wanted again.

        beyond_blocks  = pinned + about to be claimed by resident sessions + added - total blocks
        evicted_blocks = beyond_blocks, at least 0, at most the added ones
        pressure_s     = evicted_blocks * rewanted_ratio * block size / prefill_tokens_per_s

    Added are the prompt's blocks that the replica does not hold; it evicts for no others.
    """
    state, added = candidate.state, candidate.added_blocks
    claimed = candidate.pinned_blocks + candidate.residents.blocks
    evicted_blocks = min(added, max(0.0, claimed + added - state.total_blocks))
    evicted_tokens = evicted_blocks * candidate.request.block_size
    return evicted_tokens * tunables.rewanted_ratio / state.prefill_tokens_per_s

"""Seconds to bring a prompt's KV into a replica's GPU memory."""

from policies.candidate import Candidate
from policies.tunables import Tunables


def kv_locality(candidate: Candidate, tunables: Tunables) -> float:
    """Return what the request spends on its KV, and what that costs the others there.

    interference_s = recompute_s * interference_ratio * decoding requests
    """
    interference = tunables.interference_ratio * candidate.load.decoding
    return own_s(candidate) + candidate.prefill_s * interference


def own_s(candidate: Candidate) -> float:
    """Return the time to restore, fetch and recompute KV.

    restore_s   = tokens in CPU memory / restore_tokens_per_s
    fetch_s     = tokens in the shared tier / fetch_tokens_per_s
    recompute_s = uncached tokens / prefill_tokens_per_s
    """
    state, match = candidate.state, candidate.match
    block_size = candidate.request.block_size
    restore_s = match.cpu_blocks * block_size / state.restore_tokens_per_s
    fetch_s = match.shared_blocks * block_size / state.fetch_tokens_per_s
    return restore_s + fetch_s + candidate.prefill_s

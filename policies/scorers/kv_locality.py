"""Seconds to bring a prompt's KV into a replica's GPU memory."""

from policies.candidate import Candidate
from policies.tunables import Tunables


def kv_locality(candidate: Candidate, tunables: Tunables) -> float:
    """Return the time to restore, fetch and recompute KV, and what that costs requests there.

    fetch_s        = tokens in the shared tier / fetch_tokens_per_s, into CPU memory
    restore_s      = tokens in CPU memory, those fetched among them / restore_tokens_per_s
    recompute_s    = uncached tokens / prefill_tokens_per_s
    interference_s = recompute_s * interference_ratio * decoding requests
    """
    state, match = candidate.state, candidate.match
    block_size = candidate.request.block_size
    fetch_s = match.shared_blocks * block_size / state.fetch_tokens_per_s
    restored_blocks = match.cpu_blocks + match.shared_blocks
    restore_s = restored_blocks * block_size / state.restore_tokens_per_s
    interference = tunables.interference_ratio * candidate.load.decoding
    return fetch_s + restore_s + candidate.prefill_s * (1 + interference)

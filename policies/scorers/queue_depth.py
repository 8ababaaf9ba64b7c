"""Seconds until a replica would begin with a request's own prefill."""

from policies.candidate import Candidate
from policies.tunables import Tunables


def queue_depth(candidate: Candidate, tunables: Tunables) -> float:
    """Return the wait for prefills booked before, slowed by decodes, and for GPU memory.

        prefill_wait_s = booked uncached tokens / prefill_tokens_per_s
                         * (1 + decode_share_ratio * decoding requests)
        memory_wait_s  = hold_s * missing blocks / pinned blocks

    Requests release their blocks evenly: all that are pinned now within `hold_s`.
    """
    state, load = candidate.state, candidate.load
    slowdown = 1 + tunables.decode_share_ratio * load.decoding
    prefill_wait_s = load.uncached_tokens / state.prefill_tokens_per_s * slowdown
    missing = candidate.missing_blocks
    memory_wait_s = state.hold_s * missing / candidate.pinned_blocks if missing else 0.0
    return prefill_wait_s + memory_wait_s

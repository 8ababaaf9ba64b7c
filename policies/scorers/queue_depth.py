"""Seconds until a replica would begin with a request's own prefill."""

from policies.candidate import Candidate
from policies.releases import wait_s
from policies.tunables import Tunables


def queue_depth(candidate: Candidate, tunables: Tunables) -> float:
    """Return the wait for prefills booked before, slowed by decodes, and for GPU memory.

        prefill_wait_s = booked uncached tokens / prefill_tokens_per_s
                         * (1 + decode_share_ratio * decoding requests)
        memory_wait_s  = time until running requests have released the missing blocks
                         + hold_s * missing blocks beyond those / pinned blocks

    Those beyond are pinned by requests that the router does not know of.
    """
    state, load = candidate.state, candidate.load
    slowdown = 1 + tunables.decode_share_ratio * load.decoding
    prefill_wait_s = load.uncached_tokens / state.prefill_tokens_per_s * slowdown
    missing = candidate.missing_blocks
    if not missing:
        return prefill_wait_s
    memory_wait_s, beyond = wait_s(candidate.releases, missing)
    return prefill_wait_s + memory_wait_s + state.hold_s * beyond / candidate.pinned_blocks

"""Seconds until a replica would begin with a request's own prefill."""

from policies.candidate import Candidate
from policies.releases import wait_s
from policies.tunables import Tunables


def queue_depth(candidate: Candidate, tunables: Tunables) -> float:
    """Return the wait for prefills and fetches booked before, and for GPU memory.

    Prefills are slowed by decodes. Fetches make only those wait that fetch something, too.

        prefill_wait_s = booked uncached tokens / prefill_tokens_per_s
                         * (1 + decode_share_ratio * decoding requests)
        fetch_wait_s   = booked tokens from the shared tier / fetch_tokens_per_s
        memory_wait_s  = time until running requests have released the missing blocks
                         + hold_s * missing blocks beyond those / pinned blocks

    Those beyond are pinned by requests that the router does not know of.
    """
    state, load = candidate.state, candidate.load
    slowdown = 1 + tunables.decode_share_ratio * load.decoding
    waited_s = load.uncached_tokens / state.prefill_tokens_per_s * slowdown
    if candidate.match.shared_blocks:
        waited_s += load.fetched_tokens / state.fetch_tokens_per_s
    missing = candidate.missing_blocks
    if not missing:
        return waited_s
    memory_wait_s, beyond = wait_s(candidate.releases, missing)
    return waited_s + memory_wait_s + state.hold_s * beyond / candidate.pinned_blocks

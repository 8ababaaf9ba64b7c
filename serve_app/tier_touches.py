"""Marking blocks of the shared tier as used, apart from what reads and writes them."""

from functools import partial

from serve_app.kv_uses import KvUses
from serve_app.tier_requests import TierRequest
from serve_app.tier_threads import TierThreads

MAX_REQUESTS = 100
"""How many requests' blocks wait to be marked; of more they are not."""


class TierTouches:
    """One thread, so that marking thousands of files delays no store and little of the disk."""

    def __init__(self, uses: KvUses) -> None:
        self._uses = uses
        self._threads = TierThreads(0, 1, "kv-shared-touch")

    def submit(self, request: TierRequest) -> None:
        """Have the blocks of a request's prompt marked as used.

        Sweeps of this process know at once, so that room for the request's next blocks is not made
        by removing its first ones.
        """
        self._threads.get_finished()
        if self._threads.num_waiting < MAX_REQUESTS:
            used_at_ns = request.all_used_at_ns()
            self._uses.note(used_at_ns)
            self._threads.enqueue_store(0, 1, [partial(self._uses.mark, used_at_ns)])

    def shutdown(self) -> None:
        """Wait for the thread."""
        self._threads.shutdown()

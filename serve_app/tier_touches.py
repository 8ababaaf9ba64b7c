"""Marking blocks of the shared tier as used, apart from what reads and writes them."""

from functools import partial

from vllm.v1.kv_offload.tiering.fs.thread_pool import DualQueueThreadPool

from serve_app.kv_directory import KvDirectory
from serve_app.tier_requests import TierRequest

MAX_REQUESTS = 100
"""How many requests' blocks wait to be marked; of more they are not."""


class TierTouches:
    """One thread, so that marking thousands of files delays no store and little of the disk."""

    def __init__(self, directory: KvDirectory) -> None:
        self._directory = directory
        self._threads = DualQueueThreadPool(0, 1, "kv-shared-touch")
        self._waiting = 0

    def submit(self, request: TierRequest) -> None:
        """Have the blocks that a request used marked so."""
        self._waiting -= len(self._threads.get_finished())
        if self._waiting < MAX_REQUESTS:
            self._waiting += 1
            task = partial(self._directory.touch, request.all_used_at_ns())
            self._threads.enqueue_store(0, 1, [task])

    def shutdown(self) -> None:
        """Wait for the thread."""
        self._threads.shutdown()

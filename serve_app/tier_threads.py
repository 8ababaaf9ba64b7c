"""Threads that read and write files of the shared tier."""

from vllm.v1.kv_offload.tiering.fs.thread_pool import DualQueueThreadPool


class TierThreads(DualQueueThreadPool):
    """vLLM's, which tell how far they are behind: in a file system that hangs, for ever."""

    @property
    def num_waiting(self) -> int:
        """How many tasks no thread has begun, those of jobs that were given up included."""
        return len(self._load_q) + len(self._store_q)

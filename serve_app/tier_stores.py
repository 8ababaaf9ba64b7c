"""Writing blocks of the CPU tier into the shared tier, never more than it keeps up with."""

from functools import partial

import numpy as np
from vllm.v1.kv_offload.tiering.base import JobId

from serve_app.kv_directory import KvDirectory
from serve_app.tier_job import TierJob
from serve_app.tier_requests import TierRequest
from serve_app.tier_threads import TierThreads

THREADS = 4

TIMEOUT_S = 30.0
"""Time after which a store lets go of its blocks in the CPU tier. If the threads came back from no
block meanwhile, none begins for as long."""


class TierStores:
    """Stores in flight, at most `max_blocks`; `chunks` and `block_bytes` as of `TierLoads`.

    Their threads are not those of loads, so that slow writes never keep a read waiting.
    """

    def __init__(
        self, directory: KvDirectory, chunks: memoryview, block_bytes: int, max_blocks: int
    ) -> None:
        self._directory = directory
        self._chunks = chunks
        self._block_bytes = block_bytes
        self._max_blocks = max_blocks
        self._threads = TierThreads(0, THREADS, "kv-shared-write")
        self._jobs: dict[JobId, TierJob] = {}
        self._rests_until_s = 0.0
        self._num_tried = 0
        self._last_tried = (0, 0.0)
        """How many blocks threads came back from when that last changed, and when that was."""

    def submit(self, store: TierJob, request: TierRequest) -> bool:
        """Have blocks written; False if the disk doesn't keep up."""
        storing = sum(len(other.keys) for other in self._jobs.values())
        # Tasks of jobs that were given up wait, too, where the threads hang.
        storing = max(storing, self._threads.num_waiting)
        if storing and storing + len(store.keys) > self._max_blocks:
            return False
        if store.since_s < self._rests_until_s:
            return False
        self._jobs[store.job.job_id] = store
        tasks = [
            partial(self._store, store, index, int(chunk), request.used_at_ns(store.keys[index]))
            for index, chunk in enumerate(store.job.chunk_ids)
        ]
        self._threads.enqueue_store(store.job.job_id, len(tasks), tasks)
        return True

    def take_ended(self, now_s: float) -> list[TierJob]:
        """Return the stores that are over or took too long; the threads touch them no more."""
        self._threads.get_finished()  # which knows jobs only as a whole
        if self._num_tried != self._last_tried[0]:
            self._last_tried = (self._num_tried, now_s)
        ended = [
            store
            for store in self._jobs.values()
            if store.is_over or now_s - store.since_s > TIMEOUT_S
        ]
        for store in ended:
            store.give_up()
            if not store.is_over and now_s - self._last_tried[1] > TIMEOUT_S:
                self._rests_until_s = now_s + TIMEOUT_S
            del self._jobs[store.job.job_id]
        return ended

    def give_up(self) -> None:
        """End all stores, as failed where they are not over."""
        for store in self._jobs.values():
            store.give_up()
            store.ended = len(store.keys)

    def shutdown(self) -> None:
        """Wait for the threads."""
        self._threads.shutdown()

    def _store(self, store: TierJob, index: int, chunk: int, used_at_ns: int) -> None:
        """Write one block, on a thread."""
        key = store.keys[index]
        try:
            payload = self._copied(store, chunk)
            if payload is None:
                return
            self._directory.store(key, payload, used_at_ns)
        except Exception as error:  # of any other the job would wait for ever
            store.fail(key, error)
        else:
            with store.lock:
                if not store.given_up:
                    store.done.append(key)
                    store.ended += 1
        self._num_tried += 1

    def _copied(self, store: TierJob, chunk: int) -> memoryview | None:
        """Return a copy of a block, so that nothing refers to the CPU tier while it's written."""
        start = chunk * self._block_bytes
        payload = np.empty(self._block_bytes, np.uint8)
        with store.lock:
            if store.given_up:
                return None
            block = self._chunks[start : start + self._block_bytes]
            np.copyto(payload, np.frombuffer(block, np.uint8))  # as in TierLoads
        return payload.data

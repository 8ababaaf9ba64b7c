"""Reading blocks of the shared tier into the CPU tier, as long as that is worth the wait."""

from functools import partial

import numpy as np
from vllm.v1.kv_offload.tiering.base import JobId

from policies.fetch_patience import gives_up
from serve_app.kv_directory import KvDirectory
from serve_app.tier_job import TierJob
from serve_app.tier_requests import TierRequest
from serve_app.tier_threads import TierThreads

THREADS = 8


class TierLoads:
    """Loads in flight. `chunks` is the CPU tier's memory, `block_bytes` of it a block's."""

    def __init__(self, directory: KvDirectory, chunks: memoryview, block_bytes: int) -> None:
        self._directory = directory
        self._chunks = chunks
        self._block_bytes = block_bytes
        self._threads = TierThreads(THREADS, 0, "kv-shared-read")
        self._jobs: dict[JobId, TierJob] = {}
        self._ended_s = 0.0
        self._gave_up = False

    def submit(self, load: TierJob, request: TierRequest) -> None:
        """Have blocks read."""
        self._jobs[load.job.job_id] = load
        tasks = [
            partial(self._load, load, index, int(chunk), request.used_at_ns(load.keys[index]))
            for index, chunk in enumerate(load.job.chunk_ids)
        ]
        self._threads.enqueue_load(load.job.job_id, len(tasks), tasks)

    @property
    def is_stuck(self) -> bool:
        """Whether threads have not come back since a load was given up."""
        self._gave_up = self._gave_up and self._threads.num_waiting > 0
        return self._gave_up

    def take_ended(self, now_s: float, chunk_s: float | None) -> list[TierJob]:
        """Return the loads that are over, and those that nobody waits for any longer.

        `chunk_s` is how long computing one block takes. The threads touch none of them any more.
        """
        self._threads.get_finished()  # which knows jobs only as a whole
        ended = [load for load in self._jobs.values() if self._is_ended(load, now_s, chunk_s)]
        for load in ended:
            load.give_up()
            self._gave_up = self._gave_up or not load.is_over
            load.begins_s, self._ended_s = self._ended_s, now_s
            del self._jobs[load.job.job_id]
        return ended

    def give_up(self) -> None:
        """End all loads, as failed where they are not over."""
        for load in self._jobs.values():
            load.give_up()
            load.ended = len(load.keys)

    def shutdown(self) -> None:
        """Wait for the threads."""
        self._threads.shutdown()

    def _is_ended(self, load: TierJob, now_s: float, chunk_s: float | None) -> bool:
        waited_s = now_s - load.since_s
        return load.is_over or gives_up(waited_s, len(load.done), len(load.keys), chunk_s)

    def _load(self, load: TierJob, index: int, chunk: int, used_at_ns: int) -> None:
        """Read one block, on a thread; the CPU tier sees nothing that wasn't checked."""
        if load.given_up:
            return
        key = load.keys[index]
        try:
            payload = self._directory.load(key, used_at_ns)
        except Exception as error:  # of any other the job would wait for ever
            load.fail(key, error)
            return
        with load.lock:
            if load.given_up:
                return
            start = chunk * self._block_bytes
            block = self._chunks[start : start + self._block_bytes]
            # Which lets other threads run meanwhile, the scheduler's above all.
            np.copyto(np.frombuffer(block, np.uint8), np.frombuffer(payload, np.uint8))
            load.done.append(key)
            load.ended += 1

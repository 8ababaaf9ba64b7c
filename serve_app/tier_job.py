"""What the shared tier knows of one of vLLM's jobs."""

import threading
from dataclasses import dataclass, field

from vllm.v1.kv_offload.base import OffloadKey
from vllm.v1.kv_offload.tiering.base import JobResult, TransferJob

from serve_app.kv_file import DamagedFileError


@dataclass(slots=True)
class TierJob:
    """A job whose blocks are moved one by one, on threads; it can be given up at any time."""

    job: TransferJob
    keys: list[OffloadKey]
    since_s: float
    """From when on it's waited for."""
    begins_s: float = 0.0
    """When the jobs before it were over; it's as if it began then, if it came earlier."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    given_up: bool = False
    """The CPU tier's memory must no longer be touched, nor this; it changes under the lock."""
    ended: int = 0
    done: list[OffloadKey] = field(default_factory=list)
    damaged: list[OffloadKey] = field(default_factory=list)
    error: Exception | None = None

    def fail(self, key: OffloadKey, error: Exception) -> None:
        """Note that a block was not moved."""
        with self.lock:
            if self.given_up:
                return
            if isinstance(error, DamagedFileError):
                self.damaged.append(key)
            else:
                self.error = error
            self.ended += 1

    def give_up(self) -> None:
        """Touch the CPU tier no more, once this returned."""
        with self.lock:
            self.given_up = True

    @property
    def is_over(self) -> bool:
        """All blocks have succeeded or failed."""
        return self.ended == len(self.keys)

    @property
    def failed(self) -> list[OffloadKey]:
        """The blocks that were not moved."""
        done = set(self.done)
        return [key for key in self.keys if key not in done]

    def result(self, now_s: float, block_bytes: int) -> JobResult:
        """Return what vLLM is told of the job when it's over or given up.

        Its time is without that of the jobs before it.
        """
        return JobResult(
            self.job.job_id,
            success=len(self.done) == len(self.keys),
            successful_keys=tuple(self.done),
            transfer_time=now_s - max(self.job.submit_time, self.begins_s),
            transfer_bytes=len(self.done) * block_bytes,
        )

"""What the shared tier knows of vLLM's jobs and requests."""

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from vllm.v1.kv_offload.base import OffloadKey, ReqContext
from vllm.v1.kv_offload.tiering.base import JobResult, TransferJob

from serve_app.kv_file import DamagedFileError


@dataclass(slots=True)
class TierJob:
    """A job whose blocks are moved one by one, on threads; it can be given up at any time."""

    job: TransferJob
    keys: list[OffloadKey]
    since_s: float
    """From when on it's waited for."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    given_up: bool = False
    """The CPU tier's memory must no longer be touched, nor this; it changes under the lock."""
    ended: int = 0
    done: list[OffloadKey] = field(default_factory=list)
    damaged: list[OffloadKey] = field(default_factory=list)
    error: OSError | None = None

    def fail(self, key: OffloadKey, error: OSError | DamagedFileError) -> None:
        """Note that a block was not moved."""
        with self.lock:
            if self.given_up:
                return
            if isinstance(error, OSError):
                self.error = error
            else:
                self.damaged.append(key)
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
        """Return what vLLM is told of the job when it's over or given up."""
        return JobResult(
            self.job.job_id,
            success=len(self.done) == len(self.keys),
            successful_keys=tuple(self.done),
            transfer_time=now_s - self.job.submit_time,
            transfer_bytes=len(self.done) * block_bytes,
        )


@dataclass(slots=True)
class TierRequest:
    """When a request used its blocks, how long it waits for them, and how fast it's computed."""

    context: ReqContext
    began_ns: int = field(default_factory=time.time_ns)
    asked_s: float | None = None
    """Since when it waits for lookups, and then for what they found."""
    computed_from: float = inf
    """The position of the first block that was in no memory of its replica."""
    keys: set[OffloadKey] = field(default_factory=set)
    """Those looked up without an answer at once."""
    ends_at: OffloadKey | None = None
    """The first block that was not there."""
    scheduled_s: float | None = None
    computed_s: float = 0.0
    computed: int = 0

    def used_at_ns(self, key: OffloadKey) -> int:
        """Return when a block was used last: the later in the prompt, the earlier.

        A block is of no use without those before it, so they must not go first.
        """
        return self.began_ns - 1000 * (self.context.get_offload_key_position(key) or 0)

    def all_used_at_ns(self) -> dict[bytes, int]:
        """Return the same for all blocks of the request, in whatever tier they are."""
        keys = self.context._offload_key_positions  # vLLM gives them only one by one
        return {bytes(key): self.used_at_ns(key) for key in keys}

    def note_asked(self, key: OffloadKey) -> None:
        """Note that a block is asked for here, as it's in no memory of the replica."""
        if position := self.context.get_offload_key_position(key):
            self.computed_from = min(self.computed_from, position)

    def note_stored(self, keys: Iterable[OffloadKey], now_s: float) -> None:
        """Note that blocks are stored, as they are once they're computed.

        Those before the first that was asked for were in GPU memory all the time.
        """
        positions = (self.context.get_offload_key_position(key) or 0 for key in keys)
        computed = sum(position >= self.computed_from for position in positions)
        if computed and self.scheduled_s is not None:
            self.computed_s = now_s - self.scheduled_s
            self.computed += computed

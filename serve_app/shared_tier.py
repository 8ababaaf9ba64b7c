"""The shared tier of the KV cache: a directory below the CPU tier that all replicas read and write.

`SharedFsTier` is one of vLLM's secondary tiers: its `TieringOffloadingManager` stores every block
here that comes into the CPU tier, and asks here for blocks that the CPU tier lacks. Whatever goes
wrong here is a miss; nobody waits for it much longer than the prefill would take.

Source of the contract: vLLM 0.32, v1/kv_offload/tiering/{base,manager,async_lookup}.py,
tiering/fs (the same without checksums, bounds and deadlines).
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import (
    OffloadingConnectorStats,
)
from vllm.v1.kv_offload.base import (
    LookupResult,
    Medium,
    OffloadingCounterMetadata,
    OffloadingEvent,
    OffloadingMetricMetadata,
    OffloadingSpec,
    OffloadKey,
    ReqContext,
    RequestOffloadingContext,
    ScheduleEndContext,
)
from vllm.v1.kv_offload.tiering.async_lookup import AsyncLookupManager
from vllm.v1.kv_offload.tiering.backpressure import BackpressureDetector
from vllm.v1.kv_offload.tiering.base import JobId, JobResult, SecondaryTierManager, TransferJob
from vllm.v1.kv_offload.tiering.fs.thread_pool import DualQueueThreadPool

from policies.fetch_patience import PrefillPace, gives_up
from serve_app.kv_directory import KvDirectory
from serve_app.kv_file import DamagedFileError
from serve_app.kv_namespace import namespace

logger = logging.getLogger(f"vllm.{__name__}")  # an engine's process shows only what is vLLM's

# vLLM makes room for the next engine of a process only in names with its own.
DAMAGED = "vllm:kv_shared_damaged_files"
ABANDONED = "vllm:kv_shared_abandoned_blocks"
NOT_STORED = "vllm:kv_shared_blocks_not_stored"
EVICTED = "vllm:kv_shared_evicted_files"

COUNTERS = {
    DAMAGED: "Files of the shared KV tier that were not what had been written; they were removed.",
    ABANDONED: "Blocks found in the shared KV tier, but computed as they came too slowly.",
    NOT_STORED: "Blocks that could not be written to the shared KV tier.",
    EVICTED: "Files that this replica removed from the shared KV tier to make room.",
}

READ_THREADS = 8
WRITE_THREADS = 4

STORE_TIMEOUT_S = 30.0
"""Time after which a store lets go of its blocks in the CPU tier."""

STORING_SHARE = 0.25
"""The share of the CPU tier that waits to be stored at most; what comes then is not stored."""

RESTS_S = (0.2, 60.0)
"""How long nothing is looked up after the tier was too slow, at first and at most."""

TOUCHING = -1
"""What is no job of the manager's."""

SHUTDOWN_S = 5.0
COMPLAIN_S = 60.0


@dataclass(slots=True)
class _Job:
    """One of the manager's jobs, shared with the threads that work on it."""

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


@dataclass(slots=True)
class _Request:
    """When a request used its blocks, how long it waits for them, and how fast it's computed."""

    context: ReqContext
    began_ns: int = field(default_factory=time.time_ns)
    asked_s: float | None = None
    """Since when it waits for lookups, and then for what they found."""
    keys: set[OffloadKey] = field(default_factory=set)
    scheduled_s: float | None = None
    computed_s: float = 0.0
    computed: int = 0

    def used_at_ns(self, key: OffloadKey) -> int:
        """Return when a block was used last: the later in the prompt, the earlier.

        A block is of no use without those before it, so they must not go first.
        """
        return self.began_ns - 1000 * (self.context.get_offload_key_position(key) or 0)


class _Lookups(AsyncLookupManager):
    def __init__(self, directory: KvDirectory, tier_type: str) -> None:
        super().__init__(tier_type)
        self._directory = directory

    def batch_lookup(self, keys: list[OffloadKey], req_context: ReqContext) -> Iterable[bool]:  # noqa: ARG002
        return self._directory.has(keys)


class SharedFsTier(SecondaryTierManager):
    """Blocks in files, checked when read, with a bound on their bytes and on the time they cost.

    All methods are the scheduler's, which never waits here; files are read and written by threads.
    """

    medium = Medium.STORAGE
    directory_type: ClassVar[type[KvDirectory]] = KvDirectory

    def __init__(
        self,
        offloading_spec: OffloadingSpec,
        primary_kv_view: memoryview,
        tier_type: str,
        path: str,
        max_bytes: int,
        model_identity: str,
        backpressure_detector: BackpressureDetector | None = None,
    ) -> None:
        """Keep at most `max_bytes` under `path`; the other arguments are vLLM's.

        A directory that cannot be used is logged, and then each lookup is a miss.
        """
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self._chunks = primary_kv_view.cast("B")
        self._max_storing = int(len(primary_kv_view) * STORING_SHARE)
        space = namespace(model_identity, offloading_spec.config, self.block_size_bytes)
        self._directory = self._open(Path(path), space, max_bytes)
        self._lookups = _Lookups(self._directory, tier_type)
        # Two pools, so that slow writes never keep a read waiting.
        self._readers = DualQueueThreadPool(READ_THREADS, 0, "kv-shared-read")
        self._writers = DualQueueThreadPool(0, WRITE_THREADS, "kv-shared-write")
        self._requests: dict[str, _Request] = {}
        self._loads: dict[JobId, _Job] = {}
        self._stores: dict[JobId, _Job] = {}
        self._refused: list[JobResult] = []
        self._pace = PrefillPace()
        self._rest_s = RESTS_S[0]
        self._rests_until_s = 0.0
        self._with_events = offloading_spec.kv_events_config.enable_kv_cache_events
        self._events: list[OffloadingEvent] = []
        self._counts: Counter[str] = Counter()
        self._complained_s: dict[str, float] = {}

    def _open(self, path: Path, space: str, max_bytes: int) -> KvDirectory:
        directory = self.directory_type(path, space, self.block_size_bytes, max_bytes)
        try:
            directory.open()
        except OSError as error:
            logger.error("the shared KV tier is off, its directory can't be made: %s", error)
        else:
            logger.info("shared KV tier: %s, %.1f GiB for all", directory.path, max_bytes / 2**30)
        return directory

    # --- reading ---

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        """Tell whether a block is there; RETRY as long as a request waits to know."""
        now_s = time.monotonic()
        if now_s < self._rests_until_s:
            return LookupResult.MISS
        request = self._requests[req_context.req_id]
        found = self._lookups.lookup(key, req_context)
        if found is None:
            request.keys.add(key)
            if request.asked_s is None:
                request.asked_s = now_s
            waited_s = now_s - request.asked_s
            if gives_up(waited_s, 0, len(request.keys), self._pace.chunk_s):
                self._rest(f"no answer for {waited_s:.2f} s")
                return LookupResult.MISS
            return LookupResult.RETRY
        return LookupResult.HIT if found else LookupResult.MISS

    def submit_load(self, job_metadata: TransferJob) -> None:
        """Have blocks read into the CPU tier."""
        request = self._requests[job_metadata.req_context.req_id]
        load = _Job(job_metadata, list(job_metadata.keys), request.asked_s or time.monotonic())
        request.asked_s = None
        self._loads[job_metadata.job_id] = load
        tasks = [
            partial(self._load, load, key, int(chunk), request.used_at_ns(key))
            for key, chunk in zip(load.keys, job_metadata.chunk_ids, strict=True)
        ]
        self._readers.enqueue_load(job_metadata.job_id, len(tasks), tasks)

    def _load(self, load: _Job, key: OffloadKey, chunk: int, used_at_ns: int) -> None:
        """Read one block, on a thread; its memory sees nothing that wasn't checked."""
        if load.given_up:
            return
        try:
            payload = self._directory.load(key, used_at_ns)
        except (OSError, DamagedFileError) as error:
            load.fail(key, error)
            return
        with load.lock:
            if load.given_up:
                return
            self._chunks[self._bytes_of(chunk)] = payload
            load.done.append(key)
            load.ended += 1

    # --- writing ---

    def submit_store(self, job_metadata: TransferJob) -> None:
        """Have blocks of the CPU tier written; too many at a time are not."""
        store = _Job(job_metadata, list(job_metadata.keys), time.monotonic())
        self._note_computed(store)
        storing = sum(len(other.keys) for other in self._stores.values())
        if storing and storing + len(store.keys) > self._max_storing:
            self._refused.append(JobResult(job_metadata.job_id, success=False))
            self._counts[NOT_STORED] += len(store.keys)
            return
        self._stores[job_metadata.job_id] = store
        request = self._requests[job_metadata.req_context.req_id]
        tasks = [
            partial(self._store, store, key, int(chunk), request.used_at_ns(key))
            for key, chunk in zip(store.keys, job_metadata.chunk_ids, strict=True)
        ]
        self._writers.enqueue_store(job_metadata.job_id, len(tasks), tasks)

    def _store(self, store: _Job, key: OffloadKey, chunk: int, used_at_ns: int) -> None:
        """Write one block, on a thread."""
        with store.lock:
            if store.given_up:
                return
            payload = bytes(self._chunks[self._bytes_of(chunk)])
        try:
            self._directory.store(key, payload, used_at_ns)
        except OSError as error:
            store.fail(key, error)
            return
        with store.lock:
            if not store.given_up:
                store.done.append(key)
                store.ended += 1

    def _bytes_of(self, chunk: int) -> slice:
        return slice(chunk * self.block_size_bytes, (chunk + 1) * self.block_size_bytes)

    # --- what came of it ---

    def get_finished_jobs(self) -> Iterable[JobResult]:
        """Return the jobs that are over, and those that nobody waits for any longer."""
        now_s = time.monotonic()
        results, self._refused = self._refused, []
        for load in list(self._loads.values()):
            if load.is_over or self._is_too_slow(load, now_s):
                results.append(self._end_load(load, now_s))
        for store in list(self._stores.values()):
            if store.is_over or now_s - store.since_s > STORE_TIMEOUT_S:
                results.append(self._end_store(store, now_s))
        for pool in (self._readers, self._writers):
            pool.get_finished()  # jobs are followed here, block by block
        while not self._directory.swept.empty():
            swept = self._directory.swept.get()
            self._counts[EVICTED] += swept.num_files
            self._tell([OffloadKey(key) for key in swept.keys], removed=True)
        return results

    def _is_too_slow(self, load: _Job, now_s: float) -> bool:
        waited_s = now_s - load.since_s
        return gives_up(waited_s, len(load.done), len(load.keys), self._pace.chunk_s)

    def _end_load(self, load: _Job, now_s: float) -> JobResult:
        load.give_up()
        loaded = set(load.done)
        failed = [key for key in load.keys if key not in loaded]
        if failed:
            self._lookups.mark_miss(failed)
            self._tell(load.damaged, removed=True)
            self._counts[DAMAGED] += len(load.damaged)
            if load.error:
                self._complain("blocks not read: %s", load.error)
        if not load.is_over:
            self._counts[ABANDONED] += len(load.keys) - load.ended
            self._rest(f"{len(load.done)} of {len(load.keys)} blocks so far")
        elif not failed:
            self._rest_s = RESTS_S[0]
        return self._result(self._loads, load, now_s)

    def _end_store(self, store: _Job, now_s: float) -> JobResult:
        store.give_up()
        self._tell(store.done, removed=False)
        if failed := len(store.keys) - len(store.done):
            self._counts[NOT_STORED] += failed
            self._complain("%d blocks not stored: %s", failed, store.error or "too slow")
        return self._result(self._stores, store, now_s)

    def _result(self, jobs: dict[JobId, _Job], job: _Job, now_s: float) -> JobResult:
        job_id = job.job.job_id
        del jobs[job_id]
        return JobResult(
            job_id,
            success=len(job.done) == len(job.keys),
            successful_keys=tuple(job.done),
            transfer_time=now_s - job.job.submit_time,
            transfer_bytes=len(job.done) * self.block_size_bytes,
        )

    def _rest(self, reason: str) -> None:
        """Look nothing up for a while, longer each time until the tier is fast again."""
        self._complain(
            "the shared KV tier is slow (%s): not asked for %.1f s", reason, self._rest_s
        )
        self._rests_until_s = time.monotonic() + self._rest_s
        self._rest_s = min(2 * self._rest_s, RESTS_S[1])

    # --- how fast prompts are computed ---

    def _note_computed(self, store: _Job) -> None:
        """Note that blocks were computed, as that is when they're stored."""
        request = self._requests.get(store.job.req_context.req_id)
        if request and request.scheduled_s is not None:
            request.computed_s = time.monotonic() - request.scheduled_s
            request.computed += len(store.keys)

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        """Ask for what is computed, and nothing else, to be stored."""
        self._requests[req_context.req_id] = _Request(req_context)
        return RequestOffloadingContext()

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        """Hand over the lookups of this step; its new requests wait no longer."""
        self._lookups.flush()
        now_s = time.monotonic()
        for req_id in context.new_req_ids:
            if request := self._requests.get(req_id):
                request.scheduled_s = now_s
        for req_id in context.preempted_req_ids:
            if request := self._requests.get(req_id):
                request.scheduled_s = None

    def on_request_finished(self, req_context: ReqContext) -> None:
        """Learn from a request how long computing takes, and that its blocks are in use."""
        self._lookups.cleanup(req_context.req_id)
        request = self._requests.pop(req_context.req_id)
        self._pace.measured(request.computed, request.computed_s)
        # Those in the tiers above are not asked for here.
        keys = req_context._offload_key_positions
        used_at_ns = {bytes(key): request.used_at_ns(key) for key in keys}
        self._writers.enqueue_store(TOUCHING, 1, [partial(self._directory.touch, used_at_ns)])

    # --- events, metrics, the end ---

    def _tell(self, keys: list[OffloadKey], *, removed: bool) -> None:
        if keys and self._with_events:
            self._events.append(OffloadingEvent(list(keys), Medium.STORAGE, removed))

    def take_events(self) -> Iterable[OffloadingEvent]:
        """Return which blocks came and went, since the last call."""
        events, self._events = self._events, []
        return events

    @classmethod
    def build_metric_definitions(
        cls,
        extra_config: dict[str, Any],  # noqa: ARG003
    ) -> dict[str, OffloadingMetricMetadata]:
        """Return what is counted here, besides what vLLM counts of every tier."""
        return {name: OffloadingCounterMetadata(text) for name, text in COUNTERS.items()}

    def get_stats(self) -> OffloadingConnectorStats | None:
        """Return what was counted since the last call."""
        if not self._counts:
            return None
        stats = OffloadingConnectorStats()
        for name, count in self._counts.items():
            stats.increase_counter(name, count)
        self._counts.clear()
        return stats

    def _complain(self, message: str, *values: object) -> None:
        """Log a warning, at most one of a kind each minute."""
        now_s = time.monotonic()
        if now_s - self._complained_s.get(message, -COMPLAIN_S) >= COMPLAIN_S:
            self._complained_s[message] = now_s
            logger.warning(message, *values)

    def drain_jobs(self) -> None:
        """Give all jobs up, so that the CPU tier's memory is left alone from here on."""
        for job in (*self._loads.values(), *self._stores.values()):
            job.give_up()
            job.ended = len(job.keys)

    def shutdown(self) -> None:
        """Let go of the CPU tier; threads that hang in a dead file system are left to it."""
        self.drain_jobs()
        for end in (self._lookups.shutdown, self._readers.shutdown, self._writers.shutdown):
            ending = threading.Thread(target=end, daemon=True)
            ending.start()
            ending.join(SHUTDOWN_S)
        self._chunks.release()

"""The shared tier of the KV cache: a directory below the CPU tier that all replicas read and write.

`SharedFsTier` is one of vLLM's secondary tiers: its `TieringOffloadingManager` stores every block
here that comes into the CPU tier, and asks here for blocks that the CPU tier lacks. Whatever goes
wrong here is a miss; nobody waits for it much longer than the prefill would take.

Source of the contract: vLLM 0.32, v1/kv_offload/tiering/{base,manager,async_lookup}.py,
tiering/fs (the same without checksums, bounds and deadlines).
"""

import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import (
    OffloadingConnectorStats,
)
from vllm.v1.kv_offload.base import (
    LookupResult,
    Medium,
    OffloadingEvent,
    OffloadingMetricMetadata,
    OffloadingSpec,
    OffloadKey,
    ReqContext,
    RequestOffloadingContext,
    ScheduleEndContext,
)
from vllm.v1.kv_offload.tiering.backpressure import BackpressureDetector
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

from serve_app.kv_directory import KvDirectory
from serve_app.kv_namespace import namespace
from serve_app.tier_directory import open_directory
from serve_app.tier_job import TierJob
from serve_app.tier_loads import TierLoads
from serve_app.tier_lookups import TierLookups
from serve_app.tier_patience import TierPatience
from serve_app.tier_report import TierReport, metric_definitions
from serve_app.tier_requests import TierRequest, TierRequests
from serve_app.tier_stores import TierStores
from serve_app.tier_touches import TierTouches

STORING_SHARE = 0.25
"""The share of the CPU tier that waits to be stored at most; what comes then is not stored."""

SHUTDOWN_S = 5.0


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
        space = namespace(model_identity, offloading_spec.config, self.block_size_bytes)
        root = Path(path)
        self._directory = self.directory_type(root, space, self.block_size_bytes, max_bytes)
        open_directory(self._directory, root, max_bytes)
        self._lookups = TierLookups(self._directory, tier_type)
        memory = (self._directory, self._chunks, self.block_size_bytes)
        self._loads = TierLoads(*memory)
        self._stores = TierStores(*memory, int(len(primary_kv_view) * STORING_SHARE))
        self._touches = TierTouches(self._directory.uses)
        self._requests = TierRequests()
        self._refused: list[TierJob] = []
        with_events = offloading_spec.kv_events_config.enable_kv_cache_events
        self._report = TierReport(with_events=with_events)
        self._patience = TierPatience(self._lookups, self._loads, self._report)

    # --- requests ---

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        """Ask for what is computed, and nothing else, to be stored."""
        self._requests.begin(req_context)
        return RequestOffloadingContext()

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        """Tell whether a block is there; RETRY as long as a request waits to know."""
        now_s = time.monotonic()
        request = self._requests.of(req_context)
        request.note_asked(key)
        if not self._patience.is_asked(now_s):
            return LookupResult.MISS
        found = self._lookups.lookup(key, req_context)
        if found:
            return LookupResult.HIT
        if found is False:
            self._note_end(request, key)
            return LookupResult.MISS
        request.keys.add(key)
        return LookupResult.RETRY if self._patience.waits(request, now_s) else LookupResult.MISS

    def _note_end(self, request: TierRequest, key: OffloadKey) -> None:
        """Say that a block is not there, once, for those who believe that it is."""
        if request.ends_at is None:
            request.ends_at = key
            self._report.tell([key], removed=True)

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        """Hand over the lookups of this step; its new requests use blocks, and look for no more."""
        self._lookups.flush()
        for request in self._requests.end_step(context, time.monotonic()):
            # What was missing may be there by the time that another one asks.
            self._lookups.cleanup(request.context.req_id)
            # Most are in the tiers above, and were not asked for here.
            self._touches.submit(request)

    def on_request_finished(self, req_context: ReqContext) -> None:
        """Learn from a request how long computing takes."""
        self._lookups.cleanup(req_context.req_id)
        if request := self._requests.end(req_context):
            self._patience.note_computed(request)

    # --- jobs ---

    def submit_load(self, job_metadata: TransferJob) -> None:
        """Have blocks read into the CPU tier."""
        request = self._requests.of(job_metadata.req_context)
        since_s = request.asked_s or time.monotonic()
        request.asked_s = None
        self._loads.submit(TierJob(job_metadata, list(job_metadata.keys), since_s), request)

    def submit_store(self, job_metadata: TransferJob) -> None:
        """Have blocks of the CPU tier written, which were just computed."""
        now_s = time.monotonic()
        request = self._requests.of(job_metadata.req_context)
        store = TierJob(job_metadata, list(job_metadata.keys), now_s)
        request.note_stored(store.keys, now_s)
        if not self._stores.submit(store, request):
            self._refused.append(store)

    def get_finished_jobs(self) -> Iterable[JobResult]:
        """Return the jobs that are over, and those that nobody waits for any longer."""
        now_s = time.monotonic()
        loads = self._loads.take_ended(now_s, self._patience.chunk_s)
        refused, self._refused = self._refused, []
        stores = [*refused, *self._stores.take_ended(now_s)]
        for load in loads:
            self._report.note_load(load)
            self._lookups.mark_miss(load.failed)
            self._patience.note_load(load, now_s)
        for store in stores:
            self._report.note_store(store)
        while not self._directory.swept.empty():
            self._report.note_swept(self._directory.swept.get())
        return [job.result(now_s, self.block_size_bytes) for job in (*loads, *stores)]

    # --- events and metrics ---

    def take_events(self) -> Iterable[OffloadingEvent]:
        """Return which blocks came and went, since the last call."""
        return self._report.take_events()

    @classmethod
    def build_metric_definitions(
        cls,
        extra_config: dict[str, Any],  # noqa: ARG003
    ) -> dict[str, OffloadingMetricMetadata]:
        """Return what is counted here, besides what vLLM counts of every tier."""
        return metric_definitions()

    def get_stats(self) -> OffloadingConnectorStats | None:
        """Return what was counted since the last call."""
        return self._report.take_stats()

    # --- the end ---

    def drain_jobs(self) -> None:
        """Give all jobs up, so that the CPU tier's memory is left alone from here on."""
        self._loads.give_up()
        self._stores.give_up()

    def shutdown(self) -> None:
        """Let go of the CPU tier; threads that hang in a dead file system are left to it."""
        self.drain_jobs()
        parts = (self._lookups, self._loads, self._stores, self._touches)
        endings = [threading.Thread(target=part.shutdown, daemon=True) for part in parts]
        until_s = time.monotonic() + SHUTDOWN_S
        for ending in endings:
            ending.start()
        for ending in endings:
            ending.join(max(0.0, until_s - time.monotonic()))
        self._chunks.release()

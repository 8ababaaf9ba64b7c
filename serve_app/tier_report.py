"""What the shared tier tells of itself: KV events, counters and warnings."""

import logging
import time
from collections import Counter

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import (
    OffloadingConnectorStats,
)
from vllm.v1.kv_offload.base import (
    Medium,
    OffloadingCounterMetadata,
    OffloadingEvent,
    OffloadingMetricMetadata,
    OffloadKey,
)

from serve_app.kv_directory import Swept
from serve_app.tier_job import TierJob

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

COMPLAIN_S = 60.0


def metric_definitions() -> dict[str, OffloadingMetricMetadata]:
    """Return what is counted here, besides what vLLM counts of every tier."""
    return {name: OffloadingCounterMetadata(text) for name, text in COUNTERS.items()}


class TierReport:
    """What is told at the scheduler's next step; all but warnings is kept until then."""

    def __init__(self, *, with_events: bool) -> None:
        self._with_events = with_events
        self._events: list[OffloadingEvent] = []
        self._counts: Counter[str] = Counter()
        self._complained_s: dict[str, float] = {}

    def tell(self, keys: list[OffloadKey], *, removed: bool) -> None:
        """Say that blocks came or went."""
        if keys and self._with_events:
            self._events.append(OffloadingEvent(list(keys), Medium.STORAGE, removed))

    def note_load(self, load: TierJob) -> None:
        """Report a load that is over or was given up."""
        # Who reads what others wrote says so, as those may be gone.
        self.tell(load.done, removed=False)
        self.tell(load.damaged, removed=True)
        self._counts[DAMAGED] += len(load.damaged)
        if load.error:
            self.complain("blocks not read: %s", load.error)
        if not load.is_over:
            self._counts[ABANDONED] += len(load.keys) - load.ended

    def note_store(self, store: TierJob) -> None:
        """Report a store that is over, took too long, or was refused."""
        self.tell(store.done, removed=False)
        if failed := len(store.keys) - len(store.done):
            self._counts[NOT_STORED] += failed
            self.complain("%d blocks not stored: %s", failed, store.error or "too slow")

    def note_swept(self, swept: Swept) -> None:
        """Report what was removed to make room."""
        self._counts[EVICTED] += swept.num_files
        self.tell([OffloadKey(key) for key in swept.keys], removed=True)

    def complain(self, message: str, *values: object) -> None:
        """Log a warning, at most one of a kind each minute."""
        now_s = time.monotonic()
        if now_s - self._complained_s.get(message, -COMPLAIN_S) >= COMPLAIN_S:
            self._complained_s[message] = now_s
            logger.warning(f"shared KV tier: {message}", *values)

    def take_events(self) -> list[OffloadingEvent]:
        """Return which blocks came and went, since the last call."""
        events, self._events = self._events, []
        return events

    def take_stats(self) -> OffloadingConnectorStats | None:
        """Return what was counted since the last call."""
        stats = OffloadingConnectorStats()
        for name, count in self._counts.items():
            stats.increase_counter(name, count)
        self._counts.clear()
        return None if stats.is_empty() else stats

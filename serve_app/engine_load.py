"""How busy an engine is and how fast, by vLLM's own statistics."""

import time
from typing import Any

from vllm.v1.kv_offload.tiering.base import TieringOffloadingMetrics
from vllm.v1.metrics.cache_hit_source import CacheHitSource
from vllm.v1.metrics.loggers import StatLoggerBase
from vllm.v1.metrics.stats import IterationStats, SchedulerStats

from policies.rates import (
    FETCH_TOKENS_PER_S,
    HOLD_S,
    PRIOR_S,
    RESTORE_TOKENS_PER_S,
    Mean,
    PrefillRate,
)
from policies.types import ReplicaId, ReplicaState

_LOAD_TIME = "vllm:kv_offload_load_time"
_LOAD_BYTES = "vllm:kv_offload_load_bytes"
_READ_TIME = TieringOffloadingMetrics.READ_TIME
_OWN_MEMORIES = (CacheHitSource.DEVICE, CacheHitSource.HOST)


class _ReadRate:
    """Tokens per second that come from a lower tier; vLLM tells both in different steps."""

    def __init__(self, prior: float) -> None:
        self._mean = Mean(prior, PRIOR_S)
        self._tokens = 0
        self._read_s = 0.0

    @property
    def tokens_per_s(self) -> float:
        return self._mean.value

    def add(self, tokens: int, read_s: float) -> None:
        self._tokens += tokens
        self._read_s += read_s
        if self._tokens and self._read_s:
            self._mean.add(self._tokens, self._read_s)
            self._tokens, self._read_s = 0, 0.0


class EngineLoad(StatLoggerBase):
    """One engine's stat logger, which keeps what `state` tells.

    AsyncLLM makes its loggers itself: hand it a factory that returns this one after `attach`.
    """

    def __init__(
        self, replica: ReplicaId, cpu_bytes: float = 0.0, shared_bytes: float = 0.0
    ) -> None:
        """Begin a generation of a replica, with so much room for KV in CPU memory and below."""
        self._replica = replica
        self._cpu_bytes = cpu_bytes
        self._shared_bytes = shared_bytes
        self._generation = time.time_ns()
        self._running = 0
        self._waiting = 0
        self._kv_usage_ratio = 0.0
        self._prefill = PrefillRate()
        self._restore = _ReadRate(RESTORE_TOKENS_PER_S)
        self._fetch = _ReadRate(FETCH_TOKENS_PER_S)
        self._hold = Mean(HOLD_S)
        self._loaded_tokens = 0
        self._loaded_bytes = 0.0

    def attach(self, vllm_config: Any, engine_index: int = 0) -> "EngineLoad":
        """Log for the engine of this configuration."""
        del engine_index  # a replica has one engine
        self._config = vllm_config
        return self

    @property
    def block_size(self) -> int:
        """Tokens per KV block."""
        size: int = self._config.cache_config.block_size
        return size

    @property
    def is_measured(self) -> bool:
        """Whether this replica has prefilled anything yet."""
        return self._prefill.is_measured

    @property
    def cpu_tokens(self) -> int:
        """Tokens of KV that fit in CPU memory, by what those took that came from there."""
        return self._tokens_in(self._cpu_bytes)

    @property
    def shared_tokens(self) -> int:
        """Tokens of KV that fit in the tier that all replicas share, in the same way."""
        return self._tokens_in(self._shared_bytes)

    def _tokens_in(self, size_bytes: float) -> int:
        if not self._loaded_tokens or not self._loaded_bytes:
            return 0
        return int(size_bytes * self._loaded_tokens / self._loaded_bytes)

    def state(self) -> ReplicaState:
        """Return the replica's state as of the engine's last step."""
        total_blocks = self._config.cache_config.num_gpu_blocks or 1
        return ReplicaState(
            replica=self._replica,
            generation=self._generation,
            total_blocks=total_blocks,
            free_blocks=round(total_blocks * (1 - self._kv_usage_ratio)),
            running=self._running,
            waiting=self._waiting,
            max_requests=self._config.scheduler_config.max_num_seqs,
            prefill_tokens_per_s=self._prefill.tokens_per_s,
            restore_tokens_per_s=self._restore.tokens_per_s,
            fetch_tokens_per_s=self._fetch.tokens_per_s,
            hold_s=self._hold.value,
        )

    def prefilled(self, tokens: int, began_at_s: float, first_token_at_s: float) -> None:
        """Note that a prompt of which `tokens` were in no cache was computed, from when to when."""
        self._prefill.add(tokens, began_at_s, first_token_at_s)

    def record(
        self,
        scheduler_stats: SchedulerStats | None,
        iteration_stats: IterationStats | None,
        *_: Any,
        **__: Any,
    ) -> None:
        """Take vLLM's statistics of one step."""
        if scheduler_stats is not None:
            waiting = scheduler_stats.num_waiting_reqs, scheduler_stats.num_skipped_waiting_reqs
            self._running, self._waiting = scheduler_stats.num_running_reqs, sum(waiting)
            self._kv_usage_ratio = scheduler_stats.kv_cache_usage
            connector = scheduler_stats.kv_connector_stats
            self._loaded_bytes += _sum(connector, _LOAD_BYTES)
            self._restore.add(0, _sum(connector, _LOAD_TIME))
            self._fetch.add(_fetched_tokens(scheduler_stats), _sum(connector, _READ_TIME))
        if iteration_stats is not None:
            restored_tokens = iteration_stats.prompt_token_stats.external_kv_transfer
            self._loaded_tokens += restored_tokens
            self._restore.add(restored_tokens, 0.0)
            for finished in iteration_stats.finished_requests:
                self._hold.add(finished.inference_time)

    def log_engine_initialized(self) -> None:
        """Say nothing: vLLM's own logger does."""


def _sum(connector_stats: dict[str, Any] | None, metric: str) -> float:
    """Return what a step adds to a counter of the offloading connector, all labels together."""
    if not connector_stats:
        return 0.0
    by_labels: dict[Any, float] = connector_stats.get("data", {}).get(metric, {})
    return sum(by_labels.values())


def _fetched_tokens(stats: SchedulerStats) -> int:
    """Return the tokens of prompts scheduled in this step that came from below CPU memory."""
    if stats.connector_prefix_cache_stats is None:
        return 0
    by_source = stats.connector_prefix_cache_stats.hits_by_source
    return sum(tokens for source, tokens in by_source.items() if source not in _OWN_MEMORIES)

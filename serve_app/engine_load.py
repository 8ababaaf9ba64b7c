"""How busy an engine is and how fast, by vLLM's own statistics."""

import time
from typing import Any

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


class EngineLoad(StatLoggerBase):
    """One engine's stat logger, which keeps what `state` tells.

    AsyncLLM makes its loggers itself: hand it a factory that returns this one after `attach`.
    """

    def __init__(self, replica: ReplicaId) -> None:
        self._replica = replica
        self._generation = time.time_ns()
        self._running = 0
        self._waiting = 0
        self._kv_usage_ratio = 0.0
        self._prefill = PrefillRate()
        self._restore = Mean(RESTORE_TOKENS_PER_S, PRIOR_S)
        self._hold = Mean(HOLD_S)
        self._restored_tokens = 0
        self._restoring_s = 0.0

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
            restore_tokens_per_s=self._restore.value,
            fetch_tokens_per_s=FETCH_TOKENS_PER_S,
            hold_s=self._hold.value,
        )

    def prefilled(self, tokens: int, arrived_at_s: float, first_token_at_s: float) -> None:
        """Note that a prompt of which `tokens` were in no cache got its first token."""
        self._prefill.add(tokens, arrived_at_s, first_token_at_s)

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
            self._restoring_s += _load_time_s(scheduler_stats.kv_connector_stats)
        if iteration_stats is not None:
            self._restored_tokens += iteration_stats.prompt_token_stats.external_kv_transfer
            for finished in iteration_stats.finished_requests:
                self._hold.add(finished.inference_time)
        if self._restored_tokens and self._restoring_s:
            self._restore.add(self._restored_tokens, self._restoring_s)
            self._restored_tokens, self._restoring_s = 0, 0.0

    def log_engine_initialized(self) -> None:
        """Say nothing: vLLM's own logger does."""


def _load_time_s(connector_stats: dict[str, Any] | None) -> float:
    """Return the seconds that loading KV from a lower tier took in this step."""
    if not connector_stats:
        return 0.0
    by_labels: dict[Any, float] = connector_stats.get("data", {}).get(_LOAD_TIME, {})
    return sum(by_labels.values())

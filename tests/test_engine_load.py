"""What vLLM's statistics of single steps say of a replica's speeds."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.metrics.cache_hit_source import CacheHitSource
from vllm.v1.metrics.stats import IterationStats, PrefixCacheStats, SchedulerStats

from policies.rates import FETCH_TOKENS_PER_S, RESTORE_TOKENS_PER_S
from policies.types import ReplicaId, ReplicaState
from serve_app.engine_load import EngineLoad

LOAD_TIME = "vllm:kv_offload_load_time"
READ_TIME = "vllm:kv_offload_tiering_read_time"


def make_load() -> EngineLoad:
    """Return the load of an engine of 100 blocks that did nothing yet."""
    cache = SimpleNamespace(block_size=16, num_gpu_blocks=100)
    config = SimpleNamespace(cache_config=cache, scheduler_config=SimpleNamespace(max_num_seqs=4))
    return EngineLoad(ReplicaId("r1"), cpu_bytes=1e6).attach(config)


def step(seconds: dict[str, float], sources: dict[CacheHitSource, int]) -> SchedulerStats:
    """Return the statistics of a step that read from tiers, for prompts cached in `sources`."""
    stats = SchedulerStats()
    stats.kv_connector_stats = {"data": {name: {("1:fs",): s} for name, s in seconds.items()}}
    stats.connector_prefix_cache_stats = PrefixCacheStats(hits_by_source=Counter(sources))
    return stats


def restored(tokens: int) -> IterationStats:
    """Return the statistics of a step in which so many tokens came from CPU memory."""
    stats = IterationStats()  # type: ignore[no-untyped-call]
    stats.prompt_token_stats.external_kv_transfer = tokens
    return stats


def rates(state: ReplicaState) -> tuple[float, float]:
    """Return how fast it restores and fetches."""
    return state.restore_tokens_per_s, state.fetch_tokens_per_s


def test_rates_before_anything_was_read() -> None:
    """Until then it is as fast as is believed of any."""
    load = make_load()
    load.record(SchedulerStats(), restored(0))
    assert rates(load.state()) == (RESTORE_TOKENS_PER_S, FETCH_TOKENS_PER_S)


def test_each_way_has_its_rate() -> None:
    """What is fetched comes through CPU memory, and what was there already was not fetched."""
    load = make_load()
    sources = {CacheHitSource.HOST: 1000, CacheHitSource.DISK: 3000}
    for _ in range(60):
        load.record(step({READ_TIME: 1.0}, {}), None)
        load.record(step({}, sources), None)
        load.record(step({LOAD_TIME: 0.5}, {}), restored(4000))
    restore, fetch = rates(load.state())
    assert restore == pytest.approx(8000, rel=0.05)
    assert fetch == pytest.approx(3000, rel=0.05)


def test_how_much_fits_in_cpu_memory() -> None:
    """By what the tokens take that came from there; nobody knows before."""
    load = make_load()
    assert load.cpu_tokens == 0
    load.record(step({"vllm:kv_offload_load_bytes": 4000.0}, {}), None)
    assert load.cpu_tokens == 0
    load.record(step({}, {}), restored(400))
    assert load.cpu_tokens == 100_000


@pytest.mark.parametrize("connector", [None, {}, {"data": {}}])
def test_an_engine_without_lower_tiers(connector: dict[str, Any] | None) -> None:
    """Statistics that say nothing of tiers change nothing."""
    load = make_load()
    stats = SchedulerStats()
    stats.kv_connector_stats = connector
    load.record(stats, restored(0))
    assert rates(load.state()) == (RESTORE_TOKENS_PER_S, FETCH_TOKENS_PER_S)

"""vLLM's metrics that are looked at, by the names under which Ray's agent exports them."""


def _series(name: str) -> str:
    return "ray_vllm_" + name


REPLICA = "ReplicaId"
"""The label with the replica's id: what the router's own metrics call `replica`."""

RUNNING = _series("num_requests_running")
WAITING = _series("num_requests_waiting")
PREEMPTIONS = _series("num_preemptions_total")
FINISHED = _series("request_success_total")

PROMPT_TOKENS = _series("prompt_tokens_total")
PROMPT_TOKENS_BY_SOURCE = _series("prompt_tokens_by_source_total")
PRIMARY_HITS = '{source="local_cache_hit"}'
LOWER_HITS = '{source="external_kv_transfer"}'
COMPUTED = '{source="local_compute"}'
GENERATED_TOKENS = _series("generation_tokens_total")
BATCH_TOKENS = _series("iteration_tokens_total")

TTFT = _series("time_to_first_token_seconds")
TIME_PER_OUTPUT_TOKEN = _series("request_time_per_output_token_seconds")
INTER_TOKEN = _series("inter_token_latency_seconds")
END_TO_END = _series("e2e_request_latency_seconds")
QUEUE_TIME = _series("request_queue_time_seconds")
PREFILL_TIME = _series("request_prefill_time_seconds")
DECODE_TIME = _series("request_decode_time_seconds")

KV_USE = _series("kv_cache_usage_perc")
CPU_USE = _series("kv_offload_cpu_cache_usage_perc")
OFFLOAD_STORED_BYTES = _series("kv_offload_store_bytes_total")
OFFLOAD_STORE_TIME = _series("kv_offload_store_time_total")
OFFLOAD_LOADED_BYTES = _series("kv_offload_load_bytes_total")
OFFLOAD_LOAD_TIME = _series("kv_offload_load_time_total")

TIER_QUERIES = _series("kv_offload_tiering_chunk_queries_total")
TIER_HITS = _series("kv_offload_tiering_chunk_hits_total")
TIER_READ_BYTES = _series("kv_offload_tiering_read_bytes_total")
TIER_READ_TIME = _series("kv_offload_tiering_read_time_total")
TIER_WRITTEN_BYTES = _series("kv_offload_tiering_write_bytes_total")
TIER_WRITE_TIME = _series("kv_offload_tiering_write_time_total")
BELOW_CPU = '{tier!="0:primary"}'

SHARED_DAMAGED = _series("kv_shared_damaged_files_total")
SHARED_ABANDONED = _series("kv_shared_abandoned_blocks_total")
SHARED_NOT_STORED = _series("kv_shared_blocks_not_stored_total")
SHARED_EVICTED = _series("kv_shared_evicted_files_total")

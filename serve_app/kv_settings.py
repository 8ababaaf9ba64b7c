"""The engine settings that the KV of a prompt depends on."""

import argparse
from typing import Any

from serve_app.config import AppConfig

NOT_IN_KV = frozenset(
    {
        "aggregate_engine_logging",
        "allow_credentials",
        "allowed_headers",
        "allowed_methods",
        "allowed_origins",
        "api_key",
        "async_scheduling",
        "chat_template",
        "chat_template_content_format",
        "collect_detailed_traces",
        "cudagraph_capture_sizes",
        "cudagraph_metrics",
        "default_chat_template_kwargs",
        "device_memory_utilization",
        "disable_access_log_for_endpoints",
        "disable_fastapi_docs",
        "disable_uvicorn_access_log",
        "download_dir",
        "enable_auto_tool_choice",
        "enable_chunked_prefill",
        "enable_force_include_usage",
        "enable_log_deltas",
        "enable_log_outputs",
        "enable_log_requests",
        "enable_per_request_metrics",
        "enable_prefix_caching",
        "enable_prompt_tokens_details",
        "enable_request_id_headers",
        "enable_server_load_tracking",
        "enable_tokenizer_info_endpoint",
        "enforce_eager",
        "exclude_tools_when_tool_choice_none",
        "generation_config",
        "gpu_memory_utilization",
        "hf_token",
        "kv_cache_memory_bytes",
        "kv_cache_metrics",
        "log_config_file",
        "log_level",
        "logging_config",
        "max_cudagraph_capture_size",
        "max_log_len",
        "max_logprobs",
        "max_num_active_seqs",
        "max_num_batched_tokens",
        "max_num_queued_reqs",
        "max_num_queued_tokens",
        "max_num_scheduled_tokens",
        "max_num_seqs",
        "max_parallel_loading_workers",
        "middleware",
        "num_gpu_blocks_override",
        "otlp_traces_endpoint",
        "override_generation_config",
        "reasoning_parser",
        "reasoning_parser_plugin",
        "response_role",
        "return_tokens_as_token_ids",
        "scheduling_policy",
        "served_model_name",
        "shutdown_timeout",
        "stream_interval",
        "tool_call_parser",
        "tool_parser_plugin",
        "tool_server",
        "use_tqdm_on_load",
        "uvicorn_log_level",
    }
)
"""Engine settings with which the KV of a prompt's tokens is the same, whatever their values.

All others tell KV apart, even those that may not have to: then a block is computed twice, where
the opposite mistake gives wrong answers. max_model_len is not here as it chooses between factors
of some models' rotary embeddings.
"""


def settings_in_kv(args: argparse.Namespace, config: AppConfig) -> dict[str, Any]:
    """Return the settings with which KV is another one, as JSON can show them."""
    given = {key.replace("-", "_"): value for key, value in config.engine.items()}
    return {
        "engine": {key: value for key, value in given.items() if key not in NOT_IN_KV},
        "attention": str(args.attention_config),
        "hash": args.prefix_caching_hash_algo,
        "speculative": args.speculative_config,
    }

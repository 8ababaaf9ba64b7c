"""Where an engine keeps KV besides its primary cache: CPU memory, and below it a shared tier."""

import argparse
import logging
import shutil
from typing import Any

from vllm.config import KVTransferConfig, ParallelConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.platforms import current_platform

from serve_app.config import AppConfig, SharedDirectory, SharedService
from serve_app.engine_args import EngineArgsError
from serve_app.kv_namespace import UnknownWeightsError, model_identity

logger = logging.getLogger("ray.serve")

HOST_OFFLOADING = {"spec_name": "HostOffloadingSpec", "spec_module_path": "serve_app.host_offload"}
HOST_TIERING = {"spec_name": "HostTieringSpec", "spec_module_path": "serve_app.host_tiering"}
TIERING = {
    "spec_name": "NamelessTieringSpec",
    "spec_module_path": "serve_app.nameless_tiering",
}

ONE_NODE = "kv_shared: all workers of a replica must be on one node, without Ray between them"

HASHES = ("sha256", "sha256_cbor")
"""Hashes of prompts that nobody finds two prompts for; of others a prompt could get wrong KV."""

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

SHARED_MEMORY = "/dev/shm"  # noqa: S108  # where vLLM puts the CPU tier if others are below it


def place_kv(args: argparse.Namespace, config: AppConfig) -> float:
    """Give the engine its tiers: vLLM's own on accelerators, ours on the CPU build.

    Returns the bound of the shared tier that it has, in GiB; 0 as `AppConfig.kv_shared_gib`, and
    where that tier is off.

    Raises:
        EngineArgsError: the shared tier cannot work with these settings.
    """
    if not config.kv_offload_gib:
        return 0.0
    host_bytes = int(config.kv_offload_gib * 2**30)
    tiers = [_tier(args, config, config.kv_shared)] if config.kv_shared else []
    if current_platform.is_cpu():
        if tiers and shutil.disk_usage(SHARED_MEMORY).free < host_bytes:
            logger.error(
                "kv_shared is off: %s has less than the %.1f GiB that kv_offload_gib takes there",
                SHARED_MEMORY,
                config.kv_offload_gib,
            )
            tiers = []
        spec = HOST_TIERING if tiers else HOST_OFFLOADING
    elif tiers:
        spec = TIERING
    else:
        args.kv_offloading_size = config.kv_offload_gib
        return 0.0
    more: dict[str, Any] = {**spec, "cpu_bytes_to_use": host_bytes}
    if tiers:
        more["secondary_tiers"] = tiers
    args.kv_transfer_config = KVTransferConfig(
        kv_connector="OffloadingConnector", kv_role="kv_both", kv_connector_extra_config=more
    )
    return config.kv_shared_gib if tiers else 0.0


def check_workers(config: AppConfig, parallel: ParallelConfig) -> None:
    """Refuse a shared tier where vLLM chose to reach a replica's workers through Ray.

    They may be on other nodes, and the scheduler sees only the CPU memory of its own.

    Raises:
        EngineArgsError: so it is.
    """
    if config.kv_shared and parallel.distributed_executor_backend == "ray":
        raise EngineArgsError(ONE_NODE)


def _tier(
    args: argparse.Namespace, config: AppConfig, shared: SharedDirectory | SharedService
) -> dict[str, Any]:
    """Return the tier as vLLM wants it told."""
    if args.nnodes > 1 or args.distributed_executor_backend == "ray":
        raise EngineArgsError(ONE_NODE)
    if args.prefix_caching_hash_algo not in HASHES:
        raise EngineArgsError(
            f"kv_shared: engine.prefix_caching_hash_algo {args.prefix_caching_hash_algo} can give"
            f" two prompts one hash; use {' or '.join(HASHES)}"
        )
    if isinstance(shared, SharedService):
        if current_platform.is_cpu():
            reason = "vLLM has this tier for accelerators alone; use {type: fs, path, gib}"
            raise EngineArgsError(f"kv_shared.type {shared.type}: {reason}")
        return shared.model_dump()
    given = {key.replace("-", "_"): value for key, value in config.engine.items()}
    settings = {
        "engine": {key: value for key, value in given.items() if key not in NOT_IN_KV},
        "attention": str(args.attention_config),
        "hash": args.prefix_caching_hash_algo,
        "speculative": args.speculative_config,
    }
    try:
        model = AsyncEngineArgs.from_cli_args(args).create_model_config()
        identity = model_identity(model, settings)
    except UnknownWeightsError as error:
        raise EngineArgsError(f"kv_shared: {error}") from error
    return {
        "type": "SharedFsTier",
        "module_path": "serve_app.shared_tier",
        "path": str(shared.path.absolute()),
        "max_bytes": int(shared.gib * 2**30),
        "model_identity": identity,
    }

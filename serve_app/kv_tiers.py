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

SHARED_MEMORY = "/dev/shm"  # noqa: S108  # where vLLM puts the CPU tier if others are below it


def place_kv(args: argparse.Namespace, config: AppConfig) -> None:
    """Give the engine its tiers: vLLM's own on accelerators, ours on the CPU build.

    Raises:
        EngineArgsError: the shared tier cannot work with these settings.
    """
    if not config.kv_offload_gib:
        return
    host_bytes = int(config.kv_offload_gib * 2**30)
    tiers = [_tier(args, config.kv_shared)] if config.kv_shared else []
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
        return
    more: dict[str, Any] = {**spec, "cpu_bytes_to_use": host_bytes}
    if tiers:
        more["secondary_tiers"] = tiers
    args.kv_transfer_config = KVTransferConfig(
        kv_connector="OffloadingConnector", kv_role="kv_both", kv_connector_extra_config=more
    )


def check_workers(config: AppConfig, parallel: ParallelConfig) -> None:
    """Refuse a shared tier where vLLM chose to reach a replica's workers through Ray.

    They may be on other nodes, and the scheduler sees only the CPU memory of its own.

    Raises:
        EngineArgsError: so it is.
    """
    if config.kv_shared and parallel.distributed_executor_backend == "ray":
        raise EngineArgsError(ONE_NODE)


def _tier(args: argparse.Namespace, shared: SharedDirectory | SharedService) -> dict[str, Any]:
    """Return the tier as vLLM wants it told."""
    if args.nnodes > 1 or args.distributed_executor_backend == "ray":
        raise EngineArgsError(ONE_NODE)
    if isinstance(shared, SharedService):
        if current_platform.is_cpu():
            reason = "vLLM has this tier for accelerators alone; use {type: fs, path, gib}"
            raise EngineArgsError(f"kv_shared.type {shared.type}: {reason}")
        return shared.model_dump()
    settings = {
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

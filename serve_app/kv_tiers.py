"""Where an engine keeps KV besides its primary cache: CPU memory, and below it a shared tier."""

import argparse
from typing import Any

from vllm.config import KVTransferConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.platforms import current_platform

from serve_app.config import AppConfig, SharedDirectory, SharedService
from serve_app.engine_args import EngineArgsError
from serve_app.kv_namespace import UnknownWeightsError, model_identity


def place_kv(args: argparse.Namespace, config: AppConfig) -> None:
    """Give the engine its tiers: vLLM's own on accelerators, ours on the CPU build.

    Raises:
        EngineArgsError: the shared tier cannot work with these settings.
    """
    if not config.kv_offload_gib:
        return
    if config.kv_shared is None and not current_platform.is_cpu():
        args.kv_offloading_size = config.kv_offload_gib
        return
    more: dict[str, Any] = {"cpu_bytes_to_use": int(config.kv_offload_gib * 2**30)}
    if config.kv_shared is None:
        more |= {"spec_name": "HostOffloadingSpec", "spec_module_path": "serve_app.host_offload"}
    else:
        more["secondary_tiers"] = [_tier(args, config.kv_shared)]
        more["spec_name"] = "TieringOffloadingSpec"
        if current_platform.is_cpu():
            more |= {"spec_name": "HostTieringSpec", "spec_module_path": "serve_app.host_tiering"}
    args.kv_transfer_config = KVTransferConfig(
        kv_connector="OffloadingConnector", kv_role="kv_both", kv_connector_extra_config=more
    )


def _tier(args: argparse.Namespace, shared: SharedDirectory | SharedService) -> dict[str, Any]:
    """Return the tier as vLLM wants it told."""
    if args.nnodes > 1 or args.distributed_executor_backend == "ray":
        # Its scheduler sees only the CPU memory of its own node.
        raise EngineArgsError("kv_shared: all workers of a replica must be on one node")
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

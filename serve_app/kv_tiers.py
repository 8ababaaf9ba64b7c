"""Where an engine keeps KV besides its primary cache: CPU memory, and below it a shared tier."""

import argparse
import logging
import shutil
from typing import Any

from vllm.config import KVTransferConfig, ParallelConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.platforms import cpu_platform_plugin, current_platform
from vllm.transformers_utils.runai_utils import is_runai_obj_uri

from serve_app.config import AppConfig, SharedDirectory, SharedService
from serve_app.engine_args import EngineArgsError
from serve_app.kv_namespace import UnknownWeightsError, model_identity
from serve_app.kv_settings import settings_in_kv

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


def check(args: argparse.Namespace, config: AppConfig) -> None:
    """Refuse a shared tier that no engine could have, as far as the settings alone tell.

    Raises:
        EngineArgsError: it cannot work with them.
    """
    shared = config.kv_shared
    if shared is None:
        return
    if args.nnodes > 1 or args.distributed_executor_backend == "ray":
        raise EngineArgsError(ONE_NODE)
    if args.prefix_caching_hash_algo not in HASHES:
        raise EngineArgsError(
            f"kv_shared: engine.prefix_caching_hash_algo {args.prefix_caching_hash_algo} can give"
            f" two prompts one hash; use {' or '.join(HASHES)}"
        )
    if isinstance(shared, SharedDirectory):
        if is_runai_obj_uri(config.model):
            raise EngineArgsError(f"kv_shared: {config.model}: weights in an object store")
    # A cluster's head without an accelerator is not vLLM's CPU build.
    elif current_platform.is_cpu() and cpu_platform_plugin():
        reason = "vLLM has this tier for accelerators alone; use {type: fs, path, gib}"
        raise EngineArgsError(f"kv_shared.type {shared.type}: {reason}")


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
    check(args, config)
    if isinstance(shared, SharedService):
        return shared.model_dump()
    try:
        model = AsyncEngineArgs.from_cli_args(args).create_model_config()
        identity = model_identity(model, settings_in_kv(args, config))
    except UnknownWeightsError as error:
        raise EngineArgsError(f"kv_shared: {error}") from error
    return {
        "type": "SharedFsTier",
        "module_path": "serve_app.shared_tier",
        "path": str(shared.path.absolute()),
        "max_bytes": int(shared.gib * 2**30),
        "model_identity": identity,
    }

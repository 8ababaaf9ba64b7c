"""What must be equal for one engine to use the KV of another, apart from the prompt.

The prompt's part is vLLM's own hash of each block: SHA-256 over the tokens up to its end, the cache
salt, the LoRA adapter's name and path, and images.
"""

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import vllm
from vllm.config import ModelConfig
from vllm.platforms import current_platform
from vllm.v1.kv_offload.config import OffloadingConfig


class UnknownWeightsError(ValueError):
    """Nothing tells this model's weights from others of the same name."""


def model_identity(model: ModelConfig, settings: dict[str, Any]) -> str:
    """Return what tells the model from all others, weights and engine `settings` included.

    A model from the hub is known by its commit, a directory by its files: the content of the small
    ones, and name, size and modification time of the others.

    Raises:
        UnknownWeightsError: it's neither, or the weights are elsewhere.
    """
    if model.model_weights:  # the directory has only what goes with them
        raise UnknownWeightsError(f"{model.model_weights}: weights in an object store")
    commit = getattr(model.hf_config, "_commit_hash", None)
    if Path(model.model).is_dir():
        weights = _files(Path(model.model))
    elif commit:
        weights = commit
    else:
        raise UnknownWeightsError(f"{model.model}: neither a directory nor from the model hub")
    parts = [
        weights,
        model.compute_hash(),
        str(model.dtype),
        json.dumps(settings, sort_keys=True, default=str),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def namespace(model: str, config: OffloadingConfig, chunk_bytes: int) -> str:
    """Return the namespace's name, its first line for people; `model` is a `model_identity`."""
    parallel = config.parallel
    fields = {
        "model": model,
        "vllm": version_of_vllm(),
        "dtype": config.model.dtype,
        "groups": [(g.group_id, g.tokens_per_block, g.layer_names) for g in config.groups],
        "tokens_per_hash": config.cache.tokens_per_hash,
        "blocks_per_chunk": config.cache.blocks_per_chunk,
        "chunk_bytes": chunk_bytes,
        "kv_cache_layout": config.kv_cache_layout,
        "canonical_layout": config.canonical_layout,
        "replicated_layout": config.replicated_layout,
        "workers": [
            parallel.world_size,
            parallel.tp_size,
            parallel.pp_size,
            parallel.pcp_size,
            parallel.dcp_size,
        ],
        "device": _device(),
    }
    return f"{Path(config.model.name).name}\n{json.dumps(fields, sort_keys=True)}"


def version_of_vllm() -> str:
    """Return vLLM's version, by whichever name it's installed."""
    return f"{vllm.__version__}, torch {version('torch')}"


def _files(directory: Path) -> str:
    """Return a digest of a model directory that changes whenever a file is changed."""
    digest = hashlib.sha256()
    for path in sorted(one for one in directory.rglob("*") if one.is_file()):
        status = path.stat()
        digest.update(f"{path.relative_to(directory)}\n{status.st_size}\n".encode())
        if path.suffix == ".json":
            digest.update(path.read_bytes())
        else:
            digest.update(f"{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _device() -> str:
    """Return what the layout of KV in memory depends on: attention kernels differ by processor."""
    if current_platform.is_cpu():
        amx = torch.cpu._is_amx_tile_supported()  # as vLLM asks, for the same purpose
        return f"cpu {torch.backends.cpu.get_cpu_capability()} {amx}"
    return f"{current_platform.device_name} {current_platform.get_device_capability()}"

"""What vLLM's KV events say of blocks, in the terms of `policies.block_hash`.

Source: vLLM 0.32, distributed/kv_events.py, v1/core/kv_cache_utils.py (extra keys).
"""

from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np
from vllm.distributed.kv_events import (
    MEDIUM_CPU,
    MEDIUM_GPU,
    MEDIUM_STORAGE,
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
)

from policies.block_hash import block_contents, root_hash
from policies.kv_events import EngineHash
from policies.types import BlockHash, Tier

KvEvent = BlockStored | BlockRemoved | AllBlocksCleared

TIERS = {
    None: Tier.GPU,
    MEDIUM_GPU: Tier.GPU,
    MEDIUM_CPU: Tier.CPU,
    MEDIUM_STORAGE: Tier.SHARED,
}
"""Tiers by vLLM's name of the medium."""

FULL_ATTENTION = (None, "full_attention", "mla_attention", "sink_full_attention")
"""Kinds of KV of which every token's is kept; None where there is one group and no need to say."""


def engine_hash(block: bytes | int) -> EngineHash:
    """Return the engine's name of a block, shortened as vLLM does where it gives numbers."""
    if isinstance(block, bytes):
        block = int.from_bytes(block, "big") & ((1 << 64) - 1)
    return EngineHash(block)


def root_of(stored: BlockStored, model: str) -> BlockHash:
    """Return the hash that precedes the blocks of a store in GPU memory that begin a prompt."""
    keys = stored.extra_keys[0] if stored.extra_keys else None
    strings = [key for key in keys or () if isinstance(key, str)]
    salt = strings[1:] if stored.lora_name else strings
    lora = stored.lora_name or ""
    return root_hash(model, stored.block_size, lora=lora, tenant=salt[0] if salt else "")


def contents_of(stored: BlockStored) -> list[int]:
    """Return the content of each block of a store in GPU memory.

    That of a block which holds more than its tokens differs from that of the tokens alone.
    """
    contents = block_contents(np.array(stored.token_ids, np.uint64), stored.block_size)
    keys = stored.extra_keys or [None] * len(contents)
    return [content ^ _others(key) for content, key in zip(contents, keys, strict=True)]


def _others(keys: tuple[Any, ...] | None) -> int:
    """Return a hash of what a block holds besides its tokens, 0 if nothing.

    A block's keys are the LoRA adapter's name, (image, offset) pairs, in a prompt's first block
    the cache salt, and digests of embeddings. Only names and salts are strings; the root has them.
    """
    others = [key for key in keys or () if not isinstance(key, str)]
    if not others:
        return 0
    digest = blake2b(msgspec.msgpack.encode(others), digest_size=8).digest()
    return int.from_bytes(digest, "little")

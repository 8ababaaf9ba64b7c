"""Where a transfer's blocks lie in the CPU tier: pure sums on vLLM's transfer specs."""

import mmap
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from vllm.v1.kv_offload import base


class BlockMatch(NamedTuple):
    """One group's share of a transfer: blocks[i] belongs in slots[i] of host chunk chunks[i]."""

    blocks: NDArray[np.intp]
    chunks: NDArray[np.intp]
    slots: NDArray[np.intp]


def match_blocks(
    primary: base.GPULoadStoreSpec, host: base.BlockIDsLoadStoreSpec, blocks_per_chunk: int
) -> list[BlockMatch]:
    """Match each group's blocks of the primary cache to slots of host chunks.

    A group whose first block is its request's k-th starts at slot `k % blocks_per_chunk` of its
    first chunk and fills chunk after chunk; the last may be partly used. A group of no blocks
    takes no chunk. Raises ValueError unless exactly all blocks and all chunks are used.
    """
    firsts, sizes = primary.block_indices, primary.group_sizes
    offsets = [k % blocks_per_chunk + np.arange(n) for k, n in zip(firsts, sizes, strict=True)]
    counts = [int(offset[-1]) // blocks_per_chunk + 1 if offset.size else 0 for offset in offsets]
    if (sum(sizes), sum(counts)) != (len(primary.block_ids), len(host.block_ids)):
        msg = f"{len(primary.block_ids)} blocks in {len(host.block_ids)} chunks can't be groups of "
        msg += f"{sizes} blocks from {firsts} on in {counts} chunks of {blocks_per_chunk}"
        raise ValueError(msg)
    blocks = np.split(primary.block_ids.astype(np.intp), np.cumsum(sizes)[:-1])
    chunks = np.split(host.block_ids.astype(np.intp), np.cumsum(counts)[:-1])
    return [
        BlockMatch(block, chunk[offset // blocks_per_chunk], offset % blocks_per_chunk)
        for block, chunk, offset in zip(blocks, chunks, offsets, strict=True)
    ]


def allocate_host(
    kv_caches: base.CanonicalKVCaches, num_chunks: int, blocks_per_chunk: int
) -> list[NDArray[np.int8]]:
    """Return an array (num_chunks, blocks_per_chunk, page bytes) for each primary tensor.

    Anonymous private memory reads as zeros, yet takes room only where it was written
    (`torch.zeros` touches all of it, `torch.empty` is uninitialised). Zeros don't pass for KV
    either: the manager lets a chunk be loaded only once its store completed.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    shapes = [(num_chunks, blocks_per_chunk, t.page_size_bytes) for t in kv_caches.tensors]
    return [np.frombuffer(mmap.mmap(-1, prod(s), flags), np.int8).reshape(s) for s in shapes]

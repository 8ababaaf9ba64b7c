"""The block hashes of a prompt, of which only what is new is computed."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from policies.block_hash import hash_blocks
from policies.types import BlockHash
from serve_app.segment_encoder import Ids

Hashes = NDArray[np.uint64]
"""Block hashes as they travel, since an array is pickled faster than a list and is smaller.

`tolist()` makes of them what policies.router takes.
"""

NO_HASHES: Hashes = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class PromptHashes:
    """The hashes of a prompt's full blocks; `root` is that of block_hash.root_hash."""

    root: BlockHash
    blocks: Hashes

    @classmethod
    def of(
        cls,
        root: BlockHash,
        block_size: int,
        ids: Ids,
        earlier: Self | None = None,
        shared_tokens: int = 0,
    ) -> Self:
        """Hash a prompt, of which an earlier one had the first `shared_tokens`.

        The earlier one's hashes are used if they have the same root, thus the same block size.
        """
        known = NO_HASHES
        if earlier is not None and earlier.root == root:
            known = earlier.blocks[: shared_tokens // block_size]
        parent = BlockHash(int(known[-1])) if len(known) else root
        new = hash_blocks(parent, ids[len(known) * block_size :], block_size)
        return cls(root, np.concatenate([known, np.array(new, np.uint64)]))

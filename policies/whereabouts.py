"""Where a prompt's KV lies now, told by a sample of its blocks: all of them would be too many."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.prefix_index import PrefixIndex
from policies.types import ReplicaId, Tier

MAX_SAMPLES = 64
"""Of one prompt, which makes 0.6 kB: so what is said of it is right to a 64th."""

Memory = tuple[ReplicaId | None, Tier]
"""A replica's, or the one that all share."""


@dataclass(frozen=True, slots=True)
class PromptSample:
    """At most MAX_SAMPLES of a prompt's full `blocks`, as evenly spread as can be.

    Each is the last block of its stretch of the prompt, and stands for all of it.
    """

    blocks: int
    hashes: NDArray[np.uint64]


def sample(hashes: NDArray[np.uint64]) -> PromptSample:
    """Return a sample of the prompt with these blocks."""
    stretches = min(len(hashes), MAX_SAMPLES)
    ends = np.arange(1, stretches + 1) * len(hashes) // max(1, stretches)
    return PromptSample(len(hashes), hashes[ends - 1])


def whereabouts(prompt: PromptSample, index: PrefixIndex) -> Mapping[Memory, list[bool]]:
    """Return for each memory that has some of a prompt which of its stretches it has."""
    held: dict[Memory, list[bool]] = {}
    for stretch, block in enumerate(prompt.hashes.tolist()):
        for memory in index.memories(block):
            held.setdefault(memory, [False] * len(prompt.hashes))[stretch] = True
    return held

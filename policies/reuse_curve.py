"""Which part of recent prompts a memory of any size would have had cached.

A block that was used before is still held if the memory has room for it and for all blocks that
were used since: those are its stack distance (Mattson et al., 1970). They are counted for blocks
whose hash is below a threshold alone, and stand for as many more as that leaves out (SHARDS:
Waldspurger et al., FAST 2015, of fixed size). How many blocks were used is known exactly, for the
beginnings of prompts and for what follows them: of the few that many prompts begin with, too many
or too few may be sampled, which this corrects.

A prompt uses all of its blocks at once, the first one last, as engines evict a prompt's end first.
So a block has been used since all that follow it were, and whoever holds it holds what precedes it:
no block counts that a gap before it would make useless, whichever blocks are sampled.
"""

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_SLOTS = 20
"""Parts of a window that are let go of one by one."""

_NEVER = -1
"""The position of a block that was not used before."""

_BINS_PER_OCTAVE = 16
_BINS = 40 * _BINS_PER_OCTAVE
_EDGES_BLOCKS: Floats = np.exp2(np.arange(_BINS + 1) / _BINS_PER_OCTAVE)
"""Sizes of memory between which distances are told apart: 4 % from one to the next."""

_KEPT_RATIO = 7 / 8
"""Samples left when there are too many."""

_HEAD_TOKENS = 16_384
"""Of a prompt, what many others may have: tools and system prompt."""


@dataclass(frozen=True, slots=True)
class ReuseCurve:
    """Hit ratios that memories of any size would have given, evicting what was used last longest.

    `hit_tokens[i]` of the `prompt_tokens` of the last `span_s` hit in a memory of
    `sizes_tokens[i]`.
    """

    sizes_tokens: Floats
    hit_tokens: Floats
    prompt_tokens: int
    span_s: float

    @property
    def prompt_tokens_per_s(self) -> float:
        """The rate at which prompts came."""
        return self.prompt_tokens / self.span_s if self.span_s else 0.0

    @property
    def best_ratio(self) -> float:
        """The hit ratio of a memory without end."""
        return float(self.hit_tokens[-1]) / max(1, self.prompt_tokens)

    def hit_ratio(self, capacity_tokens: float) -> float:
        """Return the hit ratio of a memory of that size."""
        hit_tokens = np.interp(capacity_tokens, self.sizes_tokens, self.hit_tokens)
        return float(hit_tokens) / max(1, self.prompt_tokens)

    def capacity_tokens(self, hit_ratio: float) -> float | None:
        """Return the least size with that hit ratio; None where no size has it."""
        wanted = hit_ratio * max(1, self.prompt_tokens)
        reached = int(np.searchsorted(self.hit_tokens, wanted))
        return None if reached == len(self.hit_tokens) else float(self.sizes_tokens[reached])


@dataclass(slots=True)
class _Counts:
    """What was counted in one part of the window; samples weigh as much as they stand for.

    All but the first three are of prompts' heads, and of what follows those.
    """

    slot: int
    first_position: int
    prompt_tokens: int = 0
    blocks: Floats = field(default_factory=lambda: np.zeros(2))
    sampled_blocks: Floats = field(default_factory=lambda: np.zeros(2))
    hits: Floats = field(default_factory=lambda: np.zeros((2, _BINS)))


class ReuseSampler:
    """Follows prompts and counts how far back their blocks were used, within `window_s`.

    At most `max_samples` blocks are remembered, at about 150 bytes each. When there are more, fewer
    are sampled from then on, so a window with a tenth of the busiest one's blocks has a tenth of
    the samples. Counts take 200 kB.
    """

    def __init__(self, block_size: int, window_s: float, max_samples: int = 8192) -> None:
        self.window_s = window_s
        self._block_size = block_size
        self._head_blocks = _HEAD_TOKENS // block_size
        self._max_samples = max_samples
        self._below = (1 << 64) - 1
        self._next = 0
        self._positions: dict[int, int] = {}
        """Sampled blocks and when each was last used, counted in uses; the oldest first."""
        self._order = np.empty(0, np.int64)
        """The same positions."""
        self._window: deque[_Counts] = deque()
        self._began_at_s = math.inf

    def __len__(self) -> int:
        """How many blocks are remembered."""
        return len(self._positions)

    def add(self, hashes: NDArray[np.uint64], prompt_tokens: int, now_s: float) -> None:
        """Note that a prompt of these full blocks is computed, in the order of time."""
        self._began_at_s = min(self._began_at_s, now_s)
        counts = self._counts(now_s)
        counts.prompt_tokens += prompt_tokens
        head = min(len(hashes), self._head_blocks)
        counts.blocks += head, len(hashes) - head
        sampled = np.flatnonzero(hashes < self._below)
        if not len(sampled):
            return
        stands_for = 2.0**64 / self._below
        is_rest = (sampled >= head).astype(np.int64)
        np.add.at(counts.sampled_blocks, is_rest, stands_for)
        blocks: list[int] = hashes[sampled].tolist()
        positions = self._positions
        used_at = np.array([positions.pop(block, _NEVER) for block in blocks])
        reused = used_at != _NEVER
        ranks = np.searchsorted(self._order, used_at[reused])
        sizes = 1 + (len(self._order) - 1 - ranks) * stands_for
        bins = (np.log2(sizes) * _BINS_PER_OCTAVE).astype(np.int64)
        np.add.at(counts.hits, (is_rest[reused], bins), stands_for)
        end = self._next + len(blocks)
        positions.update(zip(reversed(blocks), range(self._next, end), strict=True))
        self._order = np.append(np.delete(self._order, ranks), np.arange(self._next, end))
        self._next = end
        if len(positions) > self._max_samples:
            self._sample_less()

    def curve(self, now_s: float) -> ReuseCurve:
        """Return the curve of the last `window_s`, to a twentieth of it."""
        self._counts(now_s)
        blocks = sum((one.blocks for one in self._window), np.zeros(2))
        sampled_blocks = sum((one.sampled_blocks for one in self._window), np.zeros(2))
        hits = sum((one.hits for one in self._window), np.zeros((2, _BINS)))
        hit_blocks = blocks / np.maximum(sampled_blocks, 1) @ np.cumsum(hits, axis=1)
        return ReuseCurve(
            sizes_tokens=_EDGES_BLOCKS * self._block_size,
            hit_tokens=np.concatenate([[0.0], hit_blocks]) * self._block_size,
            prompt_tokens=sum(one.prompt_tokens for one in self._window),
            span_s=max(
                0.0, now_s - max(self._began_at_s, self._window[0].slot * self.window_s / _SLOTS)
            ),
        )

    def _counts(self, now_s: float) -> _Counts:
        """Return the part of the window that is now; let go of what left it."""
        slot = int(now_s * _SLOTS / self.window_s)
        window = self._window
        if not window or window[-1].slot != slot:
            window.append(_Counts(slot, self._next))
            while window[0].slot <= slot - _SLOTS:
                window.popleft()
            oldest = window[0].first_position
            self._keep({block: at for block, at in self._positions.items() if at >= oldest})
        return window[-1]

    def _sample_less(self) -> None:
        kept = int(self._max_samples * _KEPT_RATIO)
        blocks = np.fromiter(self._positions, np.uint64, len(self._positions))
        below = self._below = int(np.partition(blocks, kept)[kept])
        self._keep({block: at for block, at in self._positions.items() if block < below})

    def _keep(self, positions: dict[int, int]) -> None:
        self._positions = positions
        self._order = np.fromiter(positions.values(), np.int64, len(positions))

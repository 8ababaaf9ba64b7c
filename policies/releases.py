"""When running requests will release their memory, by how long they have held it already."""

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

_RECENT_HOLDS = 256
_LEAST_HOLDS = 16
"""From so many on they say more than the mean that a replica reports."""

_LEAST_S = 0.1
"""No request is expected to end within less."""


@dataclass(frozen=True, slots=True)
class Release:
    """A running request is expected to release its blocks in so many seconds."""

    remaining_s: float
    blocks: int


class HoldTimes:
    """How long recent requests of the fleet held their memory, in seconds.

    A few hold it ten times as long as most: the longer one has held it, the longer it still will.
    """

    def __init__(self) -> None:
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []
        self._sums: list[float] | None = None

    def add(self, hold_s: float) -> None:
        """Note that a request is done."""
        if len(self._recent) == _RECENT_HOLDS:
            del self._sorted[bisect_right(self._sorted, self._recent.popleft()) - 1]
        self._recent.append(hold_s)
        insort(self._sorted, hold_s)
        self._sums = None

    def remaining_s(self, held_s: float, usual_s: float) -> float:
        """Return how much longer one that has held its memory for `held_s` will, on average.

        It is the mean of those that held theirs for longer; `usual_s` while few are known.
        """
        known = len(self._sorted)
        if known < _LEAST_HOLDS:
            return usual_s
        if self._sums is None:
            self._sums = [0.0, *accumulate(self._sorted)]
        longer = known - bisect_right(self._sorted, held_s)
        if not longer:
            return self._sorted[-1]
        mean_s = (self._sums[-1] - self._sums[known - longer]) / longer
        return max(_LEAST_S, mean_s - held_s)


def wait_s(releases: Sequence[Release], missing_blocks: int) -> tuple[float, int]:
    """Return the seconds until requests have released what is missing, and what they never will.

    As if each ended at random, at a constant rate: the first of several that remain ends after
    1 / (the sum of 1 / remaining_s) on average. They are taken to end in the order of
    `remaining_s`.
    """
    latest_first = sorted(releases, key=lambda release: -release.remaining_s)
    rates = list(accumulate(1 / release.remaining_s for release in latest_first))
    seconds, left = 0.0, missing_blocks
    while left > 0 and rates:
        seconds += 1 / rates.pop()
        left -= latest_first.pop().blocks
    return seconds, max(0, left)

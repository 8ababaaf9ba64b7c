"""Small numbers for block hashes, as recorded sessions name their blocks."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from serve_app.recorded_turn import Hashes

Ids = NDArray[np.int64]


class BlockNames:
    """Numbers blocks in the order in which they are met, and knows whose they are."""

    def __init__(self) -> None:
        self._ids: dict[int, int] = {}
        self._owners: list[str | None] = []
        """By id; None where several sessions have it."""

    def of(self, session: str, hashes: Hashes) -> Ids:
        """Return the ids of a session's blocks."""
        found = np.empty(len(hashes), np.int64)
        for position, block in enumerate(hashes.tolist()):
            number = self._ids.setdefault(block, len(self._owners))
            if number == len(self._owners):
                self._owners.append(session)
            elif self._owners[number] != session:
                self._owners[number] = None
            found[position] = number
        return found

    def unknown(self, session: str, count: int) -> Ids:
        """Return ids for blocks that are like no others."""
        first = len(self._owners)
        self._owners += [session] * count
        return np.arange(first, first + count)

    def common_first(self) -> tuple[Ids, int]:
        """Return other ids, by these, so that those below a number are of several sessions."""
        is_common = np.array([owner is None for owner in self._owners], np.bool_)
        others = np.empty(len(is_common), np.int64)
        others[np.argsort(~is_common, kind="stable")] = np.arange(len(is_common))
        return others, int(is_common.sum())


def runs_of(ids: Ids) -> tuple[range, ...]:
    """Return ids as runs of numbers that follow each other."""
    edges = np.flatnonzero(np.diff(ids) != 1) + 1
    return tuple(range(int(run[0]), int(run[-1]) + 1) for run in np.split(ids, edges) if len(run))


def ids_of(runs: Iterable[range]) -> Ids:
    """Return the ids of runs."""
    return np.concatenate(
        [np.empty(0, np.int64), *(np.arange(run.start, run.stop) for run in runs)]
    )

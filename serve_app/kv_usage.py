"""The bytes that files of KV take in one directory, counted over all processes that write there.

They are spread over 256 shards by the first byte of their names, which is a hash's, and counted
shard by shard: so a sweep can count one anew without reading the others.
"""

import os
from collections.abc import Mapping
from enum import Enum, auto
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from serve_app.file_lock import locked

SHARDS = 256
USAGE = "usage"

UNKNOWN = -1
"""What is counted of a shard whose files nobody has counted yet."""

_NUMBER = np.dtype("<i8")


class Room(Enum):
    """What a reservation finds."""

    NONE = auto()
    SCARCE = auto()
    """It was made, and it's time to make room for the next ones."""

    PLENTY = auto()


class KvUsage:
    """Numbers in a file of `root`, behind a lock. For any thread of any process.

    A writer first makes its file, in full size and under another name, then reserves the bytes: so
    whoever counts a shard anew sees all that is reserved. Too much is counted after a writer died
    and when two write the same file, until the shard is counted next.

    All methods raise OSError where the directory is gone, full or not writable.
    """

    def __init__(self, root: Path) -> None:
        self._path = root / USAGE

    def reserve(self, shard: int, num_bytes: int, scarce_bytes: float, limit_bytes: int) -> Room:
        """Count this many bytes in, if that is no more than the limit in all.

        Beyond `scarce_bytes` room is scarce. There is none while a shard is unknown.
        """
        with locked(self._path) as file:
            assert file is not None
            numbers = _read(file)
            total = total_bytes(numbers)
            if total is None or total + num_bytes > limit_bytes:
                return Room.NONE
            _write(file, shard, int(numbers[shard]) + num_bytes)
            return Room.SCARCE if total + num_bytes > scarce_bytes else Room.PLENTY

    def release(self, shard: int, num_bytes: int) -> None:
        """Count out what was reserved and not written, or is gone."""
        with locked(self._path) as file:
            assert file is not None
            number = int(_read(file)[shard])
            if number != UNKNOWN:
                _write(file, shard, max(0, number - num_bytes))

    def read(self) -> NDArray[np.int64]:
        """Return the bytes by shard."""
        with locked(self._path) as file:
            assert file is not None
            return _read(file)

    def correct(self, counted: Mapping[int, int], before: NDArray[np.int64]) -> None:
        """Set what was counted of shards, where `before` is what `read` gave at the beginning.

        What was reserved since then counts on top: it may have been seen, or not.
        """
        with locked(self._path) as file:
            assert file is not None
            numbers = _read(file)
            for shard, number in counted.items():
                _write(file, shard, number + max(0, int(numbers[shard] - before[shard])))


def total_bytes(numbers: NDArray[np.int64]) -> int | None:
    """Return the sum over all shards, or None where one is unknown."""
    return None if (numbers == UNKNOWN).any() else sum(numbers.tolist())  # of any size


def _read(file: int) -> NDArray[np.int64]:
    content = os.pread(file, SHARDS * _NUMBER.itemsize, 0)
    if len(content) < SHARDS * _NUMBER.itemsize:
        unknown = np.full(SHARDS, UNKNOWN, _NUMBER)
        os.pwrite(file, unknown.tobytes(), 0)
        return unknown
    numbers = np.frombuffer(content, _NUMBER)
    return np.where(numbers < 0, UNKNOWN, numbers)


def _write(file: int, shard: int, number: int) -> None:
    os.pwrite(file, np.array(number, _NUMBER).tobytes(), shard * _NUMBER.itemsize)

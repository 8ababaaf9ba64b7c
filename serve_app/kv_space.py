"""The room that files of KV take in one directory, bounded over all processes that write there.

The directory has `<namespace>.kv/<two hex digits>/<hex digits>.kv`, a file with the bytes in use,
and one that is locked by who removes files. Nothing else in it is ever touched.
"""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from serve_app.file_lock import locked
from serve_app.kv_shard import ShardFile, remove_oldest, shard_files
from serve_app.kv_usage import SHARDS, KvUsage, Room, total_bytes

SWEEPER = "sweeper"

SWEEP_RATIO = 0.95
"""The share of the limit from which on a writer looks for files to remove."""

SWEPT_RATIO = 0.85
"""The share of the limit to which a sweep brings the files that it looks at: so each file is looked
at once per tenth of the limit that is written."""

SAMPLE_FILES = 2000
"""How many files a sweep compares at least, if there are as many: the oldest tenth of these go,
which are not all among the oldest tenth of the directory, but nearly."""


class KvSpace:
    """Counts and bounds the bytes in use under `root`. For any thread of any process.

    Names are hashes, so a shard's files are as old as all files are. A sweep looks at as many
    shards as it needs, and the next one goes on where it ended, whichever process makes it. Only
    when the count is lost is the whole directory read.
    """

    def __init__(self, root: Path, limit_bytes: int) -> None:
        self._root = root
        self._limit_bytes = limit_bytes
        self._usage = KvUsage(root)

    def reserve(self, shard: int, num_bytes: int) -> Room:
        """Count this many bytes in, if they fit. Their file must be there, as `KvUsage` says.

        Raises:
            OSError: the directory is gone, full or not writable.
        """
        scarce_bytes = SWEEP_RATIO * self._limit_bytes
        return self._usage.reserve(shard, num_bytes, scarce_bytes, self._limit_bytes)

    def release(self, shard: int, num_bytes: int) -> None:
        """Count out what was reserved and not written, or is gone; OSError as `reserve`."""
        self._usage.release(shard, num_bytes)

    def make_room(
        self, num_bytes: int, noted_ns: Callable[[str], int], *, wait: bool
    ) -> list[Path]:
        """Remove files unused for long until so many bytes fit; return those removed.

        `noted_ns` says when a path was used whose file doesn't tell yet. While another one makes
        room this waits for it, or does nothing.

        Raises:
            OSError: as `reserve`.
        """
        most_bytes = self._limit_bytes - num_bytes
        removed: list[Path] = []
        if most_bytes < 0:
            return removed
        with locked(self._root / SWEEPER, wait=wait) as sweeper:
            visited = 0
            # Once around to count what is unknown, and once to remove.
            while sweeper is not None and visited < 2 * SHARDS:
                numbers = self._usage.read()
                total = total_bytes(numbers)
                if total is not None and total <= min(most_bytes, SWEEP_RATIO * self._limit_bytes):
                    break
                files, shards = self._sample(_next_shard(sweeper))
                files = [_used_at(file, noted_ns(file.path)) for file in files]
                kept_bytes = min(most_bytes, SWEPT_RATIO * self._limit_bytes)
                # More than is there may be counted, and then too many files would go.
                there_bytes = sum(file.num_bytes for file in files) * SHARDS / len(shards)
                all_bytes = 0 if total is None else min(total, there_bytes)
                gone = remove_oldest(files, kept_bytes / all_bytes if all_bytes else 1.0)
                self._usage.correct(_bytes_left(shards, files, gone), numbers)
                _set_next_shard(sweeper, (shards[-1] + 1) % SHARDS)
                removed += [Path(file.path) for file in gone]
                visited += len(shards)
        return removed

    def _sample(self, first: int) -> tuple[list[ShardFile], list[int]]:
        """Return enough files, from a shard on, and the shards that they are all of."""
        files: list[ShardFile] = []
        shards: list[int] = []
        while len(shards) < SHARDS and len(files) < SAMPLE_FILES:
            shards.append((first + len(shards)) % SHARDS)
            files += shard_files(self._root, shards[-1])
        return files, shards


def _used_at(file: ShardFile, noted_at_ns: int) -> ShardFile:
    return file if noted_at_ns <= file.used_at_ns else file._replace(used_at_ns=noted_at_ns)


def _bytes_left(shards: list[int], files: list[ShardFile], gone: list[ShardFile]) -> Counter[int]:
    left = Counter(dict.fromkeys(shards, 0))
    for file in files:
        left[file.shard] += file.num_bytes
    for file in gone:
        left[file.shard] -= file.num_bytes
    return left


def _next_shard(sweeper: int) -> int:
    return (os.pread(sweeper, 1, 0) or b"\0")[0]


def _set_next_shard(sweeper: int, shard: int) -> None:
    os.pwrite(sweeper, bytes([shard]), 0)

"""The room that files of KV take in one directory, bounded over all processes that write there.

The directory has `<namespace>.kv/<two hex digits>/<hex digits>.kv`, a file with the number of bytes
in use, and one that is locked by who removes files. Nothing else in it is ever touched.

The number is a little too high after a writer died and whenever two write the same file; each
sweep counts anew.
"""

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from serve_app.kv_file import TEMPORARY

FILE_NAME = re.compile(r"([0-9a-f]{2}){4,64}\.kv")
NAMESPACE_SUFFIX = ".kv"
USAGE = "usage"
SWEEPER = "sweeper"

SWEEP_RATIO = 0.95
"""The share of the limit from which on a writer looks for files to remove."""

SWEPT_RATIO = 0.85
"""The share of the limit that a sweep leaves: it reads the whole directory, so it makes room for
a tenth of the limit at a time."""

ENOUGH_RATIO = 0.9
"""The share of the limit below which nobody sweeps, as another one just did."""

TEMPORARY_AGE_S = 3600
"""Age at which a file that is still being written is taken for a dead writer's."""


class KvSpace:
    """Counts and bounds the bytes in use under `root`. For any thread of any process."""

    def __init__(self, root: Path, limit_bytes: int) -> None:
        self._root = root
        self._limit_bytes = limit_bytes

    def reserve(self, num_bytes: int) -> bool:
        """Count this many bytes in, if they fit; False if a sweep is needed first.

        Raises:
            OSError: the directory is gone, full or not writable.
        """
        with self._usage() as file:
            used = _number(file)
            if used is None or used + num_bytes > self._limit_bytes:
                return False
            _set_number(file, used + num_bytes)
            return True

    def release(self, num_bytes: int) -> None:
        """Count out what was reserved and not written, or is gone; OSError as `reserve`."""
        with self._usage() as file:
            used = _number(file)
            if used is not None:
                _set_number(file, max(0, used - num_bytes))

    def is_nearly_full(self) -> bool:
        """Tell whether a sweep is due; OSError as `reserve`."""
        with self._usage() as file:
            used = _number(file)
        return used is None or used > SWEEP_RATIO * self._limit_bytes

    def sweep(self, *, wait: bool) -> list[Path]:
        """Remove the files unused longest if room is short; return those removed.

        While another one sweeps this waits for it, or does nothing.

        Raises:
            OSError: as `reserve`.
        """
        how = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
        with _locked(self._root / SWEEPER, how) as lock:
            if lock is None:
                return []
            with self._usage() as file:
                before = _number(file)
            if before is not None and before < ENOUGH_RATIO * self._limit_bytes:
                return []
            used_at_ns, sizes = self._measure()
            total = int(sizes.sum())
            removed: list[Path] = []
            if total > SWEPT_RATIO * self._limit_bytes:
                order = np.argsort(used_at_ns, kind="stable")
                kept = total - np.cumsum(sizes[order])
                enough = int(np.argmax(kept <= SWEPT_RATIO * self._limit_bytes))
                removed, freed = self._remove(int(used_at_ns[order[enough]]))
                total -= freed
            with self._usage() as file:
                # Others have written meanwhile.
                _set_number(file, total + max(0, (_number(file) or 0) - (before or 0)))
            return removed

    def _measure(self) -> tuple[np.ndarray, np.ndarray]:
        """Return modification times in ns and sizes of all files; remove those of dead writers."""
        times: list[int] = []
        sizes: list[int] = []
        dead_ns = time.time_ns() - TEMPORARY_AGE_S * 10**9
        for entry in self._entries():
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if entry.name.endswith(TEMPORARY) and status.st_mtime_ns < dead_ns:
                    with suppress(OSError):
                        Path(entry.path).unlink()
                        continue
                times.append(status.st_mtime_ns)
                sizes.append(status.st_size)
        return np.array(times, np.int64), np.array(sizes, np.int64)

    def _remove(self, used_at_ns: int) -> tuple[list[Path], int]:
        """Remove the files not used since then that may be; return them and their bytes."""
        removed: list[Path] = []
        freed = 0
        for entry in self._entries():
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if status.st_mtime_ns <= used_at_ns and FILE_NAME.fullmatch(entry.name):
                    Path(entry.path).unlink()
                    freed += status.st_size
                    removed.append(Path(entry.path))
        return removed, freed

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        """Yield the files of KV, and those being written."""
        for namespace in _directories(self._root):
            if namespace.name.endswith(NAMESPACE_SUFFIX):
                for shard in _directories(namespace.path):
                    with suppress(FileNotFoundError), os.scandir(shard.path) as entries:
                        for entry in entries:
                            if FILE_NAME.fullmatch(entry.name) or entry.name.endswith(TEMPORARY):
                                yield entry

    @contextmanager
    def _usage(self) -> Iterator[int]:
        with _locked(self._root / USAGE, fcntl.LOCK_EX) as file:
            assert file is not None
            yield file


def _directories(path: str | Path) -> list[os.DirEntry[str]]:
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(path) as entries:
        return [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
    return []


@contextmanager
def _locked(path: Path, how: int) -> Iterator[int | None]:
    """Hold a lock that ends with its holder; give None where it would have to be waited for."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, how)
        except BlockingIOError:
            yield None
            return
        yield file
    finally:
        os.close(file)


def _number(file: int) -> int | None:
    try:
        return int(os.pread(file, 20, 0))
    except ValueError:
        return None


def _set_number(file: int, number: int) -> None:
    os.pwrite(file, b"%020d" % number, 0)

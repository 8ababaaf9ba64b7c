"""A file of lines that has a bound and outlives its writer. Every method may block."""

import errno
import fcntl
import os
from pathlib import Path


class RecordFile:
    """Appends to `path`, at most about `max_bytes` of it in all.

    At half of that the file becomes `path` with `.1` behind it, in place of the one before, and a
    new one begins; while it cannot, nothing is written. Nobody but its user may read it. One
    process writes it at a time.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._older = path.with_name(f"{path.name}.1")
        self._max_bytes = max(1, max_bytes // 2)
        self._file: int | None = None
        self._size_bytes = 0

    def prepare(self) -> bool:
        """Be ready for a line; return whether lines before it may be another process's or gone.

        Raises:
            OSError: it cannot be written. The next call tries again.
        """
        try:
            began = self._file is None or not self._is_in_place(self._file)
            if began:
                self._open()
            if self._size_bytes >= self._max_bytes:
                self._path.replace(self._older)
                self._open()
                began = True
        except OSError:
            self.close()  # what it is of may not come back
            raise
        return began

    def append(self, line: bytes) -> None:
        """Write a line, which has no line break, once `prepare` was called.

        Raises:
            OSError: it is not written, or not whole. The next call of `prepare` begins a new line.
        """
        assert self._file is not None
        try:
            _write(self._file, line + b"\n")
        except OSError:
            self.close()
            raise
        self._size_bytes += len(line) + 1

    def close(self) -> None:
        """Let go of the file; `prepare` opens it again."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _open(self) -> None:
        """Open the file of this name in place of the one that is open."""
        self.close()
        self._file = file = os.open(
            self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OSError(errno.EBUSY, "another process records here", str(self._path)) from error
        self._size_bytes = os.fstat(file).st_size
        if self._size_bytes and os.pread(file, 1, self._size_bytes - 1) != b"\n":
            _write(file, b"\n")  # who wrote before did not end
            self._size_bytes += 1

    def _is_in_place(self, file: int) -> bool:
        """Tell whether nobody moved, removed or cut it."""
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(os.fstat(file), there) and there.st_size == self._size_bytes


def _write(file: int, content: bytes) -> None:
    """Write all of it."""
    left = memoryview(content)
    while left:
        left = left[os.write(file, left) :]

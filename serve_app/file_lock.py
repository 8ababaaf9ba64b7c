"""Locks between processes that end with whoever holds them."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[int | None]:
    """Hold the lock of a file, made if it's missing, and give its descriptor.

    Without `wait` None is given where it would have to be waited for.

    Raises:
        OSError: its directory is gone or not writable.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        yield file
    finally:
        os.close(file)

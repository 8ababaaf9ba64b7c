"""One block of KV in a file that proves whose it is and that it is whole.

A file is a header and the KV. The header has the format and its version, the namespace (what else
must be equal for this KV to be usable), the block's key, the KV's length and its BLAKE3 hash. A
reader computes the header that it wants, from what it read, and takes only a file with exactly
that one: anything else is damage.
"""

import io
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import numpy as np
from blake3 import blake3

HEADER = struct.Struct("<16s32s64sQ32s")
MAGIC = b"warmturn-kv".ljust(15, b"\0") + b"\x01"
"""What a file begins with; the last byte is the format's version."""

TEMPORARY = ".tmp"
"""How names of files end that are still being written, or whose writer died."""


class DamagedFileError(Exception):
    """The file is not, or no longer, what was once written for this block."""


def header(namespace: bytes, key: bytes, payload: bytes | memoryview) -> bytes:
    """Return what stands before `payload`; `namespace` has 32 bytes, `key` at most 64."""
    return HEADER.pack(MAGIC, namespace, key, len(payload), blake3(payload).digest())


@contextmanager
def placed(path: Path, num_bytes: int) -> Iterator[int]:
    """Give a new file of that size, which is put in place at the end, at once and as a whole.

    Until then it has another name; whoever else writes the same does not matter. It's not forced
    to disk: what a crash of the machine leaves of it is damage to the next reader.

    Raises:
        OSError: nothing was put in place, as after any other exception.
    """
    temporary = path.with_name(f".{path.name}.{uuid4().hex}{TEMPORARY}")
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.truncate(file, num_bytes)
            yield file
        finally:
            os.close(file)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def final_name(temporary: str) -> str:
    """Return what a file is called once it's in place."""
    return temporary[1:].removesuffix(TEMPORARY).rpartition(".")[0]


def write(
    file: int, namespace: bytes, key: bytes, payload: bytes | memoryview, used_at_ns: int
) -> None:
    """Fill a `placed` file, which has room for the header and the payload.

    `used_at_ns` becomes its modification time. Raises OSError.
    """
    _write_all(file, header(namespace, key, payload))
    _write_all(file, payload)
    os.utime(file, ns=(used_at_ns, used_at_ns))


def read(path: Path, namespace: bytes, key: bytes, payload_bytes: int) -> memoryview:
    """Return the KV that was written under this namespace and key.

    Raises:
        DamagedFileError: it's something else.
        OSError: there is no such file, or it cannot be read.
    """
    # Not to wait for the other end of what may be a pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with io.FileIO(descriptor) as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size != HEADER.size + payload_bytes:
            raise DamagedFileError(f"{path}: {status.st_size} bytes, or no regular file")
        found = file.read(HEADER.size)
        view = payload = np.empty(payload_bytes, np.uint8).data
        while view and (count := file.readinto(view)):
            view = view[count:]
    if view or found != header(namespace, key, payload):
        raise DamagedFileError(f"{path}: not what was written")
    return payload


def _write_all(file: int, content: bytes | memoryview) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]

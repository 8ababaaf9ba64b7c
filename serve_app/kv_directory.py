"""Blocks of KV in files of a directory that several engines read and write."""

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from serve_app import kv_file
from serve_app.kv_file import DamagedFileError
from serve_app.kv_shard import NAMESPACE_SUFFIX, block_file, block_of
from serve_app.kv_space import KvSpace
from serve_app.kv_usage import Room
from serve_app.kv_uses import KvUses, mark_file


class NoRoomError(OSError):
    """The limit is reached, and nothing was left to remove."""


class Swept(NamedTuple):
    """Files that this process removed to make room, and the blocks of this namespace in them."""

    num_files: int
    keys: list[bytes]


class KvDirectory:
    """The blocks of one namespace, each with `payload_bytes` of KV. For any thread.

    A block's key is whatever names it; its last four bytes only tell groups apart.
    """

    def __init__(self, root: Path, namespace: str, payload_bytes: int, limit_bytes: int) -> None:
        """Use `root`, which is made if it can be; `namespace` begins with a name for people."""
        self._root = root
        self._device: int | None = None
        self._digest = hashlib.sha256(namespace.encode()).digest()
        name = "".join(c if c.isalnum() else "-" for c in namespace.split("\n")[0])[-40:]
        self.path = root / f"{name}-{self._digest[:8].hex()}{NAMESPACE_SUFFIX}"
        self._payload_bytes = payload_bytes
        self._file_bytes = kv_file.HEADER.size + payload_bytes
        self._space = KvSpace(root, limit_bytes)
        self.swept: SimpleQueue[Swept] = SimpleQueue()
        """What sweeps of this process removed."""
        self.uses = KvUses(self.path)

    def open(self) -> None:
        """Make the directory if it's not there; OSError if that cannot be.

        It's used only as long as it is on the file system where it is now: once that is no longer
        mounted, the same path is a directory of the disk below.
        """
        self._root.mkdir(0o700, parents=True, exist_ok=True)
        self._device = self._root.stat().st_dev

    def has(self, keys: Iterable[bytes]) -> list[bool]:
        """Tell which blocks are there, by name alone."""
        return list(self._are_there(keys))

    def num_leading(self, keys: Iterable[bytes]) -> int:
        """Return how many blocks are there before the first that isn't; look for no others."""
        return sum(takewhile(bool, self._are_there(keys)))

    def load(self, key: bytes, used_at_ns: int) -> memoryview:
        """Return a block's KV, and mark it as used.

        Raises:
            DamagedFileError: there was something else, which was removed.
            OSError: there is none, or it cannot be read.
        """
        self._check_device()
        path = self._file(key)
        try:
            payload = kv_file.read(path, self._digest, key, self._payload_bytes)
        except DamagedFileError:
            with suppress(OSError):
                there_bytes = path.lstat().st_size
                path.unlink()
                # A sweep counted what is there, a writer the whole: the less, so that it fits.
                self._space.release(key[0], min(there_bytes, self._file_bytes))
            raise
        mark_file(path, used_at_ns)
        return payload

    def store(self, key: bytes, payload: bytes | memoryview, used_at_ns: int) -> None:
        """Keep a block's KV; one that is there already is only marked as used.

        Raises:
            OSError: it isn't kept: no room, no permission, no directory.
        """
        self._check_device()
        path = self._file(key)
        if mark_file(path, used_at_ns):
            return
        try:
            room = self._place(path, key, payload, used_at_ns)
        except NoRoomError:
            self._make_room(wait=True)
            room = self._place(path, key, payload, used_at_ns)
        if room is Room.SCARCE:
            with suppress(OSError):  # It is kept. Who finds no room at all says why.
                self._make_room(wait=False)

    def _place(self, path: Path, key: bytes, payload: bytes | memoryview, used_at_ns: int) -> Room:
        try:
            return self._write(path, key, payload, used_at_ns)
        except FileNotFoundError:
            # Not the root: where a file system was mounted, nothing must go in its place.
            for directory in (self.path, path.parent):
                with suppress(FileExistsError):
                    directory.mkdir(0o700)
            return self._write(path, key, payload, used_at_ns)

    def _write(self, path: Path, key: bytes, payload: bytes | memoryview, used_at_ns: int) -> Room:
        """Write a block's file, and return how much room there was."""
        room = Room.NONE
        try:
            with kv_file.placed(path, self._file_bytes) as file:
                room = self._reserve(key)
                kv_file.write(file, self._digest, key, payload, used_at_ns)
        except BaseException:
            if room is not Room.NONE:
                with suppress(OSError):
                    self._space.release(key[0], self._file_bytes)
            raise
        return room

    def _reserve(self, key: bytes) -> Room:
        room = self._space.reserve(key[0], self._file_bytes)
        if room is Room.NONE:
            raise NoRoomError(f"{self._root} is full")
        return room

    def _are_there(self, keys: Iterable[bytes]) -> Iterator[bool]:
        try:
            self._check_device()
        except OSError:
            yield from (False for _ in keys)
            return
        for key in keys:
            # It takes any error for a no, and many blocks at a time.
            yield os.path.exists(block_file(self.path, key))  # noqa: PTH110

    def _check_device(self) -> None:
        """Raise OSError unless the root is on the file system where it was opened."""
        if self._root.stat().st_dev != self._device:
            message = "on another file system than when it was opened, if it was"
            raise OSError(errno.ENODEV, message, str(self._root))

    def _make_room(self, *, wait: bool) -> None:
        removed = self._space.make_room(self._file_bytes, self.uses.noted_ns, wait=wait)
        if removed:
            ours = [block_of(str(path)) for path in removed if path.parents[1] == self.path]
            self.swept.put(Swept(len(removed), [key for key in ours if key]))

    def _file(self, key: bytes) -> Path:
        return Path(block_file(self.path, key))

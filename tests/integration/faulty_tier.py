"""The shared tier with faults of the disk that a test switches on, in the engine's process."""

import errno
import time
from collections.abc import Iterable
from pathlib import Path

from policies import fetch_patience
from serve_app.kv_directory import KvDirectory
from serve_app.shared_tier import SharedFsTier

FAULT = "fault"
SLOW = "slow"
FULL = "full"
WRONG = "wrong"
SLOW_S = 10.0

fetch_patience.GRACE_S = 0.5  # a pause of a busy machine is no slow disk


class FaultyDirectory(KvDirectory):
    """A directory that does what the file `fault` beside it says; it's well without one."""

    def _fault(self) -> str:
        try:
            return (self.path.parents[1] / FAULT).read_text()
        except FileNotFoundError:
            return ""

    def _wait(self) -> None:
        until_s = time.monotonic() + SLOW_S
        while self._fault() == SLOW and time.monotonic() < until_s:
            time.sleep(0.01)

    def has(self, keys: Iterable[bytes]) -> list[bool]:
        """Answer late when slow."""
        found = super().has(keys)
        self._wait()
        return found

    def num_leading(self, keys: Iterable[bytes]) -> int:
        """Answer late when slow."""
        leading = super().num_leading(keys)
        self._wait()
        return leading

    def load(self, key: bytes, used_at_ns: int) -> memoryview:
        """Read late when slow, and something else when wrong, which no checksum finds."""
        self._wait()
        payload = super().load(key, used_at_ns)
        half = len(payload) // 2
        exchanged = memoryview(bytes(payload[half:]) + bytes(payload[:half]))
        return exchanged if self._fault() == WRONG else payload

    def store(self, key: bytes, payload: bytes | memoryview, used_at_ns: int) -> None:
        """Write late when slow, nothing when full."""
        self._wait()
        if self._fault() == FULL:
            raise OSError(errno.ENOSPC, "No space left on device", str(Path(self.path)))
        super().store(key, payload, used_at_ns)


class FaultyTier(SharedFsTier):
    """The tier on such a directory."""

    directory_type = FaultyDirectory

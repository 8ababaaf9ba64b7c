"""When blocks of one namespace were used: what their files say, and what will be written there."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from serve_app.kv_shard import block_file, block_of

TOUCH_NS = 10 * 10**9
"""How much earlier than it was a block may seem to have been used."""


class KvUses:
    """Marks blocks as used, which takes a while where they are many. For any thread.

    Until then what was noted of them is known in this process.
    """

    def __init__(self, namespace: Path) -> None:
        self._namespace = namespace
        self._noted_at_ns: dict[bytes, int] = {}

    def note(self, used_at_ns: Mapping[bytes, int]) -> None:
        """Know that blocks were used until `mark` writes it down."""
        self._noted_at_ns.update(used_at_ns)

    def mark(self, used_at_ns: Mapping[bytes, int]) -> None:
        """Mark those blocks as used that are there and were not for a while."""
        for key, time_ns in used_at_ns.items():
            path = block_file(self._namespace, key)
            with suppress(OSError):
                if os.lstat(path).st_mtime_ns < time_ns - TOUCH_NS:
                    mark_file(path, time_ns)
            if self._noted_at_ns.get(key) == time_ns:  # else it was used once more
                self._noted_at_ns.pop(key, None)

    def noted_ns(self, path: str) -> int:
        """Return when a block was used whose file doesn't say so yet; 0 for any other file."""
        if not self._noted_at_ns or not path.startswith(f"{self._namespace}/"):
            return 0
        key = block_of(path)
        return 0 if key is None else self._noted_at_ns.get(key, 0)


def mark_file(path: str | Path, used_at_ns: int) -> bool:
    """Have a file say that it was used then; False if there is none."""
    try:
        os.utime(path, ns=(used_at_ns, used_at_ns), follow_symlinks=False)
    except FileNotFoundError:
        return False
    except OSError:  # not ours to change; it's there all the same
        return os.path.lexists(path)
    return True

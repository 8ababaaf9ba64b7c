"""The block hashes that were written last of each session."""

from collections import OrderedDict

from serve_app.recorded_turn import NO_HASHES, Hashes, same_blocks

_SESSION_HASHES = 32
"""What a session costs besides, as so many hashes."""


class LastHashes:
    """At most `max_hashes`, at 8 bytes each: those of the sessions that wrote last."""

    def __init__(self, max_hashes: int) -> None:
        self._max_hashes = max_hashes
        self._hashes: OrderedDict[str, Hashes] = OrderedDict()
        self._count = 0

    def same_blocks(self, session: str, hashes: Hashes) -> int:
        """Return how many of the first ones are those of the session's last prompt."""
        return same_blocks(self._hashes.get(session, NO_HASHES), hashes)

    def put(self, session: str, hashes: Hashes) -> None:
        """Remember a prompt in place of the session's last one."""
        if session in self._hashes:
            self._count -= _cost(self._hashes.pop(session))
        self._hashes[session] = hashes
        self._count += _cost(hashes)
        while self._count > self._max_hashes:
            _, oldest = self._hashes.popitem(last=False)
            self._count -= _cost(oldest)

    def clear(self) -> None:
        """Forget all."""
        self._hashes.clear()
        self._count = 0


def _cost(hashes: Hashes) -> int:
    return len(hashes) + _SESSION_HASHES

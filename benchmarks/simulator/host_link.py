"""A replica's copies of KV from CPU memory, one request after another."""

from collections import deque
from math import inf

from benchmarks.simulator.running import Running


class HostLink:
    """Requests whose KV is copied, and after that those to be prefilled."""

    def __init__(self, tokens_per_s: float) -> None:
        self._tokens_per_s = tokens_per_s
        self._copying: deque[tuple[float, Running]] = deque()
        self._copied: deque[Running] = deque()
        self._free_at_s = 0.0

    def __len__(self) -> int:
        """How many requests it has."""
        return len(self._copying) + len(self._copied)

    @property
    def next_at_s(self) -> float:
        """When the next copy ends."""
        return self._copying[0][0] if self._copying else inf

    def copy(self, running: Running, now_s: float) -> None:
        """Copy what CPU memory has of a request's prompt, after the copies before it."""
        tokens = running.hit.restored_blocks * running.turn.request.block_size
        begin_s = max(self._free_at_s, now_s)
        self._free_at_s = begin_s + tokens / self._tokens_per_s
        self._copying.append((self._free_at_s, running))

    def complete(self) -> None:
        """End the copy that is due."""
        self._copied.append(self._copying.popleft()[1])

    def take(self) -> Running | None:
        """Return the next request to be prefilled, if its copy ended."""
        return self._copied.popleft() if self._copied else None

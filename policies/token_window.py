"""How many tokens came in the last while."""

from collections import deque

_SLOTS = 20
"""Parts of a window that are let go of one by one."""


class TokenWindow:
    """Sums over the last `window_s`, to a twentieth of it. Time only goes on."""

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._slots: deque[tuple[int, int]] = deque()
        self._began_at_s: float | None = None

    def add(self, tokens: int, now_s: float) -> None:
        """Add what comes now."""
        if self._began_at_s is None:
            self._began_at_s = now_s
        slot = self._slot(now_s)
        if self._slots and self._slots[-1][0] == slot:
            self._slots[-1] = slot, self._slots[-1][1] + tokens
        else:
            self._slots.append((slot, tokens))
            self._forget(slot)

    def total(self, now_s: float) -> int:
        """Return the sum."""
        self._forget(self._slot(now_s))
        return sum(tokens for _, tokens in self._slots)

    def span_s(self, now_s: float) -> float:
        """Return how long a time it is of: less than the window while that is a new one."""
        return 0.0 if self._began_at_s is None else min(self.window_s, now_s - self._began_at_s)

    def _slot(self, now_s: float) -> int:
        return int(now_s * _SLOTS / self.window_s)

    def _forget(self, newest: int) -> None:
        while self._slots and self._slots[0][0] <= newest - _SLOTS:
            self._slots.popleft()

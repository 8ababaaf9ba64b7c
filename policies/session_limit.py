"""How many sessions may run at a time: found by whether their turns still come in time.

It is found as TCP's CUBIC finds a rate. There is no limit until too many turns are late. Then it is
a little less than the sessions that run; from there it grows while others wait for a place, fast at
first, slowly from near the number at which turns were late. When replicas come or go it changes in
proportion.
"""

from collections import deque
from math import sqrt

_PERIOD_S = 10.0
"""How often it changes."""

_RECENT_TURNS = 128
_RECENT_S = 120.0
"""Turns that say how it goes: so many at most, and none older."""

_LEAST_TURNS = 16
"""Fewer say nothing."""

_SHRINK_RATIO = 0.05
_GROW_FAST_RATIO = 0.05
_GROW_RATIO = 0.01
_NEAR_RATIO = 0.9
"""From this share of the sessions at which turns were late it grows slowly."""

_USED_RATIO = 0.9
"""It is of no use if fewer run than this share of it, and nobody waits."""


class SessionLimit:
    """`sessions` may run; None while as many may as come."""

    def __init__(self) -> None:
        self.sessions: int | None = None
        self._turns: deque[tuple[float, bool]] = deque(maxlen=_RECENT_TURNS)
        self._late_at_sessions = 0.0
        self._replicas = 0
        self._judged_from_s = -_PERIOD_S
        self._changed_at_s = -_PERIOD_S

    def first_token(self, began_at_s: float, now_s: float, *, late: bool) -> None:
        """Note that a turn got its first token, and whether too late.

        Those that began before the limit last shrank, or before replicas came or went, say nothing.
        """
        if began_at_s >= self._judged_from_s:
            self._turns.append((now_s, late))

    def forget_turns(self) -> None:
        """Forget which turns were late, as from now on others are."""
        self._turns.clear()

    def late_ratio(self, now_s: float) -> float | None:
        """Return the share of late turns among the recent ones; None where these are too few."""
        while self._turns and now_s - self._turns[0][0] > _RECENT_S:
            self._turns.popleft()
        if len(self._turns) < _LEAST_TURNS:
            return None
        return sum(late for _, late in self._turns) / len(self._turns)

    def fit(self, replicas: int, now_s: float) -> None:
        """Change the limit with the number of replicas that take turns; none are no fleet."""
        before, self._replicas = self._replicas, replicas or self._replicas
        if before in (0, self._replicas):
            return
        self._judge_anew(now_s)
        if self.sessions is not None:
            ratio = self._replicas / before
            self.sessions = max(1, round(self.sessions * ratio))
            self._late_at_sessions *= ratio

    def adapt(self, running: int, waiting: int, most_late_ratio: float, now_s: float) -> None:
        """Change the limit, if it is time, by how it goes with so many sessions that run and wait.

        It ends when nobody waits and a tenth of it is not used, and at once if all may be late.
        """
        if most_late_ratio >= 1:
            self.sessions = None
        if now_s - self._changed_at_s < _PERIOD_S:
            return
        self._changed_at_s = now_s
        if self._are_late(most_late_ratio, now_s):
            self._shrink(running, now_s)
        elif self.sessions is None:
            return
        elif waiting:
            is_near = self.sessions >= _NEAR_RATIO * self._late_at_sessions
            ratio = _GROW_RATIO if is_near else _GROW_FAST_RATIO
            self.sessions += max(1, int(self.sessions * ratio))
        elif running < self.sessions * _USED_RATIO:
            self.sessions = None

    def _are_late(self, most_ratio: float, now_s: float) -> bool:
        """Tell whether more turns are late than that, by more than one standard deviation."""
        ratio = self.late_ratio(now_s)
        if ratio is None:
            return False
        return ratio > most_ratio + sqrt(most_ratio * (1 - most_ratio) / len(self._turns))

    def _shrink(self, running: int, now_s: float) -> None:
        late_at = running if self.sessions is None else min(self.sessions, running)
        self._late_at_sessions = late_at
        self.sessions = max(1, int(late_at * (1 - _SHRINK_RATIO)))
        self._judge_anew(now_s)

    def _judge_anew(self, now_s: float) -> None:
        self._judged_from_s = now_s
        self._turns.clear()

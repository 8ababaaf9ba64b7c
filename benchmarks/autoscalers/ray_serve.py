"""Ray Serve's own autoscaling: requests in progress, by a target for each replica.

Source: ray/serve/autoscaling_policy.py and config.py of 2.60: the mean of `look_back_s` (30) by
`target_ongoing` (shipped: 2), rounded up. It must be larger than what there is for 30 s to go up,
and smaller for 600 s to go down.
"""

import math
from collections import deque

from benchmarks.autoscalers.autoscaler import Blind, Target, View

_LOOK_BACK_S = 30.0
_UP_DELAY_S = 30.0
_DOWN_DELAY_S = 600.0


class RayServe(Blind):
    """Requests in progress."""

    def __init__(self, target_ongoing: float = 2.0) -> None:
        self._target_ongoing = target_ongoing
        self._samples: deque[tuple[float, int]] = deque()
        self._direction = 0
        self._since_s = 0.0

    def tick(self, view: View, now_s: float) -> Target:
        """Return how many replicas there should be."""
        self._samples.append((now_s, view.running + view.waiting))
        while self._samples[0][0] <= now_s - _LOOK_BACK_S:
            self._samples.popleft()
        ongoing = sum(requests for _, requests in self._samples) / len(self._samples)
        wanted = max(1, math.ceil(ongoing / self._target_ongoing))
        direction = (wanted > view.target) - (wanted < view.target)
        if direction != self._direction:
            self._direction, self._since_s = direction, now_s
        delay_s = _UP_DELAY_S if direction > 0 else _DOWN_DELAY_S
        if not direction or now_s - self._since_s < delay_s:
            return Target(view.target)
        self._direction = 0
        return Target(wanted)

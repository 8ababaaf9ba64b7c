"""What Kubernetes' HorizontalPodAutoscaler makes of a metric, with its shipped behaviour.

Source: kubernetes.io, "Horizontal Pod Autoscaling": within a tenth of the target nothing changes;
going up, at most the larger of twice as many and four more every 15 s; going down, to the largest
number that was wanted in the last 300 s. KEDA scales by such an autoscaler.
"""

import math
from collections import deque

from benchmarks.autoscalers.autoscaler import Blind, Target, View

_TOLERANCE_RATIO = 0.1
_CALM_S = 300.0


class Stabilised:
    """Lets a number fall only to the largest of the last 300 s."""

    def __init__(self) -> None:
        self._wanted: deque[tuple[float, int]] = deque()

    def largest(self, wanted: int, now_s: float) -> int:
        """Return the largest that was wanted lately."""
        self._wanted.append((now_s, wanted))
        while self._wanted[0][0] <= now_s - _CALM_S:
            self._wanted.popleft()
        return max(wanted for _, wanted in self._wanted)


class AverageValue(Blind):
    """As many replicas as give each of them `value` of a sum, at most."""

    def __init__(self, value: float) -> None:
        self._value = value
        self._stabilised = Stabilised()

    def metric(self, view: View) -> float:
        """Return the sum over all replicas."""
        raise NotImplementedError

    def tick(self, view: View, now_s: float) -> Target:
        """Return how many replicas there should be."""
        metric = self.metric(view)
        wanted = max(1, math.ceil(metric / self._value))
        if abs(metric / (self._value * view.target) - 1) <= _TOLERANCE_RATIO:
            wanted = view.target
        if wanted > view.target:
            wanted = min(wanted, max(2 * view.target, view.target + 4))
        largest = self._stabilised.largest(wanted, now_s)
        return Target(wanted if wanted > view.target else min(view.target, largest))


class KvUse(AverageValue):
    """KEDA on vLLM's KV use: `sum(vllm:kv_cache_usage_perc)`, 0.8 a replica."""

    def __init__(self, threshold: float = 0.8) -> None:
        super().__init__(threshold)

    def metric(self, view: View) -> float:
        """Return the sum of KV use."""
        return sum(view.kv_use_ratios)


class QueueLength(AverageValue):
    """vLLM production-stack's KEDA example: `vllm:num_requests_waiting`, 5 a replica."""

    def __init__(self, threshold: float = 5.0) -> None:
        super().__init__(threshold)

    def metric(self, view: View) -> float:
        """Return how many requests wait."""
        return view.waiting

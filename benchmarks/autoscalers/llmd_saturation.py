"""llm-d's Workload Variant Autoscaler, its saturation rule.

Source: llm-d/llm-d-workload-variant-autoscaler, docs/saturation-scaling-config.md and
docs/saturation-analyzer.md. A replica is saturated at a KV use of 0.80 or with 5 requests waiting.
One more is wanted if those that are not saturated have less than 0.10 and 3 to spare on average, or
if all are, unless one is starting; one less if the others could take over its load and would
still have that to spare. It decides once a minute, and Kubernetes' autoscaler obeys.
"""

from statistics import fmean

from benchmarks.autoscalers.autoscaler import Blind, Target, View
from benchmarks.autoscalers.kubernetes import Stabilised

_INTERVAL_S = 60.0
_KV_USE_RATIO, _KV_SPARE_RATIO = 0.80, 0.10
_QUEUE, _QUEUE_SPARE = 5.0, 3.0


class LlmdSaturation(Blind):
    """Room for one less, need of one more."""

    def __init__(self) -> None:
        self._stabilised = Stabilised()
        self._decided_at_s = -_INTERVAL_S

    def tick(self, view: View, now_s: float) -> Target:
        """Return how many replicas there should be."""
        if now_s - self._decided_at_s < _INTERVAL_S:
            return Target(view.target)
        self._decided_at_s = now_s
        wanted = view.target + self._step(view)
        largest = self._stabilised.largest(wanted, now_s)
        return Target(wanted if wanted > view.target else min(view.target, largest))

    def _step(self, view: View) -> int:
        at_router = len(view.router.waiting) / max(1, len(view.states))
        loads = [
            (kv_use, state.waiting + at_router)
            for kv_use, state in zip(view.kv_use_ratios, view.states, strict=True)
        ]
        free = [load for load in loads if load[0] < _KV_USE_RATIO and load[1] < _QUEUE]
        if not free or _is_short(fmean(kv for kv, _ in free), fmean(queue for _, queue in free)):
            return 0 if view.starting else 1
        others = len(loads) - 1
        if others < 1 or view.starting:
            return 0
        kv_use, queue = sum(kv for kv, _ in loads), sum(queue for _, queue in loads)
        return 0 if _is_short(kv_use / others, queue / others) else -1


def _is_short(kv_use_ratio: float, queue: float) -> bool:
    return _KV_USE_RATIO - kv_use_ratio < _KV_SPARE_RATIO or _QUEUE - queue < _QUEUE_SPARE

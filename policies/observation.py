"""What the autoscaler sees of a fleet and its traffic."""

from dataclasses import dataclass

from policies.fleet_load import FleetLoad
from policies.reuse_curve import ReuseCurve
from policies.types import ReplicaId
from policies.victims import Seat

_CHANCE_RATIO = 1.1
"""By how much a few minutes' traffic differs from that of a longer time without any reason."""


@dataclass(frozen=True, slots=True)
class Observation:
    """A fleet and its traffic as they are now.

    `seats` are the replicas that serve, the oldest first, those that drain among them; `busy` those
    of them that have requests. One replica holds `gpu_tokens` of KV in GPU memory and
    `cache_tokens` in all of its own tiers, each token counted once; the shared tier, which has what
    they hold and more, holds `shared_tokens`.
    `load` is the mean of the last minute, `usual_load` and `prompt_tokens_per_s` of some minutes,
    and `curve` is of a time that is long against the pauses of sessions.
    """

    seats: tuple[Seat, ...]
    busy: frozenset[ReplicaId]
    load: FleetLoad
    usual_load: FleetLoad
    prompt_tokens_per_s: float
    curve: ReuseCurve
    prefill_tokens_per_s: float
    gpu_tokens: int
    cache_tokens: int
    shared_tokens: int = 0

    @property
    def growth_ratio(self) -> float:
        """By how much sizes on the curve are to grow for when a new replica is up; from 0.5 to 2.

        With so many times as many sessions, so many times as much is used between two turns of one.
        What traffic grew since the middle of the curve's time it will grow again until then. More
        that may be chance does not count; less does, as replicas go after a calm time only.
        """
        then_per_s = self.curve.prompt_tokens_per_s
        if not then_per_s:
            return 1.0
        ratio = self.prompt_tokens_per_s / then_per_s
        if ratio > 1:
            return min(max(1.0, ratio / _CHANCE_RATIO) ** 2, 2.0)
        return max(ratio, 0.5)

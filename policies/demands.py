"""How many replicas a fleet needs, and what for: each demand is one reason, in numbers.

- prefill: to compute what no cache has, at the hit ratio that so many replicas would have;
- reuse: to hold the KV that sessions come back for;
- running: GPU memory for the requests that run or wait, with room for their ups and downs;
- backlog: prefills that wait and would still wait when a new replica is up.

None of them looks at the hit ratio that was measured. So misses of what was never seen before, and
those of replicas that are still cold, call for nothing.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from policies.autoscale_settings import AutoscaleSettings
from policies.observation import Observation

_ALL_BUT_ROUNDING = 1 - 1e-9

_FRACTION = 0.01
"""How exactly fractions of replicas are found."""

_LEARN_S = 300.0
"""How long a new curve is not believed, at most: all that it has seen so far is seen first."""


@dataclass(frozen=True, slots=True)
class Demand:
    """So many replicas are needed, a fraction too, `because`. It may be more than there may be."""

    name: str
    needed: float
    because: str

    @property
    def replicas(self) -> int:
        """Whole ones."""
        return math.ceil(self.needed)


def prefill(now: Observation, settings: AutoscaleSettings) -> Demand:
    """Return how many compute what no cache has, the n with this.

    prompt tokens/s * (1 - hit ratio of n replicas) = n * prefill rate * target_prefill_ratio
    """
    if not _is_learned(now, settings):
        return Demand("prefill", 0, "too little is known yet of what is used again")
    most_per_s = now.prefill_tokens_per_s * settings.target_prefill_ratio

    def uncached_per_s(replicas: float) -> float:
        held = max(replicas * now.cache_tokens, now.shared_tokens)
        return now.prompt_tokens_per_s * (1 - now.curve.hit_ratio(held / now.growth_ratio))

    least, most = 0.0, now.prompt_tokens_per_s / most_per_s
    while most - least > _FRACTION:
        middle = (least + most) / 2
        if uncached_per_s(middle) > middle * most_per_s:
            least = middle
        else:
            most = middle
    because = f"{uncached_per_s(most):,.0f} uncached tokens/s at {most_per_s:,.0f} a replica"
    return Demand("prefill", most, because)


def reuse(now: Observation, settings: AutoscaleSettings) -> Demand:
    """Return the least n that holds what gives `target_hit_ratio` of the best hit ratio."""
    if not _is_learned(now, settings):
        return Demand("reuse", 0, "too little is known yet of what is used again")
    wanted = now.curve.best_ratio * min(settings.target_hit_ratio, _ALL_BUT_ROUNDING)
    if not wanted:
        return Demand("reuse", 0, "nothing is used again")
    size = now.curve.capacity_tokens(wanted)
    assert size is not None
    size *= now.growth_ratio
    needed = 0.0 if size <= now.shared_tokens else size / now.cache_tokens
    best = now.curve.best_ratio
    because = f"a hit ratio of {wanted:.3f}, of {best:.3f} at best, takes {size / 1e3:,.0f}k tokens"
    return Demand("reuse", needed, because)


def _is_learned(now: Observation, settings: AutoscaleSettings) -> bool:
    return now.curve.span_s >= min(settings.window_s, _LEARN_S) * 0.9


def running(now: Observation, settings: AutoscaleSettings) -> Demand:
    """Return the least n whose GPU memory has room for the requests in flight.

        room_tokens = usual + headroom_deviations * sqrt(usual * tokens of one request)

    or what was in flight in the last minute, if that is more. As the sum of a random number of
    requests varies by about that root, large fleets need less to spare. On each replica half a
    request's tokens stay free, too few for a further one.
    """
    usual, held_tokens = now.usual_load, now.load.held_tokens
    each = max(load.held_tokens / max(load.requests, 1) for load in (usual, now.load))
    spare = settings.headroom_deviations * math.sqrt(usual.held_tokens * each)
    room = max(usual.held_tokens + spare, held_tokens)
    usable = max(now.gpu_tokens - each / 2, now.gpu_tokens / 2)
    because = (
        f"requests in flight hold {held_tokens / 1e3:,.0f}k tokens of KV, "
        f"usually {usual.held_tokens / 1e3:,.0f}k, and take room for {room / 1e3:,.0f}k"
    )
    return Demand("running", room / usable, because)


def backlog(now: Observation, settings: AutoscaleSettings) -> Demand:
    """Return the least n that prefill, within `max_wait_s`, what is left when the last one is up.

    What those that are there prefill until then needs no others.
    """
    rate = now.prefill_tokens_per_s
    left = now.load.backlog_tokens - len(now.seats) * rate * settings.start_s
    because = f"{now.load.backlog_tokens / 1e3:,.0f}k tokens wait to be prefilled"
    return Demand("backlog", max(0.0, left / (rate * settings.max_wait_s)), because)


DEMANDS: tuple[Callable[[Observation, AutoscaleSettings], Demand], ...] = (
    prefill,
    reuse,
    running,
    backlog,
)

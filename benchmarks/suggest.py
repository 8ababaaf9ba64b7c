"""Settings of the autoscaler for recorded sessions, and what they follow from.

A day of the sessions is simulated with the default settings, and what was observed and demanded is
noted: the bounds come from that. Then days with other hit ratios to aim at, the knee of the reuse
curve at the busiest time among them, and with more or less headroom. Of those with about the fewest
late answers the one that costs least wins.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.autoscalers.autoscaler import Target, View
from benchmarks.autoscalers.setting import Setting
from benchmarks.autoscalers.warmturn import Warmturn
from benchmarks.simulated_day import Result, block_size, simulate_day
from benchmarks.trace_session import TraceSession
from policies.autoscale_settings import AutoscaleSettings
from policies.demands import Demand
from policies.observation import Observation
from policies.reuse_curve import ReuseCurve

_ALL = 0.999
"""Part of the best hit ratio at which a curve counts as flat."""

_ROOM = 1.25
"""How much more than the day's largest demand there may be."""

_NO_WORSE = 1.05
"""Late answers that differ by less are about as many: a seed moves them as much."""

_HIT_RATIOS = (0.9, 0.93, 0.98)
_DEVIATIONS = (1.0, 2.0)
"""What is tried besides the defaults."""

_WINDOW_PAUSES = 3
"""How many of the longest pauses a window holds, at least."""


class _Noting(Warmturn):
    """Keeps all that it saw and demanded."""

    def __init__(self, settings: AutoscaleSettings, setting: Setting, block_size: int) -> None:
        super().__init__(settings, setting.hardware, block_size, setting.replicas)
        self.notes: list[tuple[Observation, tuple[Demand, ...]]] = []

    def tick(self, view: View, now_s: float) -> Target:
        """Return how many replicas there should be, and who drains."""
        target = super().tick(view, now_s)
        self.notes.append((self.observation, self.wish.demands))
        return target


@dataclass(frozen=True, slots=True)
class Capacity:
    """What so many replicas' memory would have had cached, at the busiest time.

    `prefill_replicas` compute the rest, each in the share of time that it should prefill.
    """

    replicas: int
    tokens: int
    hit_ratio: float
    uncached_tokens_per_s: float
    prefill_replicas: float


@dataclass(frozen=True, slots=True)
class Tried:
    """A day with these settings."""

    settings: AutoscaleSettings
    day: Result


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Settings, why each is what it is, and what that was concluded from.

    `demands` are the replicas that each called for: the median, the 90th percentile and the most.
    """

    settings: AutoscaleSettings
    reasons: dict[str, str]
    curve: list[Capacity]
    demands: dict[str, tuple[float, float, float]]
    tried: list[Tried]


def suggest(
    sessions: list[TraceSession], setting: Setting, progress: Callable[[str], None]
) -> Suggestion:
    """Simulate seven days and choose; `progress` is told of each."""
    size = block_size(sessions, setting)
    pauses = [one.think_s for session in sessions for step in session.steps for one in step]
    first = AutoscaleSettings(
        max_replicas=setting.max_replicas, start_s=setting.start_s, window_s=_window_s(pauses)
    )
    tried: list[Tried] = []

    def replay(settings: AutoscaleSettings) -> _Noting:
        noting = _Noting(settings, setting, size)
        tried.append(Tried(settings, simulate_day("warmturn", noting, sessions, setting)))
        progress(
            f"target_hit_ratio {settings.target_hit_ratio:g}, "
            f"headroom_deviations {settings.headroom_deviations:g}"
        )
        return noting

    notes = replay(first).notes
    busiest = max((now for now, _ in notes), key=lambda now: now.curve.prompt_tokens_per_s)
    knee = round(_knee(busiest.curve), 2)
    for ratio in sorted({knee, *_HIT_RATIOS} - {first.target_hit_ratio}):
        replay(replace(first, target_hit_ratio=ratio))
    best = _best(tried)
    for deviations in _DEVIATIONS:
        replay(replace(best, headroom_deviations=deviations))
    best = _best(tried)
    needed = [max(demand.needed for demand in demands) for _, demands in notes]
    quiet, most = float(np.percentile(needed, 5)), max(needed)
    least = max(1, math.floor(quiet))
    why = "fewest replica hours of the days with about the fewest late answers"
    return Suggestion(
        settings=replace(
            best, min_replicas=least, max_replicas=max(least, math.ceil(most * _ROOM))
        ),
        reasons={
            "min_replicas": f"the day called for {quiet:.1f} at its quietest",
            "max_replicas": f"it called for {most:.1f} at most; this is a quarter more",
            "target_hit_ratio": f"{why}; {knee:g} is the knee of the curve",
            "headroom_deviations": why,
            "start_s": "as given: how long your replicas take to start",
            "window_s": f"99 % of the pauses are at most {np.percentile(pauses, 99):.0f} s",
        },
        curve=_capacities(busiest, first),
        demands={
            one.name: _spread([demands[number].needed for _, demands in notes])
            for number, one in enumerate(notes[0][1])
        },
        tried=tried,
    )


def _window_s(pauses_s: Sequence[float]) -> float:
    """Return the default, or longer: whole minutes that are long against the pauses."""
    long_s = _WINDOW_PAUSES * float(np.percentile(pauses_s, 99))
    return max(AutoscaleSettings().window_s, 60.0 * math.ceil(long_s / 60))


def _knee(curve: ReuseCurve) -> float:
    """Return the part of the best hit ratio at the curve's knee.

    That is where it is farthest above the straight line from its beginning to where it is flat
    (Kneedle: Satopää et al., 2011).
    """
    hits = curve.hit_tokens / max(1.0, float(curve.hit_tokens[-1]))
    end = int(np.searchsorted(hits, _ALL))
    if end == len(hits):  # nothing is used again
        return AutoscaleSettings().target_hit_ratio
    above = hits[: end + 1] / hits[end] - curve.sizes_tokens[: end + 1] / curve.sizes_tokens[end]
    return float(hits[int(np.argmax(above))])


def _capacities(now: Observation, settings: AutoscaleSettings) -> list[Capacity]:
    """Return what each number of replicas would have, up to where more changes nothing."""
    flat = now.curve.capacity_tokens(now.curve.best_ratio * _ALL) or 0.0
    rows = []
    for replicas in range(1, math.ceil(flat / now.cache_tokens) + 2):
        tokens = replicas * now.cache_tokens
        hit_ratio = now.curve.hit_ratio(tokens)
        uncached = now.curve.prompt_tokens_per_s * (1 - hit_ratio)
        each = now.prefill_tokens_per_s * settings.target_prefill_ratio
        rows.append(Capacity(replicas, tokens, hit_ratio, uncached, uncached / each))
    return rows


def _best(tried: Sequence[Tried]) -> AutoscaleSettings:
    """Return the settings with fewest replica hours of those with about the fewest late answers."""
    fewest = min(one.day.slo_misses for one in tried)
    good = [one for one in tried if one.day.slo_misses <= fewest * _NO_WORSE]
    return min(good, key=lambda one: one.day.replica_hours).settings


def _spread(replicas: Sequence[float]) -> tuple[float, float, float]:
    median, high = np.percentile(replicas, (50, 90))
    return float(median), float(high), max(replicas)

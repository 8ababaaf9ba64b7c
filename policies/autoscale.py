"""How many replicas there should be, and which of them should take no more sessions.

Scaling up follows the largest demand at once, but for new replicas that are on their way. Scaling
down takes two steps: first the replicas that Ray would stop drain, so that their sessions move at
their next turn; when they have no requests any more, or `drain_s` later, the target falls. A demand
that returns meanwhile calls them back, at no cost.

Fewer replicas must have been enough for `calm_s`, and none goes within `settle_s` after others
came. One step at most doubles or halves what serves.
"""

import math
from dataclasses import dataclass, replace

from policies.autoscale_settings import AutoscaleSettings
from policies.demands import DEMANDS, Demand
from policies.observation import Observation
from policies.types import ReplicaId
from policies.victims import predict_victims


@dataclass(frozen=True, slots=True)
class Draining:
    """Replicas that take no more sessions, as they will go."""

    replicas: tuple[ReplicaId, ...]
    since_s: float


@dataclass(frozen=True, slots=True)
class AutoscaleState:
    """What an autoscaler has to remember; begin with the number of replicas that there are.

    `kept` are how many would have had slack in the last `calm_s`, the oldest first, and when; the
    first was before that, if there was one.
    """

    target: int
    kept: tuple[tuple[float, int], ...] = ()
    came_at_s: float | None = None
    draining: Draining | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """The number of replicas that there should be, who of them drains, and why."""

    replicas: int
    draining: tuple[ReplicaId, ...]
    demands: tuple[Demand, ...]
    reason: str


def on_tick(
    now: Observation, state: AutoscaleState, settings: AutoscaleSettings, now_s: float
) -> tuple[Wish, AutoscaleState]:
    """Decide; to be called every few seconds, with the state that the last call returned."""
    demands = tuple(demand(now, settings) for demand in DEMANDS)
    largest = max(demands, key=lambda demand: demand.needed)
    wanted = _bounded(largest.needed, settings)
    kept = _bounded(largest.needed * (1 + settings.slack_ratio), settings)
    state = replace(state, kept=(*_since(state.kept, now_s - settings.calm_s), (now_s, kept)))
    why = f"{largest.name}: {largest.because}"
    if wanted > state.target - _count(state.draining):
        reason, state = _up(wanted, now, state, why, now_s)
    else:
        reason, state = _down(now, state, settings, why, now_s)
    draining = state.draining.replicas if state.draining else ()
    return Wish(state.target, draining, demands, reason), state


def _up(
    wanted: int, now: Observation, state: AutoscaleState, why: str, now_s: float
) -> tuple[str, AutoscaleState]:
    """Call back who drains, as many as are needed; then add as many as serve at most."""
    drains = state.draining.replicas if state.draining else ()
    kept = drains[: max(0, state.target - wanted)]
    called = f"calls {', '.join(drains[len(kept) :])} back, " if drains else ""
    draining = replace(state.draining, replicas=kept) if state.draining and kept else None
    target = max(state.target, min(wanted, max(1, 2 * len(now.seats))))
    if target > state.target:
        reason = f"{called}{state.target} -> {target}, as {wanted} are needed; {why}"
        return reason, replace(state, target=target, came_at_s=now_s, draining=draining)
    reason = f"{called}stays at {target}, as {wanted} are needed; {why}"
    return reason, replace(state, draining=draining)


def _down(
    now: Observation, state: AutoscaleState, settings: AutoscaleSettings, why: str, now_s: float
) -> tuple[str, AutoscaleState]:
    """Let replicas drain, or go that have drained."""
    target = state.target
    if state.draining:
        return _let_go(state.draining, now, state, settings, now_s)
    least = max(kept for _, kept in state.kept)
    if least >= target:
        return f"stays at {target}; {why}", state
    if state.came_at_s is not None and now_s - state.came_at_s < settings.settle_s:
        return f"stays at {target} until {settings.settle_s:g} s after others came; {why}", state
    if now_s - state.kept[0][0] < settings.calm_s:
        return f"stays at {target} until {least} were enough for {settings.calm_s:g} s", state
    if len(now.seats) < target:  # Ray gives up those first that do not serve
        there = max(least, len(now.seats))
        return f"{target} -> {there}, as no more serve; {why}", replace(state, target=there)
    if len(now.seats) > target:
        return f"stays at {target} until no more serve; {why}", state
    count = min(target - least, target // 2 or 1)
    victims = predict_victims(now.seats, count)
    reason = f"{target} -> {target - count} once {', '.join(victims)} drained; {why}"
    return reason, replace(state, draining=Draining(victims, now_s))


def _let_go(
    draining: Draining,
    now: Observation,
    state: AutoscaleState,
    settings: AutoscaleSettings,
    now_s: float,
) -> tuple[str, AutoscaleState]:
    busy = [one for one in draining.replicas if one in now.busy]
    target = state.target - len(draining.replicas)
    if busy and now_s - draining.since_s < settings.drain_s:
        return f"{state.target} -> {target} once {', '.join(busy)} drained", state
    reason = f"{state.target} -> {target}: {', '.join(draining.replicas)} drained"
    return reason, replace(state, target=target, draining=None)


def _since(kept: tuple[tuple[float, int], ...], begin_s: float) -> tuple[tuple[float, int], ...]:
    """Leave out what was before the last one that was at `begin_s` or earlier."""
    older = sum(at_s <= begin_s for at_s, _ in kept)
    return kept[max(0, older - 1) :]


def _bounded(needed: float, settings: AutoscaleSettings) -> int:
    return min(max(math.ceil(needed), settings.min_replicas), settings.max_replicas)


def _count(draining: Draining | None) -> int:
    return len(draining.replicas) if draining else 0

"""Which of the ranked replicas a session's request takes.

1. A session stays at its home, unless that costs more than the best by over `stickiness_s`.
2. Beyond `max_session_concurrency` requests in flight there, the next one goes elsewhere if that
   costs less at all, and to a holder of its prefix among those that cost about the same.
3. A session without a home gets the replica with least running requests, resident sessions and
   KV in use, among those that cost about the same.
4. Nothing else moves a session. No rule depends on how many replicas there are, so that adding
   one moves nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from policies.ranking import Scored, near_best
from policies.tunables import Tunables
from policies.types import ReplicaId, Rule


@dataclass(frozen=True, slots=True)
class Pick:
    """A choice, the rule that made it, and the reason in words and numbers."""

    chosen: Scored
    rule: Rule
    reason: str


def pick(ranked: Sequence[Scored], home: ReplicaId | None, tunables: Tunables) -> Pick:
    """Choose for a session that lives at `home`, or for a new one."""
    best = ranked[0]
    if home is None:
        return _settle(ranked, Rule.NEW, "new session", tunables)
    at_home = next((scored for scored in ranked if scored.replica == home), None)
    if at_home is None:
        return _settle(ranked, Rule.MOVED, f"its home {home} is full, draining or gone", tunables)
    if split := _split(ranked, at_home, tunables):
        return split
    margin = f"{tunables.stickiness_s:g} s"
    if at_home.total_s > best.total_s + tunables.stickiness_s:
        reason = f"moves to {best}: its home {at_home} costs over {margin} more"
        return Pick(best, Rule.MOVED, reason)
    if at_home is best:
        return Pick(at_home, Rule.STAYED, f"stays at {at_home}, which is the best")
    return Pick(at_home, Rule.STAYED, f"stays at {at_home}: {best} isn't better by {margin}")


def _settle(ranked: Sequence[Scored], rule: Rule, why: str, tunables: Tunables) -> Pick:
    near = near_best(ranked, tunables.placement_slack_s)
    chosen = min(near, key=_occupation)
    reason = f"{why}: {chosen} is least occupied ({_occupation(chosen):.1f}) of the {len(near)}"
    return Pick(chosen, rule, f"{reason} within {tunables.placement_slack_s:g} s of {ranked[0]}")


def _split(ranked: Sequence[Scored], at_home: Scored, tunables: Tunables) -> Pick | None:
    """Send a burst's next request elsewhere, where it has too many at home and another is cheaper.

    Without that price each burst would have its prompt computed once more, and evict others' KV.
    """
    most = tunables.max_session_concurrency
    running = at_home.candidate.session_requests
    others = [
        scored
        for scored in ranked
        if scored.candidate.session_requests < most
        and scored.candidate.has_room
        and scored.total_s < at_home.total_s
    ]
    if running < most or not others:
        return None
    near = near_best(others, tunables.stickiness_s)
    chosen = max(near, key=lambda scored: scored.candidate.match.blocks)
    reason = f"splits to {chosen}: {running} requests of its session are at {at_home}"
    return Pick(chosen, Rule.SPLIT, reason)


def _occupation(scored: Scored) -> float:
    """Return requests running, sessions resident, and the share of GPU KV in use."""
    candidate = scored.candidate
    kv_use_ratio = candidate.pinned_blocks / candidate.state.total_blocks
    return candidate.requests + candidate.residents.sessions + kv_use_ratio
